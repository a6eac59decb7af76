"""Assemble the application: its parts, its addresses, and a model that loads while it already answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response

from model_store.store import DEFAULT_ROOT, ModelStore
from service.admission.admission import DEADLINE_HEADER, Admission, Gate
from service.api import calibrate, design, export, hybrid, models, open_inference, verify
from service.api.front import Front, Service
from service.api.openapi import TITLE, add_document, description
from service.api.workbench import add_workbench
from service.engine.engine import Engine, choose_device
from service.engine.work_share import WorkShare
from service.observability.metrics import Metrics
from service.observability.tracing import Tracing
from service.settings import Settings
from synthesis.types import Fallback

logger = logging.getLogger(__name__)

# Smallest answer that is compressed for clients that accept it: calibrations and documents, not designs, which would
# wait for it.
MIN_GZIP_BYTES = 64 * 2**10
# Headers that pages of other origins may read.
EXPOSED_HEADERS = (
    "Content-Disposition", "Retry-After", "Server-Timing", "X-Model-Digest", "X-Predicted-AMP-dB", "X-Predicted-NR-dB",
    "X-Refine-Applied", "X-Request-Id", "X-Warnings",
)  # fmt: skip


def create_app(settings: Settings) -> FastAPI:
    """Create the application for the store and the device of the settings.

    The default model is loaded when the application starts.

    Raises
    ------
    ValueError
        The device is missing, or a file of keys cannot be read.
    """
    store = ModelStore(settings.store or DEFAULT_ROOT)
    if settings.store and isinstance(store.root, Path) and not store.root.is_dir():
        logger.warning("store: there is no folder %s; until there is, only bundled models are served", store.root)
    engine = Engine(
        store,
        choose_device(settings.device),
        default_model=settings.model,
        n_threads=settings.n_threads(),
        fallback=Fallback(settings.fallback_below_db, settings.fallback_margin_db),
        max_resident_models=settings.max_resident_models,
        ready_budget_s=settings.ready_budget_ms / 1e3,
        recheck_s=settings.recheck_s,
    )
    shares = {kind: WorkShare(kind) for kind in ("calibrations", "exports", "hybrids", "verifications")}

    def with_model(kind: str) -> Callable[[float], None]:
        def reject(due: float) -> None:
            engine.require_model()
            shares[kind].reject_if_overloaded(due)

        return reject

    admission = Admission(
        settings,
        {
            Gate.DESIGN: engine.reject_if_overloaded,
            Gate.EXPORT: with_model("exports"),
            Gate.HYBRID: with_model("hybrids"),
            Gate.CALIBRATION: shares["calibrations"].reject_if_overloaded,
            Gate.VERIFICATION: shares["verifications"].reject_if_overloaded,
        },
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        await engine.close()
        await asyncio.gather(*(share.close() for share in shares.values()))
        if tracing is not None:
            await asyncio.to_thread(tracing.close)  # sends the remaining spans

    app = FastAPI(
        title=TITLE,
        version=version("prime-anc"),
        description=description(settings),
        lifespan=lifespan,
        openapi_url=None,  # served by `add_document`, encoded once, with its page
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # `observability` reports requests
        redirect_slashes=False,  # a redirect would follow the host of the request's header
        generate_unique_id_function=lambda route: route.name,
        exception_handlers={HTTPException: _pass_on, RequestValidationError: _pass_on},
    )
    tracing = _tracing(app, settings)
    app.state.service = service = Service(
        settings,
        store,
        engine,
        **shares,
        admission=admission,
        metrics=Metrics(engine, settings.commit),
        tracing=tracing,
    )
    for item in (design, hybrid, calibrate, export, verify, models, open_inference):
        app.include_router(item.router)
    app.include_router(open_inference.infer_router)
    add_workbench(app)
    add_document(app, settings)
    app.add_middleware(GZipMiddleware, minimum_size=MIN_GZIP_BYTES, compresslevel=1)
    app.add_middleware(Front, service=service)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Encoding", "Content-Type", DEADLINE_HEADER, "X-Request-Id"],
            expose_headers=EXPOSED_HEADERS,
            max_age=86_400,
        )
    return app


async def _pass_on(request: Request, error: Exception) -> Response:
    """Pass FastAPI's refusals to `Front`, which answers all errors."""
    raise error


def _tracing(app: FastAPI, settings: Settings) -> Tracing | None:
    """Set up tracing for a collector, or for a JSON log, which names traces if OpenTelemetry is installed."""
    if settings.otlp_endpoint is not None:
        return Tracing(app, settings.otlp_endpoint)
    if settings.log_format == "json":
        try:
            return Tracing(app)
        except ValueError as error:
            logger.warning("The log names no traces. %s", error)
    return None

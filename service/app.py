"""Assemble the application: its parts, its addresses, and a model that loads while it already answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from model_store.store import DEFAULT_ROOT, ModelStore
from prime_anc.method.types import Fallback
from service.admission.admission import DEADLINE_HEADER, Admission, Gate
from service.api import calibrate, design, export, hybrid, models, verify
from service.api.front import Compression, Front, Service
from service.api.openapi import add_document
from service.api.workbench import add_workbench
from service.engine.engine import Engine, check_device
from service.engine.work_share import WorkShare
from service.observability.metrics import Metrics
from service.settings import Settings

logger = logging.getLogger(__name__)

# Smallest answer that is compressed for clients that accept it: calibrations and documents, not designs, which would
# wait for it.
MIN_GZIP_BYTES = 64 * 2**10
# Headers that pages of other origins may read.
EXPOSED_HEADERS = (
    "Content-Disposition", "Retry-After", "Server-Timing", "X-Model-Digest", "X-Predicted-AMP-dB", "X-Predicted-NR-dB",
    "X-Refine-Applied", "X-Request-Id", "X-Verdict", "X-Warnings",
)  # fmt: skip


def create_app(settings: Settings) -> Starlette:
    """Create the application for the store and the device of the settings.

    The default model is loaded when the application starts.

    Raises
    ------
    ValueError
        The device is missing, or a file of keys cannot be read.
    """
    service = _service(settings)
    engine = service.engine

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        engine.start()
        yield
        await engine.close()
        await asyncio.gather(*(share.close() for share in service.shares.values()))

    parts = (design, hybrid, calibrate, export, verify, models)
    routes = [address for part in parts for address in part.addresses]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _pass_on})
    app.router.redirect_slashes = False  # a redirect would follow the host of the request's header
    app.state.service = service
    add_workbench(app)
    add_document(app, settings)
    app.add_middleware(Compression, minimum_size=MIN_GZIP_BYTES, compresslevel=1)
    app.add_middleware(Front, service=service)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", DEADLINE_HEADER, "X-Request-Id"],
            expose_headers=EXPOSED_HEADERS,
            max_age=86_400,
        )
    return app


def _service(settings: Settings) -> Service:
    """Make the components of the application."""
    store = ModelStore(settings.store or DEFAULT_ROOT)
    if settings.store and isinstance(store.root, Path) and not store.root.is_dir():
        logger.warning("store: there is no folder %s; until there is, only bundled models are served", store.root)
    check_device(settings.device)
    engine = Engine(
        store,
        settings.device,
        default_model=settings.model,
        n_threads=settings.n_threads(),
        fallback=Fallback(settings.fallback_below_db, settings.fallback_margin_db),
        max_resident_models=settings.max_resident_models,
        ready_budget_s=settings.ready_budget_ms / 1e3,
        recheck_s=settings.recheck_s,
    )
    shares = {
        Gate.CALIBRATION: WorkShare("calibrations"),
        Gate.EXPORT: WorkShare("exports"),
        Gate.HYBRID: WorkShare("hybrids"),
        Gate.VERIFICATION: WorkShare("verifications"),
    }

    def reject(gate: Gate, due: float) -> None:
        if gate in (Gate.EXPORT, Gate.HYBRID):
            engine.sound_default()
        shares[gate].reject_if_overloaded(due)

    rejections = {gate: partial(reject, gate) for gate in shares} | {Gate.DESIGN: engine.reject_if_overloaded}
    admission, metrics = Admission(settings, rejections), Metrics(engine, settings.commit)
    return Service(settings, store, engine, shares, admission, metrics)


async def _pass_on(request: Request, error: Exception) -> Response:
    """Pass Starlette's refusals to `Front`, which answers all errors."""
    raise error

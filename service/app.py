"""Assemble the application."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from time import perf_counter

import anyio
import numpy as np
import orjson
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from model_store.errors import ModelStoreError
from model_store.store import DEFAULT_ROOT, ModelStore
from prime_anc.method.errors import SynthesisError
from prime_anc.method.types import Fallback
from prime_anc.requests.errors import RequestError
from service.admission import DEADLINE_HEADER, Admission
from service.api import calibrate, design, export, health, hybrid, models, page, verify
from service.api.openapi import document
from service.api.state import JSON, RequestState, Service, check_sender, client_key, service_of, state_of
from service.engine import Engine, check_device
from service.errors import HttpProblem, to_problem
from service.metrics import Metrics
from service.observation import Observation
from service.settings import Settings

logger = logging.getLogger(__name__)

TITLE = "PRIME-ANC"
# Permanent prefix of all addresses.
PREFIX = "/v1"
# Smallest answer that is compressed for clients that accept it: calibrations and documents, not designs, which would
# wait for it.
MIN_GZIP_BYTES = 64 * 2**10
# Headers that pages of other origins may read.
EXPOSED_HEADERS = (
    "Content-Disposition", "Retry-After", "Server-Timing", "X-Model-Digest", "X-Predicted-AMP-dB", "X-Predicted-NR-dB",
    "X-Refine-Applied", "X-Request-Id", "X-Verdict", "X-Warnings",
)  # fmt: skip

# Errors that are problems of a request, or of the store.
_KNOWN = (
    RequestError, SynthesisError, ModelStoreError, HTTPException, ArithmeticError, np.linalg.LinAlgError, MemoryError,
    OSError,
)  # fmt: skip


def create_app(settings: Settings, fallback: Fallback | None = None) -> FastAPI:
    """Create the application for the store and the device of the settings.

    The default model is loaded when the application starts.

    Parameters
    ----------
    settings
        The service's settings.
    fallback
        When Wiener filters replace the generator's; None: by default.

    Raises
    ------
    ValueError
        The device is missing, or a file of keys cannot be read.
    """
    service = _service(settings, fallback)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.engine.start()
        await anyio.sleep(0)  # loads what the first request would wait 40 ms for
        yield
        await service.engine.close()

    app = FastAPI(
        title=TITLE,
        version=version("prime-anc"),
        lifespan=lifespan,
        servers=[{"url": PREFIX}],
        dependencies=[Depends(check_sender)],
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    for part in (design, hybrid, calibrate, export, verify):
        _include(app, part.router, needs_key=True)
    for router in (models.reading, models.managing, health.router):
        _include(app, router)
    app.include_router(page.router)
    _add_document(app, settings)
    for kind in _KNOWN:
        app.add_exception_handler(kind, _answer_problem)
    app.add_exception_handler(Exception, _answer_defect)
    app.add_middleware(GZipMiddleware, minimum_size=MIN_GZIP_BYTES, compresslevel=1)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type", DEADLINE_HEADER, "X-Request-Id"],
            expose_headers=EXPOSED_HEADERS,
            max_age=86_400,
        )
    app.add_middleware(Observation, metrics=service.metrics, has_access_log=settings.access_log)
    return app


def _service(settings: Settings, fallback: Fallback | None) -> Service:
    """Make the parts of the service."""
    store = ModelStore(settings.store or DEFAULT_ROOT)
    if settings.store and isinstance(store.root, Path) and not store.root.is_dir():
        logger.warning("store: there is no folder %s; until there is, only bundled models are served", store.root)
    check_device(settings.device)
    engine = Engine(
        store,
        settings.device,
        default_model=settings.model,
        n_threads=settings.n_threads(),
        fallback=fallback,
        max_resident_models=settings.max_resident_models,
    )
    return Service(settings, engine, Admission(settings), Metrics(engine, settings.commit))


def _include(app: FastAPI, router: APIRouter, *, needs_key: bool = False) -> None:
    """Add the routes of a router under their lasting names, and without the prefix."""
    dependencies = [Depends(client_key)] if needs_key else []
    app.include_router(router, dependencies=dependencies)
    app.include_router(router, prefix=PREFIX, dependencies=dependencies, include_in_schema=False)


def _add_document(app: FastAPI, settings: Settings) -> None:
    """Serve the OpenAPI document, made once when it is first requested, and its page."""
    lock = Lock()

    @cache
    def encoded() -> bytes:
        return orjson.dumps(document(app, settings))

    @app.get("/openapi.json", include_in_schema=False)
    def openapi() -> Response:  # in a thread: making it takes a second
        with lock:
            return Response(encoded(), media_type=JSON)

    @app.get("/docs", include_in_schema=False)
    def docs(request: Request) -> Response:
        root = request.scope.get("root_path", "")
        return get_swagger_ui_html(
            openapi_url=f"{root}/openapi.json",
            title=TITLE,
            swagger_js_url=f"{root}/docs/assets/swagger-ui-bundle.js",
            swagger_css_url=f"{root}/docs/assets/swagger-ui.css",
            swagger_favicon_url=f"{root}/docs/assets/favicon.png",
        )

    # Swagger UI's files, so that the page works without internet access; found without loading the package.
    package = find_spec("fastapi_offline")
    assert package is not None
    assert package.origin is not None
    app.mount("/docs/assets", StaticFiles(directory=Path(package.origin).parent / "static"))


async def _answer_problem(request: Request, error: Exception) -> Response:
    """Answer a known error as a problem document; raise others, which are defects."""
    problem = _routing_problem(error) if isinstance(error, HTTPException) else to_problem(error)
    if problem is None:
        raise error
    state = state_of(request)
    state.code = problem.code
    if problem.status >= 500 and isinstance(error, ModelStoreError | MemoryError | OSError):
        service_of(request).engine.models.n_loads["failed"] += isinstance(error, ModelStoreError)
        logger.error("%s: %s (%s)", request.url.path, problem.code, state.request_id, exc_info=error)
    return _timed(problem, state)


async def _answer_defect(request: Request, error: Exception) -> Response:
    """Answer a failure of the service, whose cause is logged."""
    state = state_of(request)
    detail = f"the service failed unexpectedly; ask its operator, whose log has the cause under {state.request_id}"
    return _timed(HttpProblem("internal-error", detail, headers={"X-Request-Id": state.request_id}), state)


def _timed(problem: HttpProblem, state: RequestState) -> Response:
    """Return a problem's response with the time of its request."""
    response = problem.response()
    response.headers["Server-Timing"] = f"total;dur={1e3 * (perf_counter() - state.began):.4f}"
    return response


def _routing_problem(error: HTTPException) -> HttpProblem:
    """Return Starlette's refusals: an unknown address, an unsupported method."""
    if error.status_code != 405:
        return HttpProblem("not-found", "there is nothing at this address; see /openapi.json")
    allowed = (error.headers or {}).get("Allow", "")
    detail = f"this address does not answer this method; use {allowed}"
    return HttpProblem("method-not-allowed", detail, headers={"Allow": allowed})

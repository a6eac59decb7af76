"""The application: its parts, its addresses, and a model that loads while it already answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from model_store.store import DEFAULT_ROOT, ModelStore
from service.admission.admission import Admission, Gate
from service.api.call import Service
from service.api.dispatch import (
    ServiceRoute,
    as_problem,
    is_heard,
    is_management,
    problem_response,
    unknown_address,
)
from service.api.json_workers import JsonWorkerPool
from service.api.openapi import TITLE, describe
from service.api.routes import ROUTES
from service.api.workbench import add_workbench
from service.engine.engine import Engine, choose_device
from service.engine.work_share import WorkShare
from service.errors import HttpProblem
from service.observability.metrics import Metrics
from service.observability.tracing import Tracing
from service.settings import Settings
from synthesis.types import Fallback

logger = logging.getLogger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """The application over the store and the device that the settings name.

    Raises ValueError for a device that is not there, for a file of keys that cannot be read and for a quota without
    keys. The default model is loaded when the application starts.
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
    shares = {kind: WorkShare(kind) for kind in ("calibrations", "exports", "verifications")}
    json_workers = JsonWorkerPool()

    def reject_export(due: float) -> None:
        engine.require_model()
        shares["exports"].reject_if_overloaded(due)

    admission = Admission(
        settings,
        {
            Gate.DESIGN: engine.reject_if_overloaded,
            Gate.EXPORT: reject_export,
            Gate.CALIBRATION: shares["calibrations"].reject_if_overloaded,
            Gate.VERIFICATION: shares["verifications"].reject_if_overloaded,
        },
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()
        yield
        await engine.close()
        await asyncio.gather(*(each.close() for each in shares.values()))
        await json_workers.close()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)  # which sends what is left

    app = FastAPI(
        title=TITLE,
        lifespan=lifespan,
        openapi_url=None,  # `describe` adds it and its page
        docs_url=None,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # `observability` tells of requests
        redirect_slashes=False,  # it would send clients to whichever host the request's own header names
    )
    tracing = _tracing(app, settings)
    metrics = Metrics(engine, settings.commit)
    service = Service(
        settings,
        store,
        engine,
        **shares,
        admission=admission,
        json_workers=json_workers,
        metrics=metrics,
        tracing=tracing,
    )
    app.state.service = service
    is_apart = settings.management_port is not None
    for route in ROUTES:
        is_documented = not (is_apart and route.heard_on == "management")
        app.router.routes += [ServiceRoute(service, route, method, is_documented) for method in route.methods]
    needs_key = settings.api_keys or settings.api_keys_file
    keyed = {each.operation_id for each in ROUTES if needs_key and each.gate not in (Gate.OPEN, Gate.OPERATOR)}
    add_workbench(app)
    describe(app, settings, keyed, {each.operation_id for each in ROUTES if each.gate is Gate.OPERATOR})
    app.add_exception_handler(HTTPException, _routing_problem)
    app.add_exception_handler(Exception, _defect)
    return app


def _tracing(app: FastAPI, settings: Settings) -> Tracing | None:
    """Where a collector is named, and for a log in JSON, which names traces where OpenTelemetry is installed."""
    if settings.otlp_endpoint is not None:
        return Tracing(app, settings.otlp_endpoint)
    if settings.log_format == "json":
        try:
            return Tracing(app)
        except ValueError as error:
            logger.warning("The log names no traces. %s", error)
    return None


async def _routing_problem(request: Request, error: Exception) -> Response:
    """What the router itself refuses: an unknown address, a method that an address does not answer."""
    assert isinstance(error, HTTPException)
    service, problem = request.app.state.service, unknown_address()
    if error.status_code == 405:
        path = request.url.path
        matching = [each for each in ROUTES if compile_path(each.path)[0].match(path)]
        routes = [each for each in matching if is_heard(each, service, is_management(request.scope))]
        if allowed := ", ".join(sorted({method for route in routes for method in route.methods})):
            detail = f"this address does not answer {request.method}; use {allowed}"
            problem = HttpProblem("method-not-allowed", detail, headers={"Allow": allowed})
    service.metrics.count("", "", problem.status, problem.code)
    return problem_response(problem, request.url.path)


async def _defect(request: Request, error: Exception) -> Response:
    """A failure outside every endpoint. The server logs it too, after this answer."""
    return problem_response(as_problem(error, request, request.app.state.service), request.url.path)

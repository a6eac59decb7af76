"""The application: routes as a table, errors as problems, models loaded while it already answers."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from time import perf_counter
from typing import Any, Literal, NamedTuple

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from model_store.mirror import Mirror, is_url
from model_store.store import DEFAULT_ROOT, ModelStore
from service.admission.keys import Keys
from service.admission.quotas import Quotas
from service.admission.room import Room
from service.calibration.calibrator import N_LARGEST, Calibrator
from service.engine.engine import Engine, choose_device
from service.engine.net import Net
from service.errors import Problem, from_domain
from service.formats import answers
from service.formats.side_lane import SideLane
from service.http import calibrate, endpoints, management, v2
from service.http.context import Service, is_managed, service_of
from service.observability.metrics import Metrics
from service.observability.tracing import Traced, collector
from service.openapi.document import TITLE, document
from service.settings import Settings

logger = logging.getLogger(__name__)

GONE = 499
"""What a request is counted as whose client has hung up: nginx's number, which no client ever sees."""

BODIES_BYTES = 512 * 2**20
"""All bodies of designs under way: forty of the largest, or 1600 binary ones of 16385 bins, which is more than wait
for a service that keeps its deadlines; and an amount that one does not run out of memory by."""

Handler = Callable[[Request], Awaitable[Response]]


class Row(NamedTuple):
    """One route. heard_on: which listener answers it, where the operator's is apart."""

    method: str
    path: str
    handler: Handler
    heard_on: Literal["both", "clients", "management"] = "clients"

    @property
    def methods(self) -> list[str]:
        """What its address answers: where GET, then HEAD."""
        return ["GET", "HEAD"] if self.method == "GET" else [self.method]

    def is_heard(self, request: Request) -> bool:
        """Whether the listener that a request came to answers it."""
        is_apart = service_of(request).settings.management_port is not None
        return not is_apart or self.heard_on in ("both", "management" if is_managed(request) else "clients")


ROUTES = (
    Row("POST", "/synthesize", endpoints.synthesize),
    Row("POST", "/refine", endpoints.refine),
    Row("POST", "/calibrate", calibrate.calibrate),
    Row("POST", "/evaluate", endpoints.evaluate),
    Row("GET", "/models", endpoints.list_models, "both"),
    Row("GET", "/models/{name}", endpoints.show_model, "both"),
    Row("POST", "/models/reload", management.reload_models, "management"),
    Row("POST", "/models/{name}/load", management.load_model, "management"),
    Row("POST", "/models/{name}/unload", management.unload_model, "management"),
    Row("GET", "/health/live", endpoints.live, "both"),
    Row("GET", "/health/ready", endpoints.ready, "both"),
    Row("GET", "/metrics", endpoints.metrics, "management"),
    Row("GET", "/v2", v2.server),
    Row("GET", "/v2/health/live", v2.live),
    Row("GET", "/v2/health/ready", v2.ready),
    Row("GET", "/v2/models/{name}", v2.model),
    Row("GET", "/v2/models/{name}/versions/{version}", v2.model),
    Row("GET", "/v2/models/{name}/ready", v2.model_ready),
    Row("GET", "/v2/models/{name}/versions/{version}/ready", v2.model_ready),
    Row("POST", "/v2/models/{name}/infer", v2.infer),
    Row("POST", "/v2/models/{name}/versions/{version}/infer", v2.infer),
)


class DirectRoute(APIRoute):
    """Hands the request to its endpoint as it is, without what FastAPI does around one, and turns errors into
    problems: the one place where errors end and outcomes are counted."""

    def __init__(self, path: str, endpoint: Handler, **options: Any) -> None:
        """As FastAPI makes routes."""
        super().__init__(path, endpoint, **options)
        self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        response = await self._respond(request)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        request.state.method = ""
        began = perf_counter()
        try:
            with ExitStack() as request.state.held:  # what a request has a place in until its answer
                response: Response = await self.endpoint(request)
            code = "ok"
        except ClientDisconnect:
            response, code = Response(status_code=GONE), "client-gone"  # to nobody
        except Exception as error:
            problem = as_problem(error, request)
            response, code = _refusal(problem, self.path), problem.code
            response.headers["Server-Timing"] = answers.server_timing({"total": 1e3 * (perf_counter() - began)})
        metrics = service_of(request).metrics
        metrics.count(self.path, request.state.method, response.status_code, code)
        return response


def _refusal(problem: Problem, path: str) -> Response:
    """A problem in the form that the address speaks."""
    is_v2 = path == v2.PREFIX or path.startswith(v2.PREFIX + "/")
    return v2.refusal(problem) if is_v2 else problem.response()


def as_problem(error: Exception, request: Request) -> Problem:
    """A problem for a client; a defect is logged with its cause, and nothing of it is said outside."""
    if isinstance(error, Problem):
        return error
    problem = from_domain(error)
    if problem is None:
        service_of(request).metrics.count_defect()
        problem = Problem("internal-error", "found a defect; its cause is in the service's log")
    if problem.status >= 500:
        logger.error("%s %s: %s", request.method, request.url.path, problem.code, exc_info=error)
    return problem


def create_app(settings: Settings) -> FastAPI:
    """The application over the store and the device that the settings name.

    Raises ValueError for a device that is not there, for a file of keys that cannot be read and for a quota that
    nobody has. The default model is loaded when the application starts.
    """
    keys = Keys(settings.api_keys, settings.api_keys_file)
    if settings.quota_per_s is not None and not keys.are_asked_for:
        raise ValueError("quota-per-s: found no API keys that it could hold for, expected some (or no quota)")
    mirror = _mirror(settings)
    provider = collector(settings.otlp_endpoint) if settings.otlp_endpoint else None
    store = ModelStore(mirror.folder if mirror else settings.store or DEFAULT_ROOT)
    if settings.store and not mirror and not store.root.is_dir():
        logger.warning("store: found no folder %s; until it is there, only bundled models are served", store.root)
    device = choose_device(settings.device)
    engine = Engine(
        store,
        device,
        apart=settings.designs_apart() and device.type == "cpu",
        default_model=settings.model,
        n_threads=settings.n_threads(),
        net=Net(settings.net_below_db, settings.net_margin_db),
        max_resident_models=settings.max_resident_models,
        refresh=mirror.refresh if mirror else None,
        ready_budget_s=settings.ready_budget_ms / 1e3,
        recheck_s=settings.recheck_s,
    )

    side_lane = SideLane(settings.json_processes)
    calibrator = Calibrator(N_LARGEST * settings.max_calibration_bytes)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine.start()  # before anything has begun a thread
        side_lane.start()
        yield
        await engine.close()
        await calibrator.close()
        if provider is not None:
            await asyncio.to_thread(provider.shutdown)  # which sends what is left
        await side_lane.close()

    app = FastAPI(
        title=TITLE,
        lifespan=lifespan,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # `observability` tells of requests
        redirect_slashes=False,  # it would send clients to whichever host the request's own header names
    )
    if settings.log_format == "json" or provider is not None:
        app.add_middleware(Traced, provider=provider)
    app.state.service = Service(
        settings,
        store,
        engine,
        Metrics(engine, settings.commit),
        side_lane,
        Quotas(settings.quota_per_s, settings.quota_burst),
        keys,
        Keys(settings.management_keys, settings.management_keys_file),
        calibrator,
        Room(max(BODIES_BYTES, settings.max_body_bytes)),
    )
    for row in ROUTES:
        handler = row.handler if settings.management_port is None else _heard(row)
        app.router.add_api_route(row.path, handler, methods=row.methods, route_class_override=DirectRoute)
    described = document(settings)
    if settings.management_port is not None:
        for row in ROUTES:
            if row.heard_on == "management":
                described["paths"].pop(row.path)
    app.openapi = lambda: described  # type: ignore[method-assign]
    app.add_exception_handler(HTTPException, _http_problem)
    app.add_exception_handler(Exception, _defect)
    return app


def _mirror(settings: Settings) -> Mirror | None:
    """The copy of a store on object storage, in a folder that no other URL's shares."""
    url = str(settings.store)
    if not is_url(url):
        return None
    name = hashlib.sha256(url.encode()).hexdigest()[:16]
    return Mirror(url, settings.store_cache.expanduser() / name)


def _heard(row: Row) -> Handler:
    """The row's handler, on the listeners that answer it; on the other one there is nothing at its address."""

    async def handler(request: Request) -> Response:
        if not row.is_heard(request):
            raise _nowhere()
        return await row.handler(request)

    return handler


def _nowhere() -> Problem:
    return Problem("not-found", "found an unknown address, expected one of /openapi.json")


async def _http_problem(request: Request, error: Exception) -> Response:
    """What the router itself refuses: an unknown address, a method that an address does not answer."""
    assert isinstance(error, HTTPException)
    problem = _nowhere()
    if error.status_code == 405:
        rows = [
            row for row in ROUTES if compile_path(row.path)[0].match(request.url.path) and row.is_heard(request)
        ]
        if allowed := ", ".join(sorted({method for row in rows for method in row.methods})):
            detail = f"found {request.method}, expected {allowed}"
            problem = Problem("method-not-allowed", detail, headers={"Allow": allowed})
    service_of(request).metrics.count("", "", problem.status, problem.code)
    return _refusal(problem, request.url.path)


async def _defect(request: Request, error: Exception) -> Response:
    """A failure outside every endpoint. The server logs it too, after this answer."""
    return _refusal(as_problem(error, request), request.url.path)

"""Middleware around all routes: admission by the head, answers to errors, and the count of outcomes.

The state of one request is its `Visit`, in `request.state.visit`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from model_store.errors import ModelStoreError
from model_store.store import ModelStore, ModelVersion
from prime_anc.method.conventions import CORE_STAGES, STAGES
from prime_anc.method.errors import Interrupted
from prime_anc.method.types import Design
from service.admission.admission import KEY_NAME, MANAGEMENT, Admission, Admitted, Gate
from service.engine.engine import Engine
from service.engine.types import ClientDisconnected, RefusedJob
from service.engine.work_share import WorkShare
from service.errors import HttpProblem, to_problem
from service.observability.metrics import Metrics
from service.settings import Settings

logger = logging.getLogger(__name__)
access_logger = logging.getLogger("service.access")
_ACCESS = ("method", "path", "status", "code", "ms", "key", "request")

# Status in the metrics of a request whose client has disconnected, as in nginx; no client receives it.
CLIENT_CLOSED_REQUEST = 499

# Permanent prefix of all addresses.
PREFIX = "/v1"

JSON, TAPS, TENSORS = "application/json", "application/octet-stream", "application/x-safetensors"

_BODY_GATES = {
    "/synthesize": Gate.DESIGN,
    "/refine": Gate.DESIGN,
    "/evaluate": Gate.DESIGN,
    "/hybrid": Gate.HYBRID,
    "/export": Gate.EXPORT,
    "/calibrate": Gate.CALIBRATION,
    "/verify": Gate.VERIFICATION,
}
# Addresses that change the service, and those that a separate management listener answers.
_MANAGING = re.compile(r"/models/(reload|[^/]+/(load|unload))")
_ON_MANAGEMENT = re.compile(r"/metrics|/models(/.*)?|/health/.*")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_NO_GZIP = re.compile(r"gzip\s*;\s*q=0(\.0*)?\s*(,|$)", re.IGNORECASE)

Times = dict[str, float | None]


@dataclass(frozen=True)
class Service:
    """The components of a running service, in `app.state.service`."""

    settings: Settings
    store: ModelStore
    engine: Engine
    shares: Mapping[Gate, WorkShare]
    admission: Admission
    metrics: Metrics


@dataclass(slots=True)
class Visit:
    """State of a request, in `request.state.visit`."""

    service: Service
    # Start of its handling (`perf_counter`, s).
    began: float
    # Its `X-Request-Id`.
    request_id: str
    # Value of `Accept`.
    accept: str = ""
    # Deadline (`perf_counter`, s).
    due: float = math.inf
    # Declared length of its body.
    n_body_bytes: int = 0
    # Time at which its body had arrived.
    received: float = 0.0
    decode_ms: float = 0.0
    # For the metrics, which count after the answer is written.
    design_method: str = ""
    times_ms: Times = field(default_factory=dict)
    designs: Sequence[tuple[ModelVersion, Design]] = ()

    def decoded(self) -> None:
        """Note that decoding has ended."""
        self.decode_ms = 1e3 * (perf_counter() - self.received)

    def spent_ms(self, engine_ms: Mapping[str, float], encoding_began: float) -> Times:
        """Compute all of `timings_ms`.

        Parameters
        ----------
        engine_ms
            Stages timed by the engine.
        encoding_began
            Start of encoding (`perf_counter`, s).
        """
        now = perf_counter()
        times: Times = {stage: engine_ms.get(stage) for stage in STAGES}
        times["decode"] = self.decode_ms + engine_ms.get("decode", 0.0)
        times["encode"] = 1e3 * (now - encoding_began)
        core = [engine_ms[stage] for stage in CORE_STAGES if stage in engine_ms]
        times["core"] = sum(core) if core else None
        times["total"] = 1e3 * (now - self.began)
        return times

    def response(
        self,
        content: bytes,
        times_ms: Times,
        media_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        designs: Sequence[tuple[ModelVersion, Design]] | None = None,
    ) -> Response:
        """Make a response with status 200 and `Server-Timing`.

        Parameters
        ----------
        content, times_ms, media_type, headers
            Parts of the response.
        designs
            Designs that it answers, if any; None also excludes its times from metrics.
        """
        if designs is not None:
            self.times_ms, self.designs = times_ms, designs
        timing = {"Server-Timing": _server_timing(times_ms)}
        return Response(content, headers=timing | dict(headers or {}), media_type=media_type)


def _server_timing(times_ms: Mapping[str, float | None]) -> str:
    """Format the `Server-Timing` header (ms), without stages that have no time."""
    return ", ".join([f"{name};dur={spent:.4f}" for name, spent in times_ms.items() if spent is not None])


async def disconnected(request: Request) -> None:
    """Wait until the client has disconnected; for use after the body was received."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def gate_of(method: str, path: str) -> Gate:
    """Return the gate of an address."""
    if method == "POST":
        if path in _BODY_GATES:
            return _BODY_GATES[path]
        if _MANAGING.fullmatch(path):
            return Gate.OPERATOR
    elif path == "/models" or path.startswith("/models/"):
        return Gate.CLIENT
    return Gate.OPEN


def is_managing(gate: Gate, path: str) -> bool:
    """Return whether an address is on the management listener alone, if there is one."""
    return gate is Gate.OPERATOR or path == "/metrics"


class Front:
    """Middleware around all routes."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = headers.get("x-request-id", "")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = uuid4().hex
        visit = Visit(self._service, perf_counter(), request_id, ",".join(headers.getlist("accept")))
        scope.setdefault("state", {})["visit"] = visit
        if scope["path"].startswith(PREFIX + "/"):
            scope["path"] = scope["path"][len(PREFIX) :]
        status, code = CLIENT_CLOSED_REQUEST, "ok"

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message["headers"],
                    (b"x-content-type-options", b"nosniff"),
                    (b"x-request-id", request_id.encode()),
                ]
            # uvicorn reports a closed connection only to the newest request; others get a RuntimeError when they send.
            try:
                await send(message)
            except RuntimeError as error:
                raise ClientDisconnect from error

        try:
            admitted = self._admit(scope, headers, visit.began)
            visit.due, visit.n_body_bytes = admitted.due, admitted.n_body_bytes
            try:
                await self._app(scope, receive, sending)
            finally:
                admitted.release()
        except (ClientDisconnect, ClientDisconnected):
            code = "client-gone"
        except Exception as error:
            problem = self._problem(error, scope, request_id)
            code = problem.code
            if status == CLIENT_CLOSED_REQUEST:  # no part of an answer was sent
                response = problem.response()
                response.headers["Server-Timing"] = _server_timing({"total": 1e3 * (perf_counter() - visit.began)})
                await response(scope, receive, sending)
        await asyncio.sleep(0)  # the server writes the answer before it is counted
        self._count(scope, visit, status, code, request_id)

    def _count(self, scope: Scope, visit: Visit, status: int, code: str, request_id: str) -> None:
        """Count a finished request, and log it if accesses are logged."""
        service, route = self._service, scope.get("route")
        service.metrics.count(getattr(route, "path", ""), visit.design_method, status, code)
        service.metrics.observe(visit.times_ms, visit.designs)
        spent_s, key = perf_counter() - visit.began, scope["state"].get(KEY_NAME, "")
        if key:
            service.metrics.count_key(key, status, spent_s)
        if service.settings.access_log:
            access = (scope["method"], scope["path"], status, code, 1e3 * spent_s, key or "-", request_id)
            named = dict(zip(_ACCESS, access, strict=True))  # in JSON
            access_logger.info("%s %r %d %s %.1f ms, key %r, request %s", *access, extra={"access": named})

    def _admit(self, scope: Scope, headers: Headers, began: float) -> Admitted:
        """Admit a request by its head, or raise HttpProblem or RefusedJob."""
        path, gate = scope["path"], gate_of(scope["method"], scope["path"])
        if self._service.settings.management_port is not None:
            from_management = MANAGEMENT in scope["state"]
            if is_managing(gate, path) != from_management and not (
                from_management and _ON_MANAGEMENT.fullmatch(path)
            ):
                raise unknown_address()
        return self._service.admission.admit(scope, headers, gate, began)

    def _problem(self, error: Exception, scope: Scope, request_id: str) -> HttpProblem:
        """Return the problem for the client. Unexpected errors are logged without details to the client."""
        problem = _routing_problem(error, scope) or to_problem(error)
        if problem is None:
            self._service.metrics.count_defect()
            problem = HttpProblem(
                "internal-error",
                f"the service failed unexpectedly; ask its operator, whose log has the cause under {request_id}",
            )
        if problem.status >= 500 and not isinstance(error, HttpProblem | RefusedJob | Interrupted):
            if isinstance(error, ModelStoreError):
                self._service.engine.models.n_loads["failed"] += 1
            logger.error("%s %s: %s (%s)", scope["method"], scope["path"], problem.code, request_id, exc_info=error)
        return problem


def _routing_problem(error: Exception, scope: Scope) -> HttpProblem | None:
    """Return Starlette's refusals: an unknown address, an unsupported method."""
    if isinstance(error, HTTPException):
        if error.status_code != 405:
            return unknown_address()
        routes = scope["app"].router.routes
        methods = [
            method
            for method in ("GET", "HEAD", "POST")
            if any(route.matches({**scope, "method": method})[0] is Match.FULL for route in routes)
        ]
        allowed = ", ".join(methods)
        detail = f"this address does not answer {scope['method']}; use {allowed}"
        return HttpProblem("method-not-allowed", detail, headers={"Allow": allowed})
    return None


class Compression(GZipMiddleware):
    """Compresses for clients that accept gzip; Starlette's does it for `gzip;q=0` too, which refuses it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, compressed or not."""
        is_refused = scope["type"] == "http" and _NO_GZIP.search(Headers(scope=scope).get("accept-encoding", ""))
        await (self.app if is_refused else super().__call__)(scope, receive, send)


def unknown_address() -> HttpProblem:
    """Return the problem `not-found`."""
    return HttpProblem("not-found", "there is nothing at this address; see /openapi.json")

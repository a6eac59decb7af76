"""What every request passes: admission by its head, one place that answers errors, and the count of outcomes."""

from __future__ import annotations

import asyncio
import logging
import re
from time import perf_counter
from uuid import uuid4

from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.admission.admission import MANAGEMENT, Gate
from service.admission.origin import refuse_foreign
from service.api import open_inference
from service.api.request_types import as_problem
from service.api.visit import Service, Visit, server_timing
from service.engine.types import ClientDisconnected, RefusedJob
from service.errors import HttpProblem, to_problem

logger = logging.getLogger(__name__)

# Status in the metrics of a request whose client has disconnected, as in nginx; no client receives it.
CLIENT_CLOSED_REQUEST = 499

# Lasting prefix of all addresses.
PREFIX = "/v1"

_BODY_GATES = {
    "/synthesize": Gate.DESIGN,
    "/refine": Gate.DESIGN,
    "/evaluate": Gate.DESIGN,
    "/export": Gate.EXPORT,
    "/calibrate": Gate.CALIBRATION,
    "/verify": Gate.VERIFICATION,
}
_MANAGING = re.compile(r"/models/(reload|[^/]+/(load|unload))")
_ON_MANAGEMENT = re.compile(r"/metrics|/models(/.*)?|/health/.*")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


def gate_of(method: str, path: str) -> Gate:
    """Who may use an address, and what is checked."""
    if method == "POST":
        if path in _BODY_GATES:
            return _BODY_GATES[path]
        if path.startswith("/v2/models/") and path.endswith("/infer"):
            return Gate.DESIGN
        if _MANAGING.fullmatch(path):
            return Gate.OPERATOR
    elif path == "/models" or path.startswith(("/models/", "/v2/models/")):
        return Gate.CLIENT
    return Gate.OPEN


class Front:
    """The middleware around all routes."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        service, headers = self._service, Headers(scope=scope)
        visit = Visit(service, perf_counter())
        scope.setdefault("state", {})["visit"] = visit
        if scope["path"].startswith(PREFIX + "/"):
            scope["path"] = scope["path"][len(PREFIX) :]
        request_id = headers.get("x-request-id", "")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = uuid4().hex
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
            try:
                await send(message)
            except RuntimeError as error:  # of a closed connection, of which uvicorn tells only the newest request
                raise ClientDisconnect from error

        try:
            self._admit(scope, headers, visit)
            with visit.admitted:
                await self._app(scope, receive, sending)
        except (ClientDisconnect, ClientDisconnected):
            code = "client-gone"
        except Exception as error:
            problem = self._problem(error, scope, request_id)
            code = problem.code
            if status == CLIENT_CLOSED_REQUEST:  # nothing of an answer has gone out
                response = problem_response(problem, scope["path"])
                response.headers["Server-Timing"] = server_timing({"total": 1e3 * (perf_counter() - visit.began)})
                await response(scope, receive, sending)
        await asyncio.sleep(0)  # the server writes the answer, then it is counted
        route = scope.get("route")
        service.metrics.count(getattr(route, "path", ""), visit.design_method, status, code)
        service.metrics.observe(visit.times_ms, visit.designs)

    def _admit(self, scope: Scope, headers: Headers, visit: Visit) -> None:
        """Admit a request by its head, or raise HttpProblem or Refused."""
        service, method, path = self._service, scope["method"], scope["path"]
        from_management = MANAGEMENT in scope["state"]
        gate = gate_of(method, path)
        if service.settings.management_port is not None:
            is_managing = gate is Gate.OPERATOR or path == "/metrics"
            if is_managing != from_management and not (from_management and _ON_MANAGEMENT.fullmatch(path)):
                raise unknown_address()
        if from_management or method == "POST":
            refuse_foreign(scope, headers, service.settings.allowed_hosts)
        if gate is not Gate.OPEN:
            visit.admitted = service.admission.admit(headers, gate, visit.began, from_management)

    def _problem(self, error: Exception, scope: Scope, request_id: str) -> HttpProblem:
        """The problem that the client receives. Unexpected errors are logged; the client learns no details."""
        problem = _routing_problem(error, scope) or to_problem(error)
        if problem is None:
            self._service.metrics.count_defect()
            problem = HttpProblem(
                "internal-error",
                f"the service failed unexpectedly; ask its operator, whose log has the cause under {request_id}",
            )
        if problem.status >= 500 and not isinstance(error, HttpProblem | RefusedJob):
            logger.error("%s %s: %s (%s)", scope["method"], scope["path"], problem.code, request_id, exc_info=error)
        return problem


def _routing_problem(error: Exception, scope: Scope) -> HttpProblem | None:
    """What FastAPI itself refuses: a body of another type, an unknown address, a method that it does not answer."""
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        return as_problem({**first, "loc": first["loc"][1:]})
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


def unknown_address() -> HttpProblem:
    """The problem `not-found`."""
    return HttpProblem("not-found", "there is nothing at this address; see /openapi.json")


def problem_response(problem: HttpProblem, path: str) -> Response:
    """A problem in the format of the address."""
    return open_inference.problem_response(problem) if open_inference.is_v2(path) else problem.response()

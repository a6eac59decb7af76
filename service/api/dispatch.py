"""How a request to a route is admitted, answered and counted."""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter

from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from service.admission.admission import MANAGEMENT
from service.admission.origin import refuse_foreign
from service.api import open_inference
from service.api.call import JSON, NO_SNIFFING, Call, Service, server_timing
from service.api.openapi import problem_responses
from service.api.routes import Route, is_v2
from service.engine.types import ClientDisconnected, Refused
from service.errors import HttpProblem, to_problem

logger = logging.getLogger(__name__)

CLIENT_CLOSED_REQUEST = 499
"""Status in the metrics of a request whose client has disconnected, as in nginx; no client receives it."""


class ServiceRoute(APIRoute):
    """Admits a request, calls its handler directly (without FastAPI's request handling), turns errors into problem
    documents and counts the outcome."""

    def __init__(self, service: Service, route: Route, method: str, is_documented: bool) -> None:
        """is_documented: whether the OpenAPI document includes the route; HEAD is never included."""
        super().__init__(
            route.path,
            route.handler,
            methods=[method],
            operation_id=route.operation_id,
            summary=route.summary,
            response_class=JSONResponse if JSON in route.answer["content"] else PlainTextResponse,
            responses={200: route.answer, **problem_responses(route.problems, route.is_v2)},
            openapi_extra=route.more,
            include_in_schema=is_documented and method != "HEAD",
        )
        self.service, self.route = service, route
        self.app = self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, route = self.service, self.route
        call = Call(scope, receive, send, service)
        try:
            from_management = is_management(scope)
            if not is_heard(route, service, from_management):
                raise unknown_address()
            if from_management or call.method == "POST":
                refuse_foreign(scope, call.headers, service.settings.allowed_hosts)
            with service.admission.admit(call.headers, route.gate, call.began, from_management) as call.admitted:
                response: Response = await route.handler(call)
            code = "ok"
        except (ClientDisconnect, ClientDisconnected):
            response, code = Response(status_code=CLIENT_CLOSED_REQUEST), "client-gone"  # to nobody
        except Exception as error:
            problem = as_problem(error, call, service)
            response, code = problem_response(problem, route.path), problem.code
            response.headers["Server-Timing"] = server_timing({"total": 1e3 * (perf_counter() - call.began)})
        response.headers.update(NO_SNIFFING)
        await response(scope, receive, send)
        await asyncio.sleep(0)  # the server writes the answer, then it is counted
        service.metrics.count(route.path, call.design_method, response.status_code, code)
        service.metrics.observe(call.times_ms, call.designs)


class DirectDispatch:
    """Passes requests to fixed addresses directly to their routes, which answer errors themselves; all others go
    through FastAPI's middleware and router, which take 0.2 ms."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._routes = {
            (method, route.path): route.app
            for route in app.router.routes
            if isinstance(route, ServiceRoute) and not route.param_convertors
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The ASGI interface."""
        found = self._routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        await (found or self._app)(scope, receive, send)


def is_management(scope: Scope) -> bool:
    """Whether a request was received by the management listener, which only the operator can reach."""
    return MANAGEMENT in scope.get("state", {})


def is_heard(route: Route, service: Service, from_management: bool) -> bool:
    """Whether the listener that received a request serves the route."""
    is_apart = service.settings.management_port is not None
    return not is_apart or route.heard_on in ("both", "management" if from_management else "clients")


def unknown_address() -> HttpProblem:
    """The problem `not-found`."""
    return HttpProblem("not-found", "there is nothing at this address; see /openapi.json")


def problem_response(problem: HttpProblem, path: str) -> Response:
    """A problem in the format of the route."""
    return open_inference.problem_response(problem) if is_v2(path) else problem.response()


def as_problem(error: Exception, request: Request, service: Service) -> HttpProblem:
    """The problem that the client receives. Unexpected errors are logged; the client learns no details."""
    problem = to_problem(error)
    if problem is None:
        service.metrics.count_defect()
        problem = HttpProblem(
            "internal-error", "the service failed unexpectedly; ask its operator, whose log has the cause"
        )
    if problem.status >= 500 and not isinstance(error, HttpProblem | Refused):
        logger.error("%s %s: %s", request.method, request.url.path, problem.code, exc_info=error)
    return problem

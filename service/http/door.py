"""The door: designs that cannot be made in time are refused before the application takes them up."""

from __future__ import annotations

from time import perf_counter

from starlette.requests import Request
from starlette.types import Scope

from service.admission.deadlines import deadline_s
from service.errors import Problem
from service.formats import answers
from service.http.context import Service, is_managed

DESIGNS = frozenset({"/synthesize", "/refine", "/evaluate"})


class Door:
    """Refuses under overload what `Engine.refuse_hopeless` would, for a fraction of what a request costs by then.

    Under three times the load that can be served two requests in three are refused, on the thread whose lock the
    designs need too: each tenth of a millisecond there keeps them waiting. Whatever else may be wrong with a
    request is for the application to say, and so is everything while nothing waits.
    """

    def __init__(self, service: Service) -> None:
        """service: whose engine, keys and metrics count."""
        self._service = service

    def refusal(self, scope: Scope) -> Problem | None:
        """Why the request of this head is refused, already counted; None: let it in."""
        service = self._service
        if not service.engine.is_busy or scope["path"] not in DESIGNS or scope["method"] != "POST":
            return None
        began, request = perf_counter(), Request(scope)
        if is_managed(request):
            return None
        try:
            service.keys.holder(request)
            due = began + deadline_s(request, service.settings.deadline_ms)
        except Problem:
            return None
        try:
            service.engine.refuse_hopeless(due)
        except Problem as problem:
            service.metrics.count(scope["path"], "", problem.status, problem.code)
            timing = answers.server_timing({"total": 1e3 * (perf_counter() - began)})
            problem.headers = {**(problem.headers or {}), "Server-Timing": timing}
            return problem
        return None

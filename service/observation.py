"""Middleware around all routes: a request's state, the count of its outcome, and the access log."""

from __future__ import annotations

import logging
import re
from time import perf_counter
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.state import RequestState
from service.metrics import Metrics
from service.queue.waiting import ClientGone

logger = logging.getLogger(__name__)
access_logger = logging.getLogger("service.access")
_ACCESS = ("method", "path", "status", "code", "ms", "key", "request")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")

# Status in the metrics of a request whose client has disconnected, as in nginx; no client receives it.
CLIENT_CLOSED_REQUEST = 499


class Observation:
    """Counts what all routes answer."""

    def __init__(self, app: ASGIApp, metrics: Metrics, has_access_log: bool) -> None:
        """Count in these metrics."""
        self._app, self._metrics, self._has_access_log = app, metrics, has_access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request (ASGI)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = Headers(scope=scope).get("x-request-id", "")
        if not _REQUEST_ID.fullmatch(request_id):
            request_id = uuid4().hex
        state = RequestState(perf_counter(), request_id)
        scope.setdefault("state", {})["request"] = state
        status = CLIENT_CLOSED_REQUEST

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
            except RuntimeError as error:
                if "closed" not in str(error):
                    raise
                status = CLIENT_CLOSED_REQUEST  # uvloop's, for the second of two requests whose client has gone
                raise ClientDisconnect from error

        try:
            await self._app(scope, receive, sending)
        except (ClientDisconnect, ClientGone):
            state.code = "client-gone"
        except Exception:
            status, state.code = 500, "internal-error"
            self._metrics.count_defect()
            logger.error("%s %s: internal error (%s)", scope["method"], scope["path"], request_id)
            raise
        finally:
            self._count(scope, state, status)

    def _count(self, scope: Scope, state: RequestState, status: int) -> None:
        """Count a finished request, and log it if accesses are logged."""
        endpoint = getattr(scope.get("route"), "path", "").removeprefix("/v1")
        self._metrics.count(endpoint, state.design_method, status, state.code)
        spent_s = perf_counter() - state.began
        if state.key:
            self._metrics.count_key(state.key, status, spent_s)
        if self._has_access_log:
            access = (scope["method"], scope["path"], status, state.code, 1e3 * spent_s, state.key or "-")
            named = dict(zip(_ACCESS, (*access, state.request_id), strict=True))  # in JSON
            access_logger.info(
                "%s %r %d %s %.1f ms, key %r, request %s", *access, state.request_id, extra={"access": named}
            )

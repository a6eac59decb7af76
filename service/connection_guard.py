"""Limits in front of uvicorn for a port without a proxy: size and time of heads, time of bodies, connections.

A `ConnectionGuard` stands between the socket and uvicorn's protocol. It buffers a request's head until it is
complete, so that an endless one takes no more memory than its limit, and passes uvicorn unambiguous framing: one
head with at most one Content-Length, then as many bytes. A design that cannot be made in time is refused by its
head, and its body is discarded. Chunked bodies (RFC 9112, 7.1) are not accepted, so `Transfer-Encoding` is refused
in the head, and endless trailers are never read.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

from starlette.datastructures import Headers
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.admission.admission import MANAGEMENT, Gate
from service.api.call import Service, server_timing
from service.api.routes import ROUTES
from service.engine.types import Refused
from service.errors import HttpProblem, to_problem
from service.settings import Settings

LINGER_S = 1.0
"""How long a refused connection stays open for reading: closing it while the client is still sending would reset
it, and the answer would be lost."""

MAX_PIPELINED = 16
"""Pipelined requests that may wait behind the one that is being answered."""

MAX_DROPPED_BYTES = 2**20
"""Longest body that is received to keep the connection of a refused request: dropping more takes longer than to
connect again."""

_REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    411: b"Length Required",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}
_FRAMING = re.compile(rb"\n(content-length|transfer-encoding|upgrade)[ \t]*:([^\r\n]*)", re.IGNORECASE)
_UPGRADE = re.compile(rb"\r\nupgrade[ \t]*:[^\r\n]*", re.IGNORECASE)
_MALFORMED = HttpProblem("malformed-request", "this is not a well-formed HTTP/1.1 request")

_logger = logging.getLogger("uvicorn.error.connection")
_logger.setLevel(logging.ERROR)  # malformed requests are counted, not logged: anybody could fill the disk


class _UvicornProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with a problem document in place of its own answer 400."""

    def __init__(self, guard: ConnectionGuard, **options: Any) -> None:
        super().__init__(**options)
        self.logger = _logger
        self._guard = guard

    def send_400_response(self, msg: str) -> None:
        self._guard.refuse(_MALFORMED)


class ConnectionGuard(asyncio.Protocol):
    """One connection.

    431 for a head of more than `max_header_bytes`; 408 for one that is not complete after `receive_timeout_s`; a
    connection that has sent nothing by then is closed, and so is one whose body is still incomplete LINGER_S later,
    even if it was answered. 411 for a chunked body, 400 for an ambiguous head. 503 beyond `max_connections`, except
    on the management listener. An offer to upgrade is ignored (RFC 9110, 7.8).
    """

    settings: Settings
    on_refusal: Callable[[HttpProblem], None]
    """Called with each problem of the connection itself."""
    refusal_for_load: Callable[[bytes], HttpProblem | None]
    """Given a head: the problem for which its request is refused at once, if any."""

    def __init__(self, **options: Any) -> None:
        """options: of uvicorn's protocol."""
        self._inner = _UvicornProtocol(self, **options)
        self._loop = self._inner.loop
        self._is_management = MANAGEMENT in self._inner.app_state
        self._head = b""
        self._body_left = 0
        self._is_dropping = False
        """Whether the body belongs to a request that was refused by its head."""
        self._unanswered: deque[RequestResponseCycle] = deque()
        self._is_refused = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._inner.connection_made(_LingeringTransport(transport, self))  # type: ignore[arg-type]
        limit = self.settings.max_connections
        if len(self._inner.connections) > limit and not self._is_management:
            self.refuse(HttpProblem("too-many-connections", f"{limit} connections are open; try again later"))
        else:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        for cycle in self._unanswered:  # uvicorn notifies only the newest request
            if not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def data_received(self, data: bytes) -> None:
        while data and not self._is_refused:
            if self._body_left:
                part, data = data[: self._body_left], data[self._body_left :]
                self._body_left -= len(part)
                if not self._is_dropping:
                    self._inner.data_received(part)
            else:
                data = self._take_head(data)
        if self._is_refused:
            return
        if not self._head and not self._body_left:
            self._stop_timer()
        elif self._timer is None and (self._body_left or not self._is_answering()):
            self._start_timer()

    def linger(self) -> bool:
        """Whether the connection is to be closed before the body is complete: then only our side is closed, and the
        rest of the body is discarded for as long as a body may take."""
        if self._body_left and not self._is_refused:
            self._is_refused = True
            if self._timer is None:
                self._start_timer()
            return True
        return False

    def _take_head(self, data: bytes) -> bytes:
        """Buffer a head and pass it on once it is complete; returns the bytes after it."""
        if not self._head:
            data = data.lstrip(b"\r\n")  # between two requests (RFC 9112, 2.2)
        begin = max(len(self._head) - 3, 0)
        data, self._head = self._head + data, b""
        if data and not data[:1].isalpha():  # no method begins so; TLS on this port does
            self.refuse(_MALFORMED)
            return b""
        end, limit = data.find(b"\r\n\r\n", begin) + 4, self.settings.max_header_bytes
        if end == 3 or end > limit:
            self._head = data
            if len(data) > limit:
                self.refuse(HttpProblem("headers-too-large", f"the request's head is longer than {limit} bytes"))
            return b""
        head, rest = data[:end], data[end:]
        self._stop_timer()
        while self._unanswered and self._unanswered[0].response_complete:
            self._unanswered.popleft()
        try:
            if len(self._unanswered) > MAX_PIPELINED:
                raise HttpProblem(
                    "overloaded", f"{MAX_PIPELINED} requests wait for their answers; wait for those first"
                )
            head, self._body_left = _framed(head)
        except HttpProblem as problem:
            self.refuse(problem)
            return b""
        self._is_dropping = self._is_refused_for_load(head)
        if not self._is_dropping:
            self._inner.data_received(head)
            if not self._is_refused:
                self._unanswered.append(self._inner.cycle)
        return rest

    def _is_refused_for_load(self, head: bytes) -> bool:
        """Whether a request was answered by its head; never while earlier ones wait for their answers."""
        if self._is_management or self._is_answering() or (problem := self.refusal_for_load(head)) is None:
            return False
        if self._body_left > MAX_DROPPED_BYTES:
            self._answer_and_close(problem)
        else:
            self._answer(problem, self._inner.server_state.default_headers)
            self._inner.on_response_complete()  # uvicorn's keep-alive timer starts
        return True

    def _is_answering(self) -> bool:
        return any(not cycle.response_complete for cycle in self._unanswered)

    def _start_timer(self) -> None:
        self._timer = self._loop.call_later(self.settings.receive_timeout_s, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        self._timer = None
        if self._body_left:
            if self._inner.flow.read_paused and not self._is_refused:  # reading is paused on our side
                self._start_timer()
            else:  # the application answers 408, if it has not answered before
                self._loop.call_later(LINGER_S, self._transport.close)
        elif self._head and not self._is_answering():
            limit_s = self.settings.receive_timeout_s
            self.refuse(HttpProblem("too-slow", f"the request's head was not complete after {limit_s:g} s"))
        elif not self._is_answering():
            self._transport.close()

    def refuse(self, problem: HttpProblem) -> None:
        """Answer instead of the application and close; further bytes are discarded."""
        if self._is_refused or self._transport.is_closing():
            return
        self._is_refused = True
        self._stop_timer()
        self._head = b""
        self.on_refusal(problem)
        if self._is_answering():  # the pending answer ends the connection
            self._unanswered[-1].keep_alive = False
            return
        self._answer_and_close(problem)

    def _answer_and_close(self, problem: HttpProblem) -> None:
        self._is_refused = True
        self._answer(problem, [(b"connection", b"close")])
        self._transport.write_eof()
        self._loop.call_later(LINGER_S, self._transport.close)

    def _answer(self, problem: HttpProblem, headers: list[tuple[bytes, bytes]]) -> None:
        response = problem.response()
        lines = [b"HTTP/1.1 %d %s" % (problem.status, _REASONS[problem.status])]
        lines += [name + b": " + value for name, value in (*headers, *response.raw_headers)]
        self._transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + bytes(response.body))


class _LingeringTransport:
    """A transport whose `close` lets a client that is still sending read its answer."""

    def __init__(self, transport: asyncio.Transport, guard: ConnectionGuard) -> None:
        self._transport = transport
        self._guard = guard
        self.write = transport.write
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def close(self) -> None:
        if self._transport.is_closing():
            return
        if self._guard.linger():
            self._transport.write_eof()
        else:
            self._transport.close()


def _framed(head: bytes) -> tuple[bytes, int]:
    """The head for uvicorn, and the length of its body; HttpProblem if the head is ambiguous.

    Each line ends in CR LF, none continues another, and there is at most one Content-Length: a proxy in front must
    find the same beginning of the next request.
    """
    n_lines = head.count(b"\n")
    if n_lines != head.count(b"\r\n") or n_lines != head.count(b"\r") or b"\n " in head or b"\n\t" in head:
        raise _MALFORMED
    if head.startswith(b"CONNECT "):  # asks for a tunnel
        raise _MALFORMED
    framing: dict[bytes, list[bytes]] = {}
    for name, value in _FRAMING.findall(head):
        framing.setdefault(name.lower(), []).append(value.strip(b" \t"))
    lengths, codings = framing.get(b"content-length", []), framing.get(b"transfer-encoding", [])
    if codings:
        if lengths or len(codings) > 1 or codings[0].lower() != b"chunked":
            raise _MALFORMED
        raise HttpProblem(
            "length-required", "chunked bodies are not supported; declare the length in Content-Length"
        )
    if b"upgrade" in framing:
        head = _UPGRADE.sub(b"", head)
    if not lengths:
        return head, 0
    if len(lengths) > 1 or not lengths[0].isdigit() or len(lengths[0]) > 18:
        raise _MALFORMED
    return head, int(lengths[0])


class LoadShedder:
    """Refuses designs by their heads while the engine has too much to do, in less than half the time that uvicorn
    and the routes would take.

    All other errors of a request are left to the application.
    """

    def __init__(self, service: Service) -> None:
        """service: its engine decides, its admission checks keys and deadlines."""
        self._service = service
        self._lines = {
            f"{route.method} {route.path}".encode(): route.path for route in ROUTES if route.gate is Gate.DESIGN
        }

    def __call__(self, head: bytes) -> HttpProblem | None:
        """Why the request with this head is refused for load, if it is."""
        began, service = perf_counter(), self._service
        if service.engine.is_idle or service.engine.readiness.draining:
            return None
        first, *lines = head[:-4].split(b"\r\n")
        target, _, version = first.rpartition(b" ")
        path = self._lines.get(target.partition(b"?")[0])
        if path is None or version != b"HTTP/1.1":
            return None
        fields = [line.partition(b":") for line in lines]
        headers = [(name.lower(), value.strip(b" \t")) for name, _, value in fields]
        if any(name in (b"expect", b"connection") for name, _ in headers):
            return None
        try:
            service.admission.reject_if_overloaded(Headers(raw=headers), began)
        except HttpProblem:
            return None
        except Refused as refused:
            problem = to_problem(refused)
        else:
            return None
        assert problem is not None
        service.metrics.count(path, "", problem.status, problem.code)
        timing = {"Server-Timing": server_timing({"total": 1e3 * (perf_counter() - began)})}
        problem.headers = {**(problem.headers or {}), **timing}
        return problem


def guarded(
    settings: Settings,
    on_refusal: Callable[[HttpProblem], None],
    refusal_for_load: Callable[[bytes], HttpProblem | None],
) -> type[ConnectionGuard]:
    """The class with these settings; on_refusal, refusal_for_load: see ConnectionGuard."""
    members = {
        "settings": settings,
        "on_refusal": staticmethod(on_refusal),
        "refusal_for_load": staticmethod(refusal_for_load),
    }
    return type("ConnectionGuard", (ConnectionGuard,), members)

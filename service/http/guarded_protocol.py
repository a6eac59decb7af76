"""The protocol of each connection: uvicorn's on httptools, guarded against what its fast parser lets happen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.errors import Problem
from service.http.context import MANAGEMENT
from service.settings import Settings

LINGER_S = 1.0
"""How long a refused connection is read on."""

_REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}

MAX_PIPELINED = 16
"""Requests that may wait behind the one that is answered; they were sent without waiting for its answer."""

HOP_BY_HOP = (b"connection", b"upgrade", b"http2-settings")
"""Headers of an offer to speak another protocol."""


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's httptools protocol, with what it does not guard against.

    431 for a head of more than `max_header_bytes`; heads are counted while they arrive, so that an endless one
    costs no more memory than the limit and a read or two. 408 for a head that is not complete after
    `receive_timeout_s`, however slowly it drips; a connection that has sent nothing by then is closed without a
    word, and so is one whose body still comes then, though it was answered. 503 beyond `max_connections`, which
    the operator's listener is not bound by. What the parser refuses is answered as a problem too. An offer to
    upgrade is passed over (RFC 9110, 7.8), where the parser alone would take the body for another protocol's, and
    then for the next request. Where an answer ends the connection before its request has come whole, only our side
    of it ends; what still comes is dropped for as long as a body may take.
    """

    settings: Settings
    refused: Callable[[Problem], None]
    """Told of each problem."""
    refusal: Callable[[Any], Problem | None]
    """Why the application should not be asked; None: it should."""

    _head_bytes = 0
    _in_head = True
    _is_receiving = True
    _is_refused = False
    _is_upgrade = False
    _has_ended_one = False
    _answering: RequestResponseCycle | None = None
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.settings.max_connections and MANAGEMENT not in self.app_state:
            detail = f"found {self.settings.max_connections} connections open, expected fewer"
            self._refuse(Problem("too-many-connections", detail))
        else:
            self._time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timing()
        super().connection_lost(exc)
        # uvicorn tells the newest request alone, which may still wait for the one that is answered.
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True
            self._answering.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._has_ended_one = False
        self._unset_keepalive_if_required()
        self._parse(data)
        # A read that ends outside a head may hold a body, and is not counted. One that ends inside is: whole, but
        # if a request before it ended there too it does not decide.
        if self._in_head:
            limit = self.settings.max_header_bytes
            self._count(min(len(data), limit) if self._has_ended_one else self._head_bytes + len(data))
        # Most requests come in one read, and are never timed.
        if not self._is_receiving and not self._is_stray():
            self._stop_timing()
        elif self._timer is None:
            self._time()

    def _parse(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._pass_over_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self.send_400_response("")

    def _pass_over_upgrade(self, rest: bytes) -> None:
        """Parse the head that has just been parsed, and what follows it, as if no upgrade had been offered."""
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":  # whose peer awaits a tunnel, whatever its headers say
            self.send_400_response("")
            return
        lines = [method + b" " + self.url + b" HTTP/" + version]
        lines += [name + b": " + value for name, value in self.headers if name not in HOP_BY_HOP]
        if any(name == b"connection" and b"close" in value.lower() for name, value in self.headers):
            lines.append(b"connection: close")
        self.parser = httptools.HttpRequestParser(self)
        self._parse(b"\r\n".join(lines) + b"\r\n\r\n" + rest)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        transport: Any = self.transport
        ending: Any = SimpleNamespace(write=transport.write, is_closing=transport.is_closing, close=self._end)
        cycle.transport = ending
        problem = None if self.flow.write_paused else self.refusal(cycle.scope)
        if problem is None:
            super()._start_asgi_task(cycle, app)
            return
        # Nothing in it waits while writing is not paused, so that it needs no task of its own.
        response: Any = problem.response()
        answering = response(cycle.scope, cycle.receive, cycle.send)
        with suppress(StopIteration):
            answering.send(None)

    def _is_stray(self) -> bool:
        """Line ends between two requests begin none, but end uvicorn's wait for the next one."""
        return (self.cycle is None or self.cycle.response_complete) and self.timeout_keep_alive_task is None

    def on_message_begin(self) -> None:
        self._head_bytes, self._in_head, self._is_receiving = 0, True, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._is_upgrade = self.parser.should_upgrade()
        if self._is_upgrade:
            return
        if len(self.pipeline) >= MAX_PIPELINED:
            detail = f"found {MAX_PIPELINED} requests sent without waiting for an answer, expected fewer"
            self._refuse(Problem("overloaded", detail))
        self._count(len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers))
        if self._is_refused:
            raise ConnectionAbortedError  # ends the parsing, so that the application sees nothing of it
        self._stop_timing()  # the body has a time of its own
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        if self._is_upgrade:
            return
        self._is_receiving, self._has_ended_one = False, True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem("malformed-request", "found what is not HTTP, expected an HTTP/1.1 request"))

    def _count(self, head_bytes: int) -> None:
        self._head_bytes = head_bytes
        if head_bytes > self.settings.max_header_bytes:
            detail = (
                f"found more than {self.settings.max_header_bytes} bytes of request head, expected at most that"
            )
            self._refuse(Problem("headers-too-large", detail))

    def _time(self) -> None:
        self._timer = self.loop.call_later(self.settings.receive_timeout_s, self._on_time_out)

    def _stop_timing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time_out(self) -> None:
        self._timer = None
        if self.flow.read_paused:  # it is us who do not read
            self._time()
        elif self._in_head and self._head_bytes and not self._is_refused:
            detail = f"found no whole head after {self.settings.receive_timeout_s:g} s, expected it within that"
            self._refuse(Problem("too-slow", detail))
        elif self._in_head:
            self.transport.close()
        else:  # the application answers 408, if it has not answered before
            self.loop.call_later(LINGER_S, self.transport.close)

    def _end(self) -> None:
        """What an answer that ends the connection does instead of closing it: see `_refuse`. Of a body that still
        comes, the time that it was given to come in goes on."""
        if self._is_receiving and not self.transport.is_closing():
            self._is_refused = True
            self.pipeline.clear()
            self.transport.write_eof()
        else:
            self.transport.close()

    def _refuse(self, problem: Problem) -> None:
        """Answer in the application's place, then read on for a moment without looking: to close on a client
        that is still sending would reset the connection, and the answer would be lost with it."""
        if self._is_refused or self.transport.is_closing():
            return
        self._is_refused = True
        self._stop_timing()
        self.refused(problem)
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False  # the request before has an answer to come, which ends the connection
            return
        response = problem.response()
        lines = [b"HTTP/1.1 %d %s" % (problem.status, _REASONS[problem.status]), b"connection: close"]
        lines += [name + b": " + value for name, value in response.raw_headers]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + bytes(response.body))
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)


def guarded(
    settings: Settings, refused: Callable[[Problem], None], refusal: Callable[[Any], Problem | None]
) -> type[GuardedProtocol]:
    """The protocol under these settings; refused, refusal: as there."""
    told = {"refused": staticmethod(refused), "refusal": staticmethod(refusal)}
    return type("GuardedProtocol", (GuardedProtocol,), {"settings": settings, **told})

"""The HTTP server: uvicorn, guarded against what its fast parser lets happen, and with the operator's listener."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.errors import Problem
from service.http.context import MANAGEMENT, Service
from service.settings import Settings

logger = logging.getLogger(__name__)

LINGER_S = 1.0
"""How long a refused connection is read on."""

_REASONS = {
    400: b"Bad Request",
    408: b"Request Timeout",
    431: b"Request Header Fields Too Large",
    503: b"Service Unavailable",
}

SPARE_FILES = 256
"""Descriptors for what is not a connection: models, processes, logs."""


def guarded(settings: Settings, refused: Callable[[Problem], None]) -> type[HttpToolsProtocol]:
    """uvicorn's httptools protocol, with what it does not guard against.

    431 for a head of more than `max_header_bytes`; heads are counted while they arrive, so that an endless one
    costs no more memory than the limit and a read. 408 for a head that is not complete after `receive_timeout_s`,
    however slowly it drips; a connection that has sent nothing by then is closed without a word, and so is one
    whose body still comes then, though it was answered. 503 beyond `max_connections`. What the parser refuses is
    answered as a problem too. refused: told of each problem.
    """

    class GuardedProtocol(HttpToolsProtocol):
        _head_bytes = 0
        _in_head = True
        _is_receiving = True
        _is_refused = False
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            if len(self.connections) > settings.max_connections:
                detail = f"found {settings.max_connections} connections open, expected fewer"
                self._refuse(Problem("too-many-connections", detail))
            else:
                self._time()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timing()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._is_refused:
                return
            super().data_received(data)
            # A read that ends outside a head may hold a body, and is not counted; one that ends inside is, whole.
            if self._in_head:
                self._count(self._head_bytes + len(data))
            # Most requests come in one read, and are never timed.
            if not self._is_receiving and not self._is_stray():
                self._stop_timing()
            elif self._timer is None:
                self._time()

        def _is_stray(self) -> bool:
            """Line ends between two requests begin none, but end uvicorn's wait for the next one."""
            return (self.cycle is None or self.cycle.response_complete) and self.timeout_keep_alive_task is None

        def on_message_begin(self) -> None:
            self._head_bytes, self._in_head, self._is_receiving = 0, True, True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._count(len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers))
            if self._is_refused:
                raise ConnectionAbortedError  # ends the parsing, so that the application sees nothing of it
            self._stop_timing()  # the body has a time of its own
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._is_receiving = False
            super().on_message_complete()

        def send_400_response(self, msg: str) -> None:
            self._refuse(Problem("malformed-request", "found what is not HTTP, expected an HTTP/1.1 request"))

        def _count(self, head_bytes: int) -> None:
            self._head_bytes = head_bytes
            if head_bytes > settings.max_header_bytes:
                detail = f"found more than {settings.max_header_bytes} bytes of request head, expected at most that"
                self._refuse(Problem("headers-too-large", detail))

        def _time(self) -> None:
            self._timer = self.loop.call_later(settings.receive_timeout_s, self._on_time_out)

        def _stop_timing(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _on_time_out(self) -> None:
            self._timer = None
            if self.flow.read_paused:  # it is us who do not read
                self._time()
            elif self._in_head and self._head_bytes:
                detail = f"found no whole head after {settings.receive_timeout_s:g} s, expected it within that"
                self._refuse(Problem("too-slow", detail))
            elif self._in_head:
                self.transport.close()
            else:  # the application answers 408, if it has not answered before
                self.loop.call_later(LINGER_S, self.transport.close)

        def _refuse(self, problem: Problem) -> None:
            """Answer in the application's place, then read on for a moment without looking: to close on a client
            that is still sending would reset the connection, and the answer would be lost with it."""
            if self._is_refused or self.transport.is_closing():
                return
            self._is_refused = True
            self._stop_timing()
            refused(problem)
            if self.cycle is not None and not self.cycle.response_complete:
                self.cycle.keep_alive = False  # the request before has an answer to come, which ends the connection
                return
            response = problem.response()
            lines = [b"HTTP/1.1 %d %s" % (problem.status, _REASONS[problem.status]), b"connection: close"]
            lines += [name + b": " + value for name, value in response.raw_headers]
            self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + bytes(response.body))
            self.transport.write_eof()
            self.loop.call_later(LINGER_S, self.transport.close)

    return GuardedProtocol


class OperatedServer(uvicorn.Server):
    """uvicorn's server with the operator's ends: SIGHUP for "look the models up again", a listener apart, a drain.

    Told to stop, it is not ready at once. For `drain_s` it goes on answering, so that balancers notice, and closes
    each connection with its answer, so that none is idle and reused when the end comes; then it finishes what it
    has taken, closes and exits. Told twice, it does not wait.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        """service: of the application that is served."""
        super().__init__(config)
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settings = service.settings
        self._reloading: asyncio.Task[list[str]] | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Before anything else: until a signal is handled, its default action ends the process."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        await super().startup(sockets)
        self._keeping = asyncio.create_task(self.keep_what_is_here())
        if self._settings.management_port is not None:
            await self._listen_for_management(self._settings.management_host, self._settings.management_port)

    async def keep_what_is_here(self) -> None:
        """Once the default model is in memory, spare the garbage collector what stays: modules and models, hundreds
        of thousands of objects that it would look through again and again, with all threads standing still."""
        await self._service.engine.started()
        gc.collect()
        gc.freeze()

    async def _listen_for_management(self, host: str, port: int) -> None:
        """A second listener of the same server, whose requests carry a mark that no client can set."""
        state = self.lifespan.state | {MANAGEMENT: True}

        def protocol() -> asyncio.Protocol:
            kind: Any = self.config.http_protocol_class
            made: asyncio.Protocol = kind(config=self.config, server_state=self.server_state, app_state=state)
            return made

        try:
            listener = await asyncio.get_running_loop().create_server(protocol, host, port)
        except OSError as error:
            logger.error("Management listener: %s", error)
            await self.lifespan.shutdown()
            sys.exit(STARTUP_FAILURE)
        self.servers.append(listener)
        logger.info("Management on http://%s:%d", *listener.sockets[0].getsockname()[:2])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """In a signal's handler: the first one starts the drain, whatever comes after it ends it."""
        readiness, drain_s = self._service.engine.readiness, self._service.settings.drain_s
        first = not readiness.draining
        readiness.drain()
        if first and drain_s and self.started and self._loop is not None:
            self._loop.call_soon_threadsafe(self._drain, sig, drain_s)
        else:
            super().handle_exit(sig, frame)

    def _drain(self, sig: int, drain_s: float) -> None:
        logger.info("Told to stop: not ready, and answering for %g s more", drain_s)
        closing = (b"connection", b"close")
        self.config.encoded_headers.append(closing)  # from which the default headers are renewed each second
        self.server_state.default_headers = [*self.server_state.default_headers, closing]
        assert self._loop is not None
        self._loop.call_later(drain_s, super().handle_exit, sig, None)

    def _reload(self) -> None:
        logger.info("SIGHUP: looking the models up again")
        self._reloading = asyncio.create_task(self._service.engine.residency.reload())


def server(app: FastAPI, settings: Settings) -> uvicorn.Server:
    """A server for the application: uvloop and httptools by name, so that a machine without them says so; no access
    log, no WebSockets, requests under way finished at the end."""
    service: Service = app.state.service
    _allow_files(settings.max_connections + SPARE_FILES)

    def refused(problem: Problem) -> None:
        service.metrics.count("", "", problem.status, problem.code)

    options: dict[str, Any] = {"http": guarded(settings, refused), "loop": "uvloop"}
    options |= {"ws": "none", "lifespan": "on"}
    return OperatedServer(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            uds=None if settings.uds is None else str(settings.uds),
            log_level=settings.log_level,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nothing here depends on who asks, and nobody may say so in another's name
            timeout_keep_alive=settings.keep_alive_s,
            timeout_graceful_shutdown=settings.shutdown_s,
            **options,
        ),
        service,
    )


def _allow_files(wanted: int) -> None:
    """Raise this process's own limit on open files, as far as it may, where its connections need more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        logger.warning("Only %d files may be open, too few for the connections allowed", allowed)

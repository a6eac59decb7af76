"""The HTTP server: uvicorn, with a limit on request heads that its fast parser does not have."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.endpoints import Service
from service.errors import Problem
from service.settings import Settings

logger = logging.getLogger(__name__)

LINGER_S = 1.0
"""How long a refused connection is read on."""

_REASONS = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}


def head_limited(max_header_bytes: int) -> type[HttpToolsProtocol]:
    """uvicorn's httptools protocol, which answers 431 to a head of more than `max_header_bytes` and closes.

    Heads are counted while they arrive, so that an endless one costs no more memory than the limit and a read.
    What the parser refuses is answered as a problem too.
    """

    class HeadLimitedProtocol(HttpToolsProtocol):
        _head_bytes = 0
        _in_head = True
        _refused = False

        def data_received(self, data: bytes) -> None:
            if self._refused:
                return
            super().data_received(data)
            # A read that ends outside a head may hold a body, and is not counted; one that ends inside is, whole.
            if self._in_head:
                self._count(self._head_bytes + len(data))

        def on_message_begin(self) -> None:
            self._head_bytes, self._in_head = 0, True
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._count(len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers))
            if self._refused:
                raise ConnectionAbortedError  # ends the parsing, so that the application sees nothing of it
            super().on_headers_complete()

        def send_400_response(self, msg: str) -> None:
            self._refuse(Problem("malformed-request", "found what is not HTTP, expected an HTTP/1.1 request"))

        def _count(self, head_bytes: int) -> None:
            self._head_bytes = head_bytes
            if head_bytes > max_header_bytes:
                detail = f"found more than {max_header_bytes} bytes of request head, expected at most that"
                self._refuse(Problem("headers-too-large", detail))

        def _refuse(self, problem: Problem) -> None:
            """Answer in the application's place, then read on for a moment without looking: to close on a client
            that is still sending would reset the connection, and the answer would be lost with it."""
            if self._refused or self.transport.is_closing():
                return
            self._refused = True
            response = problem.response()
            lines = [b"HTTP/1.1 %d %s" % (problem.status, _REASONS[problem.status]), b"connection: close"]
            lines += [name + b": " + value for name, value in response.raw_headers]
            self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + bytes(response.body))
            self.transport.write_eof()
            self.loop.call_later(LINGER_S, self.transport.close)

    return HeadLimitedProtocol


class SignalledServer(uvicorn.Server):
    """uvicorn's server, which also takes SIGHUP for "look the models up again", and drains before it stops.

    Told to stop, it is not ready at once. For `drain_s` it goes on answering, so that balancers notice, and closes
    each connection with its answer, so that none is idle and reused when the end comes; then it finishes what it
    has taken, closes and exits. Told twice, it does not wait.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        """service: of the application that is served."""
        super().__init__(config)
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reloading: asyncio.Task[list[str]] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Before anything else: until a signal is handled, its default action ends the process."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        await super().startup(sockets)

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
    options: dict[str, Any] = {"http": head_limited(settings.max_header_bytes), "loop": "uvloop"}
    options |= {"ws": "none", "lifespan": "on"}
    return SignalledServer(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            uds=None if settings.uds is None else str(settings.uds),
            log_level=settings.log_level,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=settings.keep_alive_s,
            timeout_graceful_shutdown=settings.shutdown_s,
            **options,
        ),
        app.state.service,
    )

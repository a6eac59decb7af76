"""HTTP server: uvicorn with a management listener, reload and drain."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
from copy import copy
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.config import STARTUP_FAILURE
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.admission.admission import MANAGEMENT
from service.api.front import Service
from service.settings import Settings

logger = logging.getLogger(__name__)

# File descriptors for models, processes and logs, in addition to connections.
SPARE_FILES = 256


class Connection(HttpToolsProtocol):
    """uvicorn's connection, which also ends if a head is not complete in time, and counts refusals at the limit.

    A client that closes its half after a whole request gets the answer within the default deadline of designs. It
    cannot be told from one that has gone, and then counts as gone.
    """

    def __init__(self, service: Service, **parts: Any) -> None:
        """Take the time limit from the service; `parts` are uvicorn's."""
        super().__init__(**parts)
        self._service = service
        self._head_timer: asyncio.TimerHandle | None = None
        self._half_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first head: uvicorn sets a timer only after an answer."""
        super().connection_made(transport)
        self._await_head()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Close, but after an answer that is due."""
        if self.cycle is None or self.cycle.response_complete or self.cycle.more_body:
            return False
        self.shutdown()
        if self._half_timer is None:
            within_s = self._service.settings.deadline_ms / 1e3
            self._half_timer = self.loop.call_later(within_s, self.transport.close)
        return True

    def on_message_begin(self) -> None:
        """Wait for the end of a head: uvicorn stops its timer at the first byte."""
        super().on_message_begin()
        self._await_head()

    def on_headers_complete(self) -> None:
        """Wait no more."""
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_waiting()
        if self._half_timer is not None:
            self._half_timer.cancel()
        super().connection_lost(exc)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        if app is service_unavailable:
            self._service.metrics.count("", "", 503, "overloaded")
        super()._start_asgi_task(cycle, app)

    def _await_head(self) -> None:
        self._stop_waiting()
        within_s = self._service.settings.receive_timeout_s
        self._head_timer = self.loop.call_later(within_s, self.shutdown)  # after an answer that is still due

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class OperatedServer(uvicorn.Server):
    """uvicorn's server with SIGHUP to reload models, a separate management listener, and a drain.

    After SIGTERM it reports not ready at once, but answers for another `drain_s`, so that load balancers notice. It
    closes connections after their answers, so that none is reused at the end; then it finishes running requests and
    exits. After a second signal it does not wait.
    """

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        """Serve the application of this service."""
        super().__init__(config)
        self._service = service
        self._loop: asyncio.AbstractEventLoop | None = None
        self._settings = service.settings
        self._reloading: asyncio.Task[list[str]] | None = None
        self._freezing: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Install signal handlers first: until then a signal's default action ends the process."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGHUP, self._reload)
        if self._settings.uds is not None:
            try:
                sockets = [_unix_socket(self._settings.uds)]
            except OSError as error:
                logger.error("Unix socket %s: %s", self._settings.uds, error.strerror or error)
                sys.exit(STARTUP_FAILURE)
            logger.info("Listening on %s", self._settings.uds)
        await super().startup(sockets)
        self._freezing = asyncio.create_task(self.freeze_resident_objects())
        if self._settings.management_port is not None:
            await self._listen_for_management(self._settings.management_host, self._settings.management_port)

    async def freeze_resident_objects(self) -> None:
        """Exclude modules and the loaded default model from garbage collection.

        It would visit these hundreds of thousands of objects repeatedly while all threads wait.
        """
        await self._service.engine.started()
        gc.collect()
        gc.freeze()

    async def _listen_for_management(self, host: str, port: int) -> None:
        """Add a second listener to the server, whose requests carry a mark that no client can set."""
        state = self.lifespan.state | {MANAGEMENT: True}
        config = copy(self.config)
        config.limit_concurrency = None  # clients' connections do not block the operator

        def protocol() -> asyncio.Protocol:
            kind: Any = config.http_protocol_class
            made: asyncio.Protocol = kind(config=config, server_state=self.server_state, app_state=state)
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
        """Handle signals: the first one starts the drain, the next one ends it."""
        engine, drain_s = self._service.engine, self._service.settings.drain_s
        first = not engine.readiness.draining
        engine.drain()
        if first and drain_s and self.started and self._loop is not None:
            self._loop.call_soon_threadsafe(self._drain, sig, drain_s)
        else:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down as uvicorn, then remove the Unix socket."""
        await super().shutdown(sockets)
        if self._settings.uds is not None:
            self._settings.uds.unlink(missing_ok=True)

    def _drain(self, sig: int, drain_s: float) -> None:
        logger.info("Shutting down: not ready, answering for another %g s", drain_s)
        closing = (b"connection", b"close")
        self.config.encoded_headers.append(closing)  # the default headers are rebuilt from these every second
        self.server_state.default_headers = [*self.server_state.default_headers, closing]
        assert self._loop is not None
        self._loop.call_later(drain_s, super().handle_exit, sig, None)

    def _reload(self) -> None:
        logger.info("SIGHUP: resolving all models again")
        self._reloading = asyncio.create_task(self._service.engine.models.reload())


def _unix_socket(path: Path) -> socket.socket:
    """Bind a Unix socket for its owner and group, in place of one without a listener; OSError says why not."""
    if not path.parent.is_dir():
        raise OSError("its folder does not exist; create it")
    with socket.socket(socket.AF_UNIX) as asking:
        if asking.connect_ex(str(path)) == 0:
            raise OSError("another service answers there; stop it or choose another path")
    if path.is_socket():
        path.unlink()
    listening, mask = socket.socket(socket.AF_UNIX), os.umask(0o117)
    try:
        listening.bind(str(path))
    finally:
        os.umask(mask)
    return listening


def server(app: Starlette, settings: Settings) -> uvicorn.Server:
    """Create a server for the application: uvloop and httptools, without access log and WebSockets.

    Running requests are finished at the end.
    """
    service: Service = app.state.service
    _allow_files(settings.max_connections + SPARE_FILES)
    return OperatedServer(
        uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            http=partial(Connection, service),  # type: ignore[arg-type]  # uvicorn only calls it
            loop="uvloop",
            ws="none",
            lifespan="on",
            limit_concurrency=settings.max_connections + 1,  # uvicorn refuses at its limit, not beyond it
            log_level=settings.log_level,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nothing here depends on the client's address
            timeout_keep_alive=settings.keep_alive_s,
            timeout_graceful_shutdown=settings.shutdown_s,
        ),
        service,
    )


def _allow_files(wanted: int) -> None:
    """Raise the process's limit on open files for its connections, as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        logger.warning(
            "Only %d files may be open, too few for max-connections; raise the limit (ulimit -n)", allowed
        )

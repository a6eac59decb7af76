"""HTTP server: uvicorn with reload and drain."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import resource
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE

from service.api.state import Service
from service.settings import MAX_DEADLINE_MS, Settings

logger = logging.getLogger(__name__)

# Seconds until idle connections close.
KEEP_ALIVE_S = 30

# File descriptors for models, processes and logs, in addition to connections.
SPARE_FILES = 256


class OperatedServer(uvicorn.Server):
    """uvicorn's server with SIGHUP to reload models, and a drain.

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

    async def freeze_resident_objects(self) -> None:
        """Exclude modules and the loaded default model from garbage collection.

        It would visit these hundreds of thousands of objects repeatedly while all threads wait.
        """
        await self._service.engine.started()
        gc.collect()
        gc.freeze()

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


def server(app: FastAPI, settings: Settings) -> uvicorn.Server:
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
            http="httptools",
            loop="uvloop",
            ws="none",
            lifespan="on",
            limit_concurrency=settings.max_connections + 1,  # uvicorn refuses at its limit, not beyond it
            log_level=settings.log_level,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # nothing here depends on the client's address
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=math.ceil(MAX_DEADLINE_MS / 1e3),
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

"""The service in this process, for the command and the library."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

import httpx

Value = TypeVar("Value")


class LocalTransport(httpx.BaseTransport):
    """Requests to an application in this process, whose event loop runs in a thread until it is closed."""

    def __init__(self, store: str | None = None) -> None:
        """Start the application with the checkpoints of a store besides the bundled ones."""
        # Late import, so that help and argument errors are immediate.
        from service.app import create_app
        from service.settings import Settings

        logging.getLogger("service").setLevel(logging.ERROR)  # problems are reported in the answers
        settings = Settings(  # type: ignore[call-arg]
            store=store, deadline_ms=60_000, calibration_deadline_ms=60_000, max_calibration_bytes=2**30
        )
        app = create_app(settings)
        self._application, self._lifespan = httpx.ASGITransport(app), app.router.lifespan_context(app)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="prime-anc", daemon=True)
        self._thread.start()

        async def start() -> None:
            await self._lifespan.__aenter__()
            await app.state.service.engine.started()

        self._run(start())

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Wait for the whole answer."""
        return self._run(self._answer(request))

    def close(self) -> None:
        """Stop the application."""
        self._run(self._lifespan.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, Value]) -> Value:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = await self._application.handle_async_request(request)
        content = b"".join([part async for part in answer.aiter_raw()])
        return httpx.Response(answer.status_code, headers=answer.headers, content=content)

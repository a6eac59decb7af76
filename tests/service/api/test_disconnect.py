"""Clients that disconnect free their places at once, and what has no room is not read."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import httpx
import numpy as np
import orjson
import pytest
from fastapi import FastAPI
from starlette.types import Message

from prime_anc.method.types import Paths
from service.api.state import Service
from service.queue.estimates import Cost
from service.queue.lane import Work
from service.settings import Settings
from tests.service import models
from tests.service.bodies import as_responses
from tests.service.conftest import started
from tests.service.recordings import encoded, recordings

pytestmark = pytest.mark.anyio

N_SAMPLES = 48_000
# Longer than any test waits.
LONG_S = 60.0


@pytest.fixture(scope="module")
async def app(settings: Settings, anyio_backend: str) -> AsyncIterator[FastAPI]:
    """A service whose threads can be blocked."""
    async with started(settings) as app:
        yield app


@pytest.fixture
def service(app: FastAPI) -> Service:
    """Components of the service."""
    return app.state.service


class Client:
    """A POST whose client waits until it is made to hang up, as reported by a server."""

    def __init__(self, app: FastAPI, path: str, body: bytes, media_type: str = "application/json") -> None:
        self.messages: list[Message] = []
        self.hung_up = asyncio.Event()
        self._parts: list[Message] = [{"type": "http.request", "body": body}]
        headers = {"content-type": media_type, "content-length": str(len(body))}
        scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": path, "query_string": b""}
        scope |= {"server": ("service", 80), "client": None}
        scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
        self.asking = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if self._parts:
            return self._parts.pop()
        await self.hung_up.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self.messages.append(message)


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not condition():
            await asyncio.sleep(0.005)


async def test_disconnect_ends_wait_for_model(app: FastAPI, service: Service, ear: Paths) -> None:
    models_, hindered = service.engine.models, threading.Event()
    models_._loader.submit(hindered.wait, LONG_S)
    clients = [Client(app, "/refine", orjson.dumps(as_responses(ear, model="other"))) for _ in range(2)]
    await wait_until(lambda: models_._n_waiting == 2)
    clients[0].hung_up.set()
    await wait_until(lambda: models_._n_waiting == 1)
    assert not clients[1].asking.done()
    hindered.set()
    await asyncio.gather(*(client.asking for client in clients))
    assert clients[1].messages[0]["status"] == 200  # the remaining client is answered


async def test_disconnect_frees_waiting_calibration(app: FastAPI, service: Service) -> None:
    queue, memory, hindered = service.engine.queue, service.admission.memory, threading.Event()
    held = asyncio.ensure_future(service.engine.run(hindered.wait, Cost("held", 1.0)))
    noise = np.random.default_rng(0).standard_normal(N_SAMPLES)
    body = encoded(recordings(noise, *models.responses(7)))
    clients = [Client(app, "/calibrate", body, "application/x-safetensors") for _ in range(2)]
    await wait_until(lambda: queue.n_pending["heavy"] == 3)
    clients[0].hung_up.set()
    await wait_until(lambda: memory.n_bytes == len(body))
    assert not clients[1].asking.done()
    hindered.set()
    await asyncio.gather(held, *(client.asking for client in clients))
    assert clients[1].messages[0]["status"] == 200
    assert memory.n_bytes == 0


async def test_design_without_room_is_refused_unread(service: Service, client: httpx.AsyncClient) -> None:
    go_on, queue = threading.Event(), service.engine.queue
    long = Work(lambda items, n: [go_on.wait(LONG_S)], None, Cost("long", 1e3))
    running = asyncio.ensure_future(queue.run(long, lane="light", first=True))
    await wait_until(lambda: bool(long.began))
    for path, status in (("/refine", 503), ("/export", 400)):
        answer = await client.post(path, content=b"{", headers={"Content-Type": "application/json"})
        assert answer.status_code == status
    go_on.set()
    await running

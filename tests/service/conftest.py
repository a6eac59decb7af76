"""A real service over a real store in this process, shared by tests that do not change it."""

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import torch
from fastapi import FastAPI

from model_store.store import ModelStore
from prime_anc.method.backends.reference import build_synthesizer
from prime_anc.method.types import Fallback, Paths
from service.app import create_app
from service.settings import Settings
from tests.service import models
from tests.service.program import Program
from tests.service.program import started as program_started


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop that the service runs on."""
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def patient_queues() -> Iterator[None]:
    """Let tests queue more than half a second of work, which a busy machine takes for little."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.queue.work_queue.LONGEST_WAIT_S", {"light": 60.0, "heavy": 60.0})
        yield


@pytest.fixture(scope="session")
def store_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with `ears` in two versions and `other` in one."""
    folder = tmp_path_factory.mktemp("store")
    store = ModelStore(folder, include_bundled=False)
    for name, seed in (("ears", 1), ("ears", 2), ("other", 3)):
        store.publish(name, models.checkpoint(seed))
    return folder


@pytest.fixture(scope="session")
def program(store_folder: Path) -> Iterator[Program]:
    """`python -m service` over that store, ready, for tests that leave it running."""
    with program_started(store_folder) as program:
        yield program


@pytest.fixture(scope="session")
def settings(store_folder: Path) -> Settings:
    """Settings of the shared service, with time for slow machines."""
    patient = {"deadline_ms": 60_000, "calibration_deadline_ms": 60_000}
    return Settings(store=store_folder, model="ears", device="cpu", threads=1, **patient)


@pytest.fixture(scope="session")
async def app(settings: Settings, anyio_backend: str) -> AsyncIterator[FastAPI]:
    """The shared service, started and ready."""
    async with started(settings) as app:
        assert app.state.service.engine.ready
        yield app


@pytest.fixture(scope="session")
async def bundled_app(tmp_path_factory: pytest.TempPathFactory, anyio_backend: str) -> AsyncIterator[FastAPI]:
    """A service with a bundled model, which knows its support."""
    patient = {"deadline_ms": 60_000, "calibration_deadline_ms": 60_000}
    store = tmp_path_factory.mktemp("empty")
    async with started(Settings(store=store, model="bose-qc20", device="cpu", threads=1, **patient)) as app:
        yield app


@pytest.fixture
async def bundled_client(bundled_app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of that service."""
    async with connected(bundled_app) as client:
        yield client


@pytest.fixture
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the shared service, or of the `app` fixture that a test file defines."""
    async with connected(app) as client:
        yield client


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the program's `main` change neither handlers of signals nor the heap for good."""
    monkeypatch.setattr("service.heap.share_one_heap", lambda: None)
    handlers = {item: signal.getsignal(item) for item in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    yield
    for item, handler in handlers.items():
        signal.signal(item, handler)


@asynccontextmanager
async def started(settings: Settings) -> AsyncIterator[FastAPI]:
    """Wait until a service has loaded its default model, or failed to."""
    # The models are random generators, which a Wiener filter would replace.
    app = create_app(settings, Fallback(below_db=15.0))
    async with app.router.lifespan_context(app):
        await app.state.service.engine.started()
        yield app


def connected(app: FastAPI) -> httpx.AsyncClient:
    """A client that calls the application without a socket; failures become answers, as on a socket."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://service")


@pytest.fixture
def ear() -> Paths:
    """One ear's impulse responses and coherence."""
    return models.ear(7)


@pytest.fixture
def default_model(store_folder: Path) -> "torch.nn.Module":
    """The library's synthesizer for the model that the service uses by default."""
    return build_synthesizer(
        ModelStore(store_folder, include_bundled=False).load("ears").parameters, torch.float32, "cpu"
    )

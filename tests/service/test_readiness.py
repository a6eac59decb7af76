"""Readiness: given by a successful golden design, and kept while it stays correct and in time."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from model_store.store import ModelStore
from service import engine as engine_module
from service.engine import Engine
from service.errors import HttpProblem
from service.models import readiness as readiness_module
from tests.service import models
from tests.service.engines import designed, occupied, running

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def engine(store_folder: Path, anyio_backend: str) -> AsyncIterator[Engine]:
    """An engine for one test, with one worker."""
    async with running(ModelStore(store_folder, include_bundled=False), n_threads=1) as engine:
        assert engine.readiness.n_checks["passed"] == 1  # at the start
        yield engine


async def test_wrong_filters_are_not_delivered(engine: Engine) -> None:
    model = engine.models.default
    with models.damaged(model, 1.0):  # as after a bit flip in memory
        assert await engine.readiness.check() == "failed"
        with pytest.raises(HttpProblem) as refused:
            await designed(engine, models.problem(1))
        assert refused.value.code == "not-ready"
        with pytest.raises(HttpProblem):
            engine.require_live()
    assert await engine.readiness.check() == "passed"


async def test_failed_check_rebuilds_backend(engine: Engine) -> None:
    model = engine.models.default
    with models.damaged(model, 1.0):
        spoilt = model.model
    model.use(spoilt)  # the checkpoint itself is undamaged
    assert await engine.readiness.check() == "passed"
    assert model.model is not spoilt
    engine.require_live()


async def test_full_memory_is_no_wrong_filter(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def check() -> float:
        raise MemoryError

    monkeypatch.setattr(engine.models.default, "recheck", check)
    assert await engine.readiness.check() == "passed"


async def test_hanging_worker_is_not_ready(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness_module, "STALLED_AFTER_S", 0.05)
    async with occupied(engine):
        assert await engine.readiness.check() == "stalled"
        assert not engine.ready
    monkeypatch.setattr(readiness_module, "STALLED_AFTER_S", 30.0)
    assert await engine.readiness.check() == "passed"
    assert engine.ready


async def test_one_hanging_worker_of_several_is_noticed(
    store_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks of the other workers succeed."""
    store = ModelStore(store_folder, include_bundled=False)
    async with running(store, recheck_s=0.02) as engine:
        while engine.readiness.n_checks["passed"] < 4:  # periodic checks
            await asyncio.sleep(0.01)
        begun, go_on = threading.Event(), threading.Event()
        model = engine.models.default
        design = model.design

        def hang(*arguments: Any) -> Any:
            begun.set()
            return go_on.wait(60) and design(*arguments)

        model.design = hang
        hanging = asyncio.ensure_future(designed(engine, models.problem(1)))
        assert await asyncio.to_thread(begun.wait, 60)
        await asyncio.sleep(0.06)
        assert engine.ready
        monkeypatch.setattr(engine_module, "STALLED_AFTER_S", 0.05)
        with pytest.raises(HttpProblem, match="has not finished"):
            engine.require_ready()
        go_on.set()
        await hanging
        monkeypatch.undo()
        engine.drain()
        with pytest.raises(HttpProblem, match="shutting down"):
            engine.require_ready()
        await designed(engine, models.problem(1))

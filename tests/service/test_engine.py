"""The engine: workers, deadlines and errors."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_store.store import ModelStore
from prime_anc.method.errors import DeviceLost, Interrupted, check_interruption
from prime_anc.method.types import DesignOptions
from service.engine import Engine
from service.errors import HttpProblem, to_problem
from service.models.resident_model import ResidentModel
from service.queue.estimates import Estimates
from service.queue.waiting import ClientGone
from tests.service import models
from tests.service.engines import K1, designed, occupied, running

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def engine(store_folder: Path, anyio_backend: str) -> AsyncIterator[Engine]:
    """An engine over the shared store, with two workers and two models."""
    async with running(ModelStore(store_folder, include_bundled=False), max_resident_models=2) as engine:
        yield engine


async def test_designs_are_spread_over_workers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pairs: a design waits here until another one runs."""
    model = engine.models.default
    both, design = threading.Barrier(2), model.design

    def meeting(*arguments: Any) -> Any:
        both.wait(30)
        return design(*arguments)

    monkeypatch.setattr(model, "design", meeting)
    await asyncio.gather(*(designed(engine, models.problem(seed)) for seed in range(6)))
    assert not both.broken


async def test_gpu_worker_designs_in_batches(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a backend that takes several problems in one call: one design is alone, the others come together."""
    monkeypatch.setattr(engine.queue.lanes["light"], "max_batch", 4)
    sizes: list[int] = []
    monkeypatch.setattr(engine.queue, "on_batch", sizes.append)
    async with occupied(engine):
        asking = [asyncio.ensure_future(designed(engine, models.problem(seed), K1)) for seed in range(5)]
        while len(engine.queue.lanes["light"]) < 7:
            await asyncio.sleep(0.001)
    for seed, (_, found) in enumerate(await asyncio.gather(*asking)):
        _, alone = await designed(engine, models.problem(seed), K1)
        np.testing.assert_array_equal(found.taps, alone.taps)
    assert sorted(sizes)[-1] == 4


async def test_overdue_work_is_dropped(engine: Engine) -> None:
    async with occupied(engine):
        with pytest.raises(HttpProblem) as refused:
            await designed(engine, models.problem(1), due=time.perf_counter() + 1.0)
    assert refused.value.code in ("overloaded", "deadline-passed")
    await designed(engine, models.problem(1))


async def test_deadline_reduces_updates(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    options = DesignOptions(n_updates=8)
    _, whole = await designed(engine, models.problem(1), options)
    assert whole.refinement.stopped != "deadline"
    monkeypatch.setattr(Estimates, "most_updates", lambda self, cost, left_s: min(cost.n_updates, 3))
    _, answer = await designed(engine, models.problem(1), options, due=time.perf_counter() + 500.0)
    assert (answer.n_requested, answer.refinement.applied) == (8, 3)
    assert answer.refinement.stopped == "deadline"


@pytest.fixture
def endless(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let designs run until they are interrupted; the event is set once one has started."""
    begun = threading.Event()

    def design(*_: object) -> None:
        begun.set()
        while True:
            check_interruption()

    monkeypatch.setattr(engine.models.default, "design", design)
    return begun


async def test_disconnect_frees_worker(engine: Engine, endless: threading.Event) -> None:
    gone = asyncio.Event()
    heavy = DesignOptions(n_updates=8, leave_one_out=True, n_conditions=16)
    problem = models.joint_problem(16)
    asking = asyncio.ensure_future(designed(engine, problem, heavy, disconnected=gone.wait))
    await asyncio.to_thread(endless.wait)
    gone.set()
    with pytest.raises(ClientGone):
        await asking
    while engine.queue.n_pending["heavy"]:
        await asyncio.sleep(0.001)


async def test_deadline_ends_running_design(engine: Engine, endless: threading.Event) -> None:
    """Also without a watched connection, and with a problem that names the deadline."""
    with pytest.raises(Interrupted) as ended:
        await designed(engine, models.problem(1), K1, due=time.perf_counter() + 0.5)
    problem = to_problem(ended.value)
    assert (problem.status, problem.code) == (503, "deadline-passed")
    assert endless.is_set()


async def test_lost_device_ends_process(store_folder: Path) -> None:
    async with running(ModelStore(store_folder, include_bundled=False)) as engine:
        lost, loop = asyncio.Event(), asyncio.get_running_loop()
        engine.on_device_lost = lambda: loop.call_soon_threadsafe(lost.set)

        def fail(*_: object) -> None:
            raise DeviceLost("an illegal memory access was encountered")

        engine.models.default.design = fail
        for _ in range(2):
            with pytest.raises(HttpProblem) as refused:
                await designed(engine, models.problem(1))
            assert refused.value.code == "not-ready"
        await lost.wait()
        assert not engine.ready


async def test_gpu_failure_during_load_ends_process(store_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise DeviceLost("an illegal memory access was encountered")

    monkeypatch.setattr(ResidentModel, "__init__", fail)
    engine = Engine(ModelStore(store_folder, include_bundled=False), models.DEVICE, default_model="ears")
    ended: list[bool] = []
    engine.on_device_lost = lambda: ended.append(True)
    engine.start()
    await engine.started()
    await engine.close()
    assert ended == [True]
    assert engine.is_device_lost


async def test_closing_finishes_running_and_refuses_waiting(store_folder: Path) -> None:
    async with running(ModelStore(store_folder, include_bundled=False), n_threads=1) as engine:
        async with occupied(engine):
            waiting = asyncio.ensure_future(designed(engine, models.problem(1)))
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(engine.close())
            with pytest.raises(HttpProblem) as refused:
                await waiting
            assert refused.value.code == "not-ready"
            assert not closing.done()
        await closing
        assert not any(thread.is_alive() for thread in engine.queue._threads)

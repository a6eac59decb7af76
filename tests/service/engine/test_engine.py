"""The engine: workers, deadlines and errors."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_store.store import ModelStore
from prime_anc.method.errors import DeviceLost, Interrupted, check_interruption
from prime_anc.method.methods import METHODS
from prime_anc.method.profiles import PROFILES
from prime_anc.method.types import DesignOptions
from service.engine.engine import Engine
from service.engine.job_queue import Job, LatencyEstimator
from service.engine.resident_model import ResidentModel
from service.engine.types import ClientDisconnected, RefusedJob
from service.errors import to_problem
from tests.service import models
from tests.service.engine.conftest import only, running

pytestmark = pytest.mark.anyio

K0, K1 = DesignOptions(), DesignOptions(n_updates=1)


@asynccontextmanager
async def occupied(engine: Engine) -> AsyncIterator[None]:
    """Occupy all workers inside the block."""
    go_on, n_workers = threading.Event(), engine._queue.n_workers
    arrived = threading.Barrier(n_workers + 1)

    def hold(ears: list[Any], options: object) -> list[Any]:
        arrived.wait()
        go_on.wait()
        return ears

    job = Job(hold, None, [0] * n_workers, asyncio.get_running_loop().create_future())
    engine._queue.put(job)
    await asyncio.to_thread(arrived.wait)
    try:
        yield
    finally:
        go_on.set()
        await job.answer


async def test_batch_is_answered_in_order(engine: Engine) -> None:
    ears = [models.problem(seed, seed % 2 == 0) for seed in range(5)]
    version, together = await engine.design(None, K1, ears)
    for ear, found in zip(ears, together, strict=True):
        alone = only(await engine.design(None, K1, [ear]))
        np.testing.assert_array_equal(found.taps, alone.taps)
        assert found.prediction.basis == ("response" if ear.conditions[0].coherence is None else "coherence")
        assert (found.method, found.n_requested, found.replaced_because) == ("prime", 1, None)
        assert version == engine.models.versions()[0]


def default(engine: Engine) -> ResidentModel:
    return engine.models.default


async def test_ears_are_spread_over_workers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pairs: a design waits here until another one runs."""
    both, design = threading.Barrier(2), default(engine).design

    def meeting(*arguments: Any) -> Any:
        both.wait(30)
        return design(*arguments)

    monkeypatch.setattr(default(engine), "design", meeting)
    assert len((await engine.design(None, K0, [models.problem(seed) for seed in range(6)])).designs) == 6
    assert not both.broken


async def test_overdue_job_is_dropped(engine: Engine) -> None:
    async with occupied(engine):
        with pytest.raises(RefusedJob) as refused:
            await engine.design(None, K0, [models.problem(1)], due=time.perf_counter() + 1.0)
    assert refused.value.code == "deadline-passed"
    only(await engine.design(None, K0, [models.problem(1)]))


async def test_deadline_reduces_updates(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine._queue, "_latency", LatencyEstimator())
    options = DesignOptions(n_updates=8)
    whole = only(await engine.design(None, options, [models.problem(1)]))
    assert whole.refinement.stopped != "deadline"
    for _ in range(100):  # updates: 900 seconds; the rest: 100
        engine._queue._latency.observe(options, 1, 1000.0, 900.0)
    answer = only(await engine.design(None, options, [models.problem(1)], time.perf_counter() + 500.0))
    refinement = answer.refinement
    assert answer.n_requested == 8
    assert 0 < refinement.applied < 8  # `most_updates` is tested separately
    assert refinement.stopped == "deadline"
    assert len(refinement.objective) == refinement.applied + 1


async def test_cancelled_job_frees_place(engine: Engine) -> None:
    gone = asyncio.Event()
    async with occupied(engine):
        ears = [models.problem(1)] * 3
        waiting = [asyncio.ensure_future(engine.design(None, K0, ears, disconnected=gone.wait)) for _ in range(3)]
        cancelled = asyncio.ensure_future(engine.design(None, K1, ears))
        while engine.n_pending < 4:
            await asyncio.sleep(0.001)
        gone.set()
        cancelled.cancel()
        for item in waiting:
            with pytest.raises(ClientDisconnected):
                await item
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert engine.n_pending == 0
        assert not engine._queue._jobs


# Expected to be long, so that the connection is watched.
LONG = DesignOptions(n_updates=1, leave_one_out=True, n_conditions=16, n_feedbacks=16)


@pytest.fixture
def endless(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let designs run until they are interrupted; the event is set once one has started."""
    begun = threading.Event()

    def design(*_: object) -> None:
        begun.set()
        while True:
            check_interruption()

    monkeypatch.setattr(default(engine), "design", design)
    return begun


async def test_disconnect_frees_worker(engine: Engine, endless: threading.Event) -> None:
    gone = asyncio.Event()
    asking = asyncio.ensure_future(engine.design(None, LONG, [models.problem(1)], disconnected=gone.wait))
    await asyncio.to_thread(endless.wait)
    gone.set()
    with pytest.raises(ClientDisconnected):
        await asking
    while not engine._queue.is_idle:
        await asyncio.sleep(0.001)


async def test_deadline_ends_running_design(engine: Engine, endless: threading.Event) -> None:
    """Also without a watched connection, and with a problem that names the deadline."""
    for options in (DesignOptions("projected_ratio", 1), LONG):
        _, (found,) = await engine.design(None, options, [models.problem(1)], time.perf_counter() + 0.5)
        assert isinstance(found, Interrupted)
        problem = to_problem(found)
        assert (problem.status, problem.code) == (503, "deadline-passed")
        assert endless.is_set()
    while not engine._queue.is_idle:
        await asyncio.sleep(0.001)


async def test_full_memory_sheds_only_one_batch(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as while_full:
        while_full.setattr(default(engine), "design", full)
        with pytest.raises(RefusedJob, match="not enough memory") as refused:
            await engine.design(None, K0, [models.problem(1)] * 2)
        assert refused.value.code == "overloaded"
    assert len((await engine.design(None, K0, [models.problem(1)] * 2)).designs) == 2


async def test_times_of_all_kinds_are_measured_first(store_folder: Path) -> None:
    """Otherwise the first design of a kind would be admitted with any deadline."""
    async with running(ModelStore(store_folder, include_bundled=False)) as engine:
        latency = engine._queue._latency
        known = [latency.start_s(DesignOptions(method)) for method in METHODS]
        known += [
            latency.expected_s(DesignOptions("prime", 1, profile)) - latency.start_s(K0) for profile in PROFILES
        ]
        assert min(known) > 0
        # A lost device ends the process.
        lost = asyncio.Event()
        engine.on_device_lost = lambda: engine._loop.call_soon_threadsafe(lost.set)

        def fail(*_: object) -> None:
            raise DeviceLost("an illegal memory access was encountered")

        engine.models.default.design = fail
        for _ in range(2):
            with pytest.raises(RefusedJob) as refused:
                await engine.design(None, K0, [models.problem(1)])
            assert refused.value.code == "not-ready"
        await lost.wait()
        assert engine.is_device_lost
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
            waiting = asyncio.ensure_future(engine.design(None, K0, [models.problem(1)]))
            await asyncio.sleep(0)
            closing = asyncio.ensure_future(engine.close())
            with pytest.raises(RefusedJob) as refused:
                await waiting
            assert refused.value.code == "not-ready"
            assert not closing.done()
        await closing
        assert not any(thread.is_alive() for thread in engine._threads)

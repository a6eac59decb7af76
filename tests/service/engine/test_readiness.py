"""Readiness: earned at the start, kept only while the golden design comes out right and in time."""

import asyncio
import threading
from collections.abc import AsyncIterator
from time import perf_counter

import httpx
import pytest
import torch
from fastapi import FastAPI

from model_store.store import ModelStore
from service.designs import MAX_BATCH, Design, Recipe
from service.engine import readiness as readiness_module
from service.engine.engine import Engine
from service.errors import Problem
from service.settings import Settings
from tests.service import models
from tests.service.conftest import started
from tests.service.engine.test_engine import ears, only
from tests.service.http.test_problems import assert_problem

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(settings: Settings, anyio_backend: str) -> AsyncIterator[FastAPI]:
    """A service of this test's own, which checks itself when it is told to."""
    async with started(settings.model_copy(update={"recheck_s": 1e6, "ready_budget_ms": 1e6})) as app:
        yield app


@pytest.fixture
def engine(app: FastAPI) -> Engine:
    """Its engine."""
    engine: Engine = app.state.service.engine
    return engine


async def test_a_check_that_passes_leaves_it_ready(engine: Engine, client: httpx.AsyncClient) -> None:
    assert engine.readiness.n_checks["passed"] == 1  # at the start
    assert await engine.readiness.check() == "passed"
    assert engine.readiness.golden_s > 0
    assert (await client.get("/health/ready")).status_code == 200
    assert 'prime_golden_checks_total{outcome="passed"} 2.0' in (await client.get("/metrics")).text


async def test_a_slow_service_is_not_ready_but_designs(engine: Engine, client: httpx.AsyncClient) -> None:
    engine.readiness.budget_s = 1e-9
    assert await engine.readiness.check() == "slow"
    answer = await client.get("/health/ready")
    assert_problem(answer, "not-ready")
    assert "retry-after" in answer.headers
    assert (await client.get("/v2/health/ready")).status_code == 503
    assert (await client.get("/health/live")).status_code == 200
    assert "prime_ready 0.0" in (await client.get("/metrics")).text
    assert isinstance(only(await engine.design(Recipe(), ears(1))), Design)
    engine.readiness.budget_s = 1e6
    assert await engine.readiness.check() == "passed"
    assert (await client.get("/health/ready")).status_code == 200


async def test_wrong_filters_are_not_delivered(engine: Engine, client: httpx.AsyncClient) -> None:
    model = engine.residency.default
    assert model is not None
    # A bit that has flipped in memory, for all that the golden case can tell.
    models.changed(model, lambda weight: weight.add_(1.0))
    assert await engine.readiness.check() == "failed"
    with pytest.raises(Problem) as refused:
        await engine.design(Recipe(), ears(1))
    assert refused.value.code == "not-ready"
    assert_problem(await client.get("/health/ready"), "not-ready")
    assert (await client.get("/health/live")).status_code == 200
    models.changed(model, lambda weight: weight.sub_(1.0))
    assert await engine.readiness.check() == "passed"
    only(await engine.design(Recipe(), ears(1)))


async def test_another_model_that_goes_wrong_is_retired(engine: Engine) -> None:
    other = await engine.residency.model("other")
    models.changed(other, lambda weight: weight.add_(1.0))
    assert await engine.readiness.check() == "passed"
    assert [each.name for each in engine.residency.versions()] == ["ears"]
    assert engine.ready
    only(await engine.design(Recipe("other"), ears(1)))  # loaded anew, and right


async def test_a_worker_that_is_never_idle_is_checked_like_any_other(
    engine: Engine, client: httpx.AsyncClient
) -> None:
    """For what it designs and for how long that takes, while clients come back with every answer."""
    is_over = False

    async def ask_on() -> None:
        while not is_over:
            only(await engine.design(Recipe(n_updates=1), ears(1)))

    clients = [asyncio.create_task(ask_on()) for _ in range(4)]
    while engine.n_queued < len(clients):
        await asyncio.sleep(0)
    for budget_s, verdict, status in ((1e-9, "slow", 503), (1e6, "passed", 200)):
        engine.readiness.budget_s = budget_s
        assert await engine.readiness.check() == verdict
        assert (await client.get("/health/ready")).status_code == status
    is_over = True
    await asyncio.gather(*clients)


async def test_a_long_queue_is_no_hanging_worker(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests may have deadlines of a minute, and so a queue may last longer than a worker may be silent."""
    batch = ears(MAX_BATCH)
    for _ in range(2):
        began = perf_counter()
        await engine.design(Recipe(), batch)
    batch_s = perf_counter() - began
    monkeypatch.setattr(readiness_module, "STALLED_AFTER_S", 8 * batch_s)
    waiting = [asyncio.create_task(engine.design(Recipe(), batch)) for _ in range(40)]
    await asyncio.sleep(0)
    assert await engine.readiness.check() == "passed"
    assert engine.n_queued > 20
    assert engine.readiness.n_checks["stalled"] == 0
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_worker_that_hangs_is_not_ready_until_it_is_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness_module, "STALLED_AFTER_S", 0.05)
    go_on = threading.Event()
    engine._worker.submit(go_on.wait, 60)
    checking = asyncio.create_task(engine.readiness.check())
    while engine.ready:
        await asyncio.sleep(0.01)
    assert engine.readiness.verdict == "stalled"
    assert not checking.done()
    go_on.set()
    assert await checking == "passed"
    assert engine.ready


async def test_it_checks_itself_in_the_background(settings: Settings) -> None:
    engine = Engine(ModelStore(settings.store or ""), torch.device("cpu"), default_model="ears", recheck_s=0.02)
    engine.start()
    await engine.started()
    while engine.readiness.n_checks["passed"] < 4:
        await asyncio.sleep(0.01)
    assert engine.ready
    await engine.close()


async def test_a_service_told_to_stop_is_not_ready_and_goes_on(engine: Engine, client: httpx.AsyncClient) -> None:
    engine.readiness.drain()
    assert_problem(await client.get("/health/ready"), "not-ready")
    only(await engine.design(Recipe(), ears(1)))

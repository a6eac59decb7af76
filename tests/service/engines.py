"""Engines for tests, and designs with them."""

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from model_store.store import ModelStore
from prime_anc.method.types import Design, DesignOptions, Problem
from prime_anc.tasks.problem import DesignRequest
from service.engine import Engine
from service.models.resident_model import ResidentModel
from service.queue.estimates import Cost
from service.queue.lane import Work
from tests.service import models

K0, K1 = DesignOptions(), DesignOptions(n_updates=1)


@asynccontextmanager
async def running(store: ModelStore, default_model: str = "ears", **options: Any) -> AsyncIterator[Engine]:
    """Run an engine until its default model is loaded or found unusable; checks run on request."""
    options = {"n_threads": 2, "fallback": models.NO_FALLBACK, "recheck_s": 1e6, "ready_budget_s": 1e6} | options
    engine = Engine(store, models.DEVICE, default_model=default_model, **options)
    engine.start()
    await engine.started()
    yield engine
    await engine.close()


async def designed(
    engine: Engine,
    problem: Problem,
    options: DesignOptions = K0,
    reference: str | None = None,
    due: float = math.inf,
    disconnected: Any = None,
) -> tuple[ResidentModel, Design]:
    """Design by the model of a reference."""
    resident = await engine.model(reference, due, disconnected)
    requested = DesignRequest(reference, options, "minus", [], problem)
    return resident, await engine.design(resident, requested, "", due, disconnected)


@asynccontextmanager
async def occupied(engine: Engine) -> AsyncIterator[None]:
    """Occupy all workers of light work inside the block."""
    go_on, n_workers = threading.Event(), engine.queue.lanes["light"].n_workers
    arrived = threading.Barrier(n_workers + 1)

    def hold(items: Any, n_updates: int) -> list[Any]:
        arrived.wait()
        go_on.wait()
        return list(items)

    works = [Work(hold, None, Cost("hold", 1e-3)) for _ in range(n_workers)]
    held = [asyncio.ensure_future(engine.queue.run(work, lane="light", first=True)) for work in works]
    await asyncio.to_thread(arrived.wait)
    try:
        yield
    finally:
        go_on.set()
        await asyncio.gather(*held)

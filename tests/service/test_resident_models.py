"""Models are loaded on demand, replaced on the operator's request, and freed after their last use."""

import asyncio
import gc
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from time import perf_counter

import pytest

from model_store.errors import ModelNotFound
from model_store.store import ModelStore
from prime_anc.method.types import DesignOptions
from service.engine import Engine
from service.errors import HttpProblem
from service.queue.estimates import RecentTimes
from tests.model_store import cases
from tests.service import models
from tests.service.engines import designed, running

pytestmark = pytest.mark.anyio


checkpoint = cache(models.checkpoint)


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    """A store for one test: `ears` in one version, and the alias `live` for it."""
    store = ModelStore(tmp_path, include_bundled=False)
    store.publish("ears", checkpoint(0))
    store.set_alias("live", "ears@1")
    return store


@pytest.fixture
async def engine(store: ModelStore, anyio_backend: str) -> AsyncIterator[Engine]:
    """An engine whose default model is the alias."""
    async with running(store, "live", max_resident_models=2) as engine:
        yield engine


@pytest.fixture
def no_collection() -> Iterator[None]:
    """Switch the garbage collector off, so that models are freed by their last reference."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def damage(store: ModelStore, reference: str) -> None:
    """Flip a bit of the weights."""
    file = store.root / store.resolve(reference).file
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    os.chmod(file, 0o644)
    file.write_bytes(content)


async def designs_by(engine: Engine, *references: str | None) -> list[tuple[str, int]]:
    """Return name and version of the models that designed."""
    answers = [await designed(engine, models.problem(1), reference=reference) for reference in references]
    return [(resident.version.name, resident.version.version) for resident, _ in answers]


async def test_retired_model_finishes_designs_and_is_freed(
    engine: Engine, store: ModelStore, no_collection: None
) -> None:
    old = engine.models.default
    before = old.version
    kept = [weakref.ref(item) for item in (old, old.model)]
    del old
    designs = [
        asyncio.create_task(designed(engine, models.problem(1), DesignOptions(n_updates=3))) for _ in range(8)
    ]
    await asyncio.sleep(0)
    store.publish("ears", checkpoint(1))
    store.set_alias("live", "ears@2")
    assert await engine.models.reload() == []
    assert await designs_by(engine, None) == [("ears", 2)]
    for resident, _ in await asyncio.gather(*designs):
        assert resident.version == before
    del resident
    designs.clear()
    await designs_by(engine, None, None)  # occupy both workers
    given_up = perf_counter() + 120
    while any(item() is not None for item in kept) and perf_counter() < given_up:
        await designs_by(engine, None)
    assert [item() for item in kept] == [None, None]


@pytest.mark.parametrize(("is_load_known", "code"), [(True, "overloaded"), (False, "deadline-passed")])
async def test_load_continues_after_deadline(
    engine: Engine, store: ModelStore, is_load_known: bool, code: str
) -> None:
    """The load continues without a waiting client."""
    store.publish("other", checkpoint(2))
    hindered = threading.Event()
    engine.models._loader.submit(hindered.wait)
    engine.models._load_s = RecentTimes()
    if is_load_known:
        engine.models._load_s.observe(60.0)
    with pytest.raises(HttpProblem) as refused:
        await designed(engine, models.problem(1), reference="other", due=perf_counter() + 0.2)
    assert refused.value.code == code
    assert "Retry-After" in refused.value.headers
    assert engine.models.find("other") is None
    hindered.set()
    while engine.models.find("other") is None:
        await asyncio.sleep(0.01)
    assert await designs_by(engine, "other") == [("other", 1)]
    assert engine.models.n_loads == {"loaded": 2, "failed": 0}


@pytest.mark.parametrize("target", ["ears@2", "ears@7"])
async def test_failed_load_keeps_old_version(
    engine: Engine,
    store: ModelStore,
    target: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store.publish("ears", checkpoint(1))
    store.set_alias("live", "ears@2")
    if target == "ears@2":
        damage(store, target)
    else:  # a dangling alias
        (store.root / "aliases.json").unlink()
    with caplog.at_level(logging.ERROR):
        assert await engine.models.reload() == ["live"]
    assert await designs_by(engine, None) == [("ears", 1)]
    assert engine.ready
    assert engine.models.n_loads["failed"] == 1
    assert "stay in use" in caplog.text


async def test_reload_unloads_deleted_versions(store: ModelStore, caplog: pytest.LogCaptureFixture) -> None:
    """Even the default one; but none if the whole root is missing, as a volume that is not mounted."""
    other, newer = store.publish("other", checkpoint(2)), store.publish("ears", checkpoint(1))
    async with running(store, "ears@1") as engine:
        await designs_by(engine, "other@1")
        away = store.root.rename(store.root.with_name("away"))
        assert await engine.models.reload() == ["ears@1", "other@1"]
        away.rename(store.root)
        assert await designs_by(engine, None, "other@1") == [("ears", 1), ("other", 1)]
        store.remove(other)
        assert await engine.models.reload() == []
        with pytest.raises(ModelNotFound):
            await designs_by(engine, "other@1")
        store.remove(store.resolve("ears@1"), newer)
        assert await engine.models.reload() == ["ears@1"]
        assert engine.models.versions() == []
        assert not engine.ready
        assert "start the service with another --model" in caplog.text


async def test_damaged_model_is_read_once(engine: Engine, store: ModelStore) -> None:
    store.publish("other", checkpoint(2))
    damage(store, "other")
    for _ in range(3):
        with pytest.raises(HttpProblem) as refused:
            await designs_by(engine, "other")
        assert refused.value.code == "model-unavailable"
    assert engine.models.n_loads["failed"] == 1
    damage(store, "other")  # flips the bit back
    assert await engine.models.load("other") == store.resolve("other")
    assert await designs_by(engine, "other") == [("other", 1)]


async def test_controller_is_read_again_after_reload(engine: Engine, store: ModelStore) -> None:
    store.publish("everybody", cases.controller())
    first = await engine.models.controller("everybody")
    store.publish("everybody", cases.controller(latency_us=20))
    assert await engine.models.controller("everybody") is first
    assert await engine.models.reload() == []
    newer = await engine.models.controller("everybody")
    assert (newer.version, newer.latency_us) == (2, 20)
    assert await engine.models.controller("nobody") is None


async def test_least_recently_used_model_is_unloaded(engine: Engine, store: ModelStore) -> None:
    """Only the operator's request brings a newer version."""
    for name in ("one", "two"):
        store.publish(name, checkpoint(2))
    assert await designs_by(engine, "one") == [("one", 1)]
    store.publish("one", checkpoint(3))
    assert await designs_by(engine, "one", "two", "one", "two") == [("one", 1), ("two", 1)] * 2
    assert [version.name for version in engine.models.versions()] == ["ears", "two"]  # the default stays
    assert await engine.models.reload() == []
    assert [version.name for version in engine.models.versions()] == ["ears", "two"]  # models in use stay
    assert await designs_by(engine, "one") == [("one", 2)]

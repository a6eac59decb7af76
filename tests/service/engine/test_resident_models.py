"""Models come on demand, are swapped when the operator says so, and go after their last use."""

import asyncio
import gc
import logging
import os
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import perf_counter

import pytest

from model_store.checkpoint import Checkpoint
from model_store.store import ModelStore
from service.engine.engine import Engine
from service.engine.job_queue import RecentTimes
from service.engine.types import RefusedJob
from synthesis.types import DesignOptions
from tests.service import models
from tests.service.engine.conftest import only, running

pytestmark = pytest.mark.anyio

K0 = DesignOptions()


@pytest.fixture(scope="module")
def checkpoints() -> list[Checkpoint]:
    """Four different ones."""
    return [models.checkpoint(seed) for seed in range(4)]


@pytest.fixture
def store(tmp_path: Path, checkpoints: list[Checkpoint]) -> ModelStore:
    """A store of this test's own: `ears` in one version, and the alias `live` for it."""
    store = ModelStore(tmp_path, include_bundled=False)
    store.publish("ears", checkpoints[0])
    store.set_alias("live", "ears@1")
    return store


@pytest.fixture
async def engine(store: ModelStore, anyio_backend: str) -> AsyncIterator[Engine]:
    """An engine whose default model is the alias."""
    async with running(store, "live", max_resident_models=2) as engine:
        yield engine


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What is freed here is freed by its last reference, not by the collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def damage(store: ModelStore, reference: str) -> None:
    """Flip a bit of the weights."""
    assert isinstance(store.root, Path)
    file = store.root / store.resolve(reference).file
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    os.chmod(file, 0o644)
    file.write_bytes(content)


async def asked(engine: Engine, *references: str | None) -> list[tuple[str, int]]:
    """The versions that designs come from."""
    answers = [await engine.design(each, K0, [models.problem(1)]) for each in references]
    assert all(only(each) for each in answers)
    return [(each.model.name, each.model.version) for each in answers]


async def test_a_retired_model_finishes_its_designs_and_is_freed(
    engine: Engine, store: ModelStore, checkpoints: list[Checkpoint], no_collection: None
) -> None:
    old = engine.models.default
    assert old is not None
    before = old.version
    kept = [weakref.ref(each) for each in (old, old.model)]
    del old
    designs = [
        asyncio.create_task(engine.design(None, DesignOptions(n_updates=3), [models.problem(1)])) for _ in range(8)
    ]
    await asyncio.sleep(0)
    store.publish("ears", checkpoints[1])
    store.set_alias("live", "ears@2")
    assert await engine.models.reload() == []
    assert await asked(engine, None) == [("ears", 2)]
    for answer in await asyncio.gather(*designs):
        assert only(answer)
        assert answer.model == before
    designs.clear()
    await asked(engine, None, None)  # each worker has something else in hand
    given_up = perf_counter() + 10
    while any(each() is not None for each in kept) and perf_counter() < given_up:
        await asked(engine, None)
    assert [each() for each in kept] == [None, None]


async def test_designs_go_on_while_a_model_loads(
    engine: Engine, store: ModelStore, checkpoints: list[Checkpoint]
) -> None:
    store.publish("other", checkpoints[2])
    hindered = threading.Event()
    engine.models._loader.submit(hindered.wait)
    waiting = asyncio.create_task(asked(engine, "other"))
    again = asyncio.create_task(asked(engine, "other@1"))
    assert await asked(engine, None, None, None) == [("ears", 1)] * 3
    assert not waiting.done()
    hindered.set()
    assert await waiting == await again == [("other", 1)]
    assert engine.models.n_loads["loaded"] == 2  # the default, and once for both who waited


async def test_who_stops_waiting_does_not_stop_the_load(
    engine: Engine, store: ModelStore, checkpoints: list[Checkpoint]
) -> None:
    store.publish("other", checkpoints[2])
    hindered = threading.Event()
    engine.models._loader.submit(hindered.wait)
    impatient, patient = (asyncio.create_task(asked(engine, "other")) for _ in range(2))
    while not engine.models._loading:
        await asyncio.sleep(0.001)
    impatient.cancel()
    hindered.set()
    assert await patient == [("other", 1)]
    assert impatient.cancelled()


@pytest.mark.parametrize(("is_load_known", "code"), [(True, "overloaded"), (False, "deadline-passed")])
async def test_who_cannot_wait_for_a_load_finds_the_model_there_later(
    engine: Engine, store: ModelStore, checkpoints: list[Checkpoint], is_load_known: bool, code: str
) -> None:
    """Nobody needs to wait for a load for it to be made."""
    store.publish("other", checkpoints[2])
    hindered = threading.Event()
    engine.models._loader.submit(hindered.wait)
    engine.models._load_s = RecentTimes()
    if is_load_known:
        engine.models._load_s.observe(60.0)
    with pytest.raises(RefusedJob) as refused:
        await engine.design("other", K0, [models.problem(1)], perf_counter() + 0.2)
    assert refused.value.code == code
    assert refused.value.retry_after_s is not None
    assert engine.models.find("other") is None
    hindered.set()
    while engine.models.find("other") is None:
        await asyncio.sleep(0.01)
    assert await asked(engine, "other") == [("other", 1)]
    assert engine.models.n_loads == {"loaded": 2, "failed": 0}


@pytest.mark.parametrize("target", ["ears@2", "ears@7"])
async def test_what_cannot_be_loaded_leaves_the_old_one_serving(
    engine: Engine,
    store: ModelStore,
    checkpoints: list[Checkpoint],
    target: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store.publish("ears", checkpoints[1])
    store.set_alias("live", "ears@2")
    if target == "ears@2":
        damage(store, target)
    else:  # an alias that leads nowhere any more
        (store.root / "aliases.json").unlink()
    with caplog.at_level(logging.ERROR):
        assert await engine.models.reload() == ["live"]
    assert await asked(engine, None) == [("ears", 1)]
    assert engine.ready
    assert engine.models.n_loads["failed"] == 1
    assert "stay in use" in caplog.text


async def test_a_damaged_model_is_read_once_until_an_operator_asks_again(
    engine: Engine, store: ModelStore, checkpoints: list[Checkpoint]
) -> None:
    store.publish("other", checkpoints[2])
    damage(store, "other")
    for _ in range(3):
        with pytest.raises(RefusedJob) as refused:
            await asked(engine, "other")
        assert refused.value.code == "model-unavailable"
    assert engine.models.n_loads["failed"] == 1
    damage(store, "other")  # flips the bit back
    assert await engine.models.load("other") == store.resolve("other")
    assert await asked(engine, "other") == [("other", 1)]


async def test_unloading(engine: Engine, store: ModelStore, checkpoints: list[Checkpoint]) -> None:
    other = store.publish("other", checkpoints[2])
    await engine.models.load("other")
    for reference in ("live", "ears", "ears@1"):
        with pytest.raises(RefusedJob) as refused:
            engine.models.unload(reference)
        assert refused.value.code == "default-model"
    assert engine.models.unload("other") == [other]
    with pytest.raises(RefusedJob) as refused:
        engine.models.unload("other")
    assert refused.value.code == "unknown-model"
    # What is unloaded is looked up again.
    store.publish("other", checkpoints[3])
    assert await asked(engine, "other") == [("other", 2)]


async def test_the_least_recently_used_makes_room_and_names_keep_their_meaning(
    engine: Engine, store: ModelStore, checkpoints: list[Checkpoint]
) -> None:
    """Until an operator says otherwise: only then is a newer version looked at, unless it is damaged."""
    for name in ("one", "two"):
        store.publish(name, checkpoints[2])
    assert await asked(engine, "one") == [("one", 1)]
    store.publish("one", checkpoints[3])
    assert await asked(engine, "one", "two", "one", "two") == [("one", 1), ("two", 1)] * 2
    assert [each.name for each in engine.models.versions()] == ["ears", "two"]  # the default one stays
    damage(store, "one@2")
    assert await engine.models.reload() == ["one"]
    assert await asked(engine, "one", "two") == [("one", 1), ("two", 1)]
    damage(store, "one@2")  # flips the bit back
    assert await engine.models.reload() == []
    assert [each.name for each in engine.models.versions()] == ["ears", "two"]  # what is asked for now stays
    n_loaded = engine.models.n_loads["loaded"]
    assert await engine.models.reload() == []
    assert engine.models.n_loads["loaded"] == n_loaded
    assert await asked(engine, "one") == [("one", 2)]

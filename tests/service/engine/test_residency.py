"""Models come and go: beside the designs, by one swap, and freed after their last use."""

import asyncio
import gc
import logging
import os
import shutil
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from time import perf_counter

import fsspec
import pytest
import torch

from model_store.errors import UnknownModel
from model_store.mirror import Mirror
from model_store.store import ModelStore
from service.admission.design_times import RecentTimes
from service.app import create_app
from service.designs import Design, Recipe
from service.engine.engine import Engine
from service.errors import Problem
from service.settings import Settings
from service.threads import prepare_thread
from tests.service import models
from tests.service.engine.test_engine import ears, only

pytestmark = pytest.mark.anyio


@pytest.fixture
def store(tmp_path: Path) -> ModelStore:
    """A store of this test's own: `ears` in one version, and the alias `live` for it."""
    store = ModelStore(tmp_path, include_bundled=False)
    store.publish("ears", models.checkpoint(1))
    store.set_alias("live", "ears@1")
    return store


@pytest.fixture
async def engine(store: ModelStore, anyio_backend: str) -> AsyncIterator[Engine]:
    """An engine whose default model is the alias."""
    engine = Engine(store, torch.device("cpu"), default_model="live", max_resident_models=2)
    engine.start()
    await engine.started()
    yield engine
    await engine.close()


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What is freed here is freed by its last reference, not by the collector."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def damage(store: ModelStore, reference: str) -> None:
    """Flip a bit of the weights."""
    file = store.resolve(reference).folder / "generator.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    os.chmod(file, 0o644)
    file.write_bytes(content)


async def test_the_default_follows_its_alias_when_told(engine: Engine, store: ModelStore) -> None:
    first, second = store.resolve("ears@1"), store.publish("ears", models.checkpoint(2))
    store.set_alias("live", "ears@2")
    assert only(await engine.design(Recipe(), ears(1))).model == first  # not before it is told
    assert await engine.residency.reload() == []
    assert only(await engine.design(Recipe(), ears(1))).model == second
    assert engine.residency.versions() == [second]  # what nobody refers to is gone
    assert engine.residency.n_loads == {"loaded": 2, "failed": 0}


async def test_a_retired_model_finishes_its_designs_and_is_freed(
    engine: Engine, store: ModelStore, no_collection: None
) -> None:
    old = engine.residency.default
    assert old is not None
    before = old.version
    kept = [weakref.ref(each) for each in (old, old._synthesizer, *old._schedules.values())]
    assert len(kept) > 2
    del old
    running = [asyncio.create_task(engine.design(Recipe(n_updates=3), ears(2))) for _ in range(8)]
    await asyncio.sleep(0)
    after = store.publish("ears", models.checkpoint(2))
    store.set_alias("live", "ears@2")
    assert await engine.residency.reload() == []
    assert only(await engine.design(Recipe(), ears(1))).model == after
    for batch in await asyncio.gather(*running):
        assert all(isinstance(each, Design) and each.model == before for each in batch)
    running.clear()
    await asyncio.sleep(0)
    assert [each() for each in kept] == [None] * len(kept)


async def test_designs_go_on_while_a_model_loads(engine: Engine, store: ModelStore) -> None:
    store.publish("other", models.checkpoint(3))
    waiting = asyncio.create_task(engine.design(Recipe("other"), ears(1)))
    again = asyncio.create_task(engine.design(Recipe("other@1"), ears(1)))
    n_designed = 0
    while not waiting.done():
        assert only(await engine.design(Recipe(), ears(1))).model.name == "ears"
        n_designed += 1
    assert n_designed > 3
    assert only(await waiting).model == only(await again).model == store.resolve("other")
    assert engine.residency.n_loads["loaded"] == 2  # the default, and once for both who waited


async def test_who_stops_waiting_does_not_stop_the_load(engine: Engine, store: ModelStore) -> None:
    store.publish("other", models.checkpoint(3))
    impatient = asyncio.create_task(engine.design(Recipe("other"), ears(1)))
    patient = asyncio.create_task(engine.design(Recipe("other"), ears(1)))
    while engine.residency.n_waiting < 2:
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    impatient.cancel()
    assert only(await patient).model.name == "other"
    assert impatient.cancelled()


async def test_who_cannot_wait_for_a_load_is_told_at_once_when_to_come_back(
    engine: Engine, store: ModelStore
) -> None:
    """And finds the model there then: nobody needs to wait for a load for it to be made."""
    store.publish("other", models.checkpoint(3))
    hindered = threading.Event()
    engine.residency._loader.submit(hindered.wait)
    refusals = []
    for patience_s in (1e-3, 2e-3):
        with pytest.raises(Problem) as problem:
            await engine.design(Recipe("other"), ears(1), perf_counter() + patience_s)
        refusals.append(problem.value)
    assert [each.code for each in refusals] == ["overloaded"] * 2
    assert all(each.headers and int(each.headers["Retry-After"]) >= 1 for each in refusals)
    assert engine.residency.n_waiting == 0
    assert engine.residency.find("other") is None
    hindered.set()
    while engine.residency.find("other") is None:
        await asyncio.sleep(0.01)
    assert only(await engine.design(Recipe("other"), ears(1))).model.name == "other"
    assert engine.residency.n_loads == {"loaded": 2, "failed": 0}


async def test_a_load_that_lasts_beyond_the_deadline_is_waited_for_no_longer(
    engine: Engine, store: ModelStore
) -> None:
    store.publish("other", models.checkpoint(3))
    hindered = threading.Event()
    engine.residency._loader.submit(hindered.wait)
    engine.residency._load_s = RecentTimes()  # nothing is known of loads: they are expected to take no time
    with pytest.raises(Problem) as problem:
        await engine.design(Recipe("other"), ears(1), perf_counter() + 1.0)
    assert problem.value.code == "deadline-passed"
    hindered.set()
    assert only(await engine.design(Recipe("other"), ears(1))).model.name == "other"
    assert engine.residency.n_loads["loaded"] == 2


@pytest.mark.parametrize("target", ["ears@2", "ears@7"])
async def test_what_cannot_be_loaded_leaves_the_old_one_serving(
    engine: Engine, store: ModelStore, target: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = store.resolve("ears@1")
    store.publish("ears", models.checkpoint(2))
    store.set_alias("live", "ears@2")
    if target == "ears@2":
        damage(store, target)
    else:  # an alias that leads nowhere any more
        (store.root / "aliases.json").unlink()
    with caplog.at_level(logging.ERROR):
        assert await engine.residency.reload() == ["live"]
    assert only(await engine.design(Recipe(), ears(1))).model == first
    assert engine.ready
    assert engine.residency.n_loads["failed"] == 1
    assert "goes on serving" in caplog.text


async def test_a_damaged_model_is_read_once_until_an_operator_asks_again(engine: Engine, store: ModelStore) -> None:
    store.publish("other", models.checkpoint(3))
    damage(store, "other")
    for _ in range(3):
        with pytest.raises(Problem) as refused:
            await engine.design(Recipe("other"), ears(1))
        assert refused.value.code == "model-unavailable"
    assert engine.residency.n_loads["failed"] == 1
    damage(store, "other")  # flips the bit back
    assert await engine.residency.load("other") == store.resolve("other")
    assert only(await engine.design(Recipe("other"), ears(1))).model.name == "other"


async def test_a_service_without_its_model_is_mended_by_a_reload(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, include_bundled=False)
    engine = Engine(store, torch.device("cpu"), default_model="ears")
    engine.start()
    await engine.started()
    with pytest.raises(Problem) as refused:
        engine.require_ready()
    assert refused.value.code == "model-unavailable"
    store.publish("ears", models.checkpoint(1))
    assert await engine.residency.reload() == []
    engine.require_ready()
    await engine.close()


async def test_unloading(engine: Engine, store: ModelStore) -> None:
    other = store.publish("other", models.checkpoint(3))
    await engine.residency.load("other")
    for reference, code in (("live", "default-model"), ("ears", "default-model"), ("ears@1", "default-model")):
        with pytest.raises(Problem) as refused:
            engine.residency.unload(reference)
        assert refused.value.code == code
    assert engine.residency.unload("other") == [other]
    with pytest.raises(Problem) as refused:
        engine.residency.unload("other")
    assert refused.value.code == "unknown-model"
    assert [each.name for each in engine.residency.versions()] == ["ears"]


async def asked(engine: Engine, *references: str) -> list[int]:
    """The versions that designs come from."""
    return [only(await engine.design(Recipe(each), ears(1))).model.version for each in references]


async def test_a_name_means_what_it_meant_when_its_model_has_made_room(engine: Engine, store: ModelStore) -> None:
    """Until an operator says otherwise: only then is a newer version looked at."""
    for name in ("one", "two"):
        store.publish(name, models.checkpoint(3))
    assert await asked(engine, "one") == [1]
    store.publish("one", models.checkpoint(4))
    assert await asked(engine, "one", "two", "one", "two") == [1, 1, 1, 1]  # each in the other's place
    assert await engine.residency.reload() == []
    assert [each.name for each in engine.residency.versions()] == ["ears", "two"]  # what is asked for now stays
    assert await asked(engine, "one") == [2]


async def test_a_damaged_version_takes_no_name_away(engine: Engine, store: ModelStore) -> None:
    for name in ("one", "two"):
        store.publish(name, models.checkpoint(3))
    assert await asked(engine, "one", "two") == [1, 1]
    store.publish("one", models.checkpoint(4))
    damage(store, "one")
    for _ in range(2):
        assert await engine.residency.reload() == ["one"]
        assert await asked(engine, "one", "two") == [1, 1]
    damage(store, "one")  # flips the bit back
    assert await engine.residency.reload() == []
    assert await asked(engine, "one") == [2]


async def test_a_reload_tells_of_a_name_that_never_came_into_memory(engine: Engine, store: ModelStore) -> None:
    store.publish("one", models.checkpoint(3))
    damage(store, "one")
    with pytest.raises(Problem):
        await asked(engine, "one")
    assert await engine.residency.reload() == ["one"]
    shutil.rmtree(store.root / "one")
    assert await engine.residency.reload() == []  # which is no name of anything any more


async def test_a_reload_loads_nothing_that_made_room_and_is_the_same(engine: Engine, store: ModelStore) -> None:
    for name in ("one", "two"):
        store.publish(name, models.checkpoint(3))
    assert await asked(engine, "one", "two") == [1, 1]
    before = engine.residency.n_loads["loaded"]
    assert await engine.residency.reload() == []
    assert engine.residency.n_loads["loaded"] == before


async def test_what_is_unloaded_is_looked_up_again(engine: Engine, store: ModelStore) -> None:
    store.publish("one", models.checkpoint(3))
    assert await asked(engine, "one", "one@1") == [1, 1]
    store.publish("one", models.checkpoint(4))
    assert engine.residency.unload("one") == [store.resolve("one@1")]
    assert await asked(engine, "one") == [2]


async def test_memory_is_counted_and_grows_with_what_a_model_can_do(engine: Engine) -> None:
    model = engine.residency.default
    assert model is not None
    before = model.tensor_bytes()
    weights = sum(each.numel() * 4 for each in model._synthesizer.parameters())
    assert before > weights
    await engine.design(Recipe(), ears(8))
    assert model.tensor_bytes() > before + 8 * 16_385 * 2 * 8  # eight ears' pairs of spectra
    assert model.graph_bytes == 0  # nothing is recorded on a CPU


@pytest.mark.cuda
async def test_a_gpu_s_graphs_are_counted_and_freed(store: ModelStore) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    engine = Engine(store, torch.device("cuda"), default_model="live")
    engine.start()
    await engine.started()
    model = engine.residency.default
    assert model is not None
    assert model.graph_bytes > 0
    reserved = torch.cuda.memory_stats()["reserved_bytes.all.current"]
    store.publish("other", models.checkpoint(3))
    for _ in range(3):
        designs = asyncio.create_task(engine.design(Recipe(n_updates=3), ears(4)))
        await engine.residency.load("other")
        assert all(isinstance(each, Design) for each in await designs)
        engine.residency.unload("other")
    torch.cuda.empty_cache()
    assert torch.cuda.memory_stats()["reserved_bytes.all.current"] < 1.1 * reserved
    await engine.close()


async def test_each_thread_keeps_its_own_number_of_threads() -> None:
    def counted(n_threads: int) -> int:
        prepare_thread(n_threads)
        torch.ones(1 << 16).exp().sum()
        return torch.get_num_threads()

    assert await asyncio.to_thread(counted, 3) == 3
    found = await asyncio.gather(*(asyncio.to_thread(counted, n) for n in (1, 2, 3, 4)))
    assert found == [1, 2, 3, 4]


async def test_a_store_on_object_storage_is_copied_when_the_operator_says_so(
    store: ModelStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"memory://{tmp_path.name}/models"
    remote = Mirror(url, tmp_path / "unused")
    remote.push(store)
    app = create_app(
        Settings(
            store=url, store_cache=tmp_path / "cache", model="live", device="cpu", threads=1, design_process=False
        )
    )
    engine: Engine = app.state.service.engine
    async with app.router.lifespan_context(app):
        await engine.started()
        assert only(await engine.design(Recipe(), ears(1))).model.digest == store.resolve("ears@1").digest
        second = store.publish("ears", models.checkpoint(2))
        store.set_alias("live", "ears@2")
        remote.push(store)
        with pytest.raises(UnknownModel):  # a client's request does not reach the URL
            await engine.design(Recipe("ears@2"), ears(1))
        assert await engine.residency.reload() == []
        assert only(await engine.design(Recipe(), ears(1))).model.digest == second.digest
        fsspec.filesystem("memory").pipe_file(f"/{tmp_path.name}/models/ears/3/manifest.sha256", b"damaged")
        assert await engine.residency.reload() == ["the store"]
        assert only(await engine.design(Recipe(), ears(1))).model.digest == second.digest
        assert "used as it is" in caplog.text

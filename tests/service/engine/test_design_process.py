"""The process that designs: the same answers as in this one, and what becomes of them when it dies."""

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model_store.errors import CorruptCheckpoint, ModelStoreError
from model_store.store import ModelStore
from service.designs import Design, Ear, Evaluation, Figures, Recipe
from service.engine import engine as engine_module
from service.engine import readiness as readiness_module
from service.engine.design_process import DesignProcess, DesignProcessDied, Life, ModelApart
from service.engine.design_worker import LANES, Lane
from service.engine.engine import Engine
from service.engine.readiness import Verdict
from service.engine.resident import ResidentModel
from service.errors import Problem
from synthesis.errors import InvalidPaths
from synthesis.gauss_newton import PROFILES
from synthesis.synthesizer import METHODS
from tests.service import models

CPU = torch.device("cpu")
RECIPES = [Recipe(method=each) for each in METHODS] + [Recipe(n_updates=2, profile=each) for each in PROFILES]


@pytest.fixture(scope="module")
def home() -> Iterator[DesignProcess]:
    """A process of these tests' own, for models that stay well."""
    home = DesignProcess(1)
    yield home
    home.close()


@pytest.fixture(scope="module")
def model(home: DesignProcess, store_folder: Path) -> ModelApart:
    """The second version of `ears`."""
    store = ModelStore(store_folder, include_bundled=False)
    return home.load(store, store.resolve("ears"), CPU)


@pytest.fixture(scope="module")
def beside(store_folder: Path) -> ResidentModel:
    """The same in this process."""
    store = ModelStore(store_folder, include_bundled=False)
    return ResidentModel.load(store, store.resolve("ears"), CPU)


def ears() -> list[Ear]:
    """Two ears, one of them in the other sign and with a coherence, around one that nothing fits."""
    (first, second), (third, fourth) = models.responses(1), models.responses(2)
    wild = np.zeros(32_769, np.complex64)
    wild[::2] = 1  # an impulse halfway along twice the design grid's length
    return [
        Ear(first.numpy(), second.numpy()),
        Ear(wild, wild),
        Ear(third.numpy(), fourth.numpy(), models.coherence(2).numpy(), sign="plus", max_gain_db=10.0),
    ]


def is_same(found: Figures, expected: Figures) -> bool:
    """Bit by bit."""
    return all(np.array_equal(getattr(found, each.name), getattr(expected, each.name)) for each in fields(Figures))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda each: f"{each.method}-{each.n_updates}-{each.profile}")
def test_it_designs_what_this_process_designs(model: ModelApart, beside: ResidentModel, recipe: Recipe) -> None:
    found, expected = model.design(recipe, ears()), beside.design(recipe, ears())
    for own, other in zip(found[::2], expected[::2], strict=True):
        assert isinstance(own, Design)
        assert isinstance(other, Design)
        assert np.array_equal(own.taps, other.taps)
        assert (own.taps.dtype, own.taps.flags.writeable) == (np.float32, True)
        assert (own.model, own.recipe, own.sign) == (other.model, other.recipe, other.sign)
        assert (own.refinement, own.replaces) == (other.refinement, other.replaces)
        assert own.times_ms.keys() == other.times_ms.keys()
        assert is_same(own.figures, other.figures)
    for each in (found[1], expected[1]):
        assert isinstance(each, InvalidPaths)
        assert each.field == "primary"
    assert str(found[1]) == str(expected[1])


def test_it_evaluates_what_this_process_evaluates(model: ModelApart, beside: ResidentModel) -> None:
    whole = ears()[::2]
    filters = [each.taps for each in beside.design(Recipe(), whole) if isinstance(each, Design)]
    for own, other in zip(model.evaluate(whole, filters), beside.evaluate(whole, filters), strict=True):
        assert isinstance(own, Evaluation)
        assert isinstance(other, Evaluation)
        assert is_same(own.figures, other.figures)
        assert own.model == other.model


def test_it_says_of_itself_what_the_model_here_says(
    home: DesignProcess, model: ModelApart, beside: ResidentModel
) -> None:
    assert 0 < model.check() < 60
    assert model.tensor_bytes() == beside.tensor_bytes()
    assert np.array_equal(model.golden_ear.primary, beside.golden_ear.primary)
    assert model.scored_noise_reduction_db == beside.scored_noise_reduction_db
    assert home.resident_bytes() > 10_000_000


def test_what_is_loaded_does_not_hold_up_what_is_designed(
    home: DesignProcess, model: ModelApart, store_folder: Path
) -> None:
    store, loaded = ModelStore(store_folder, include_bundled=False), list[ModelApart]()
    loader = threading.Thread(target=lambda: loaded.append(home.load(store, store.resolve("other"), CPU)))
    loader.start()
    n_designed = 0
    while loader.is_alive():
        model.design(Recipe(), ears()[:1])
        n_designed += 1
    loader.join()
    assert n_designed > 1  # had they waited for one another it would have been one
    assert isinstance(loaded[0].design(Recipe(), ears()[:1])[0], Design)


def test_a_damaged_checkpoint_is_refused_as_here_and_the_others_go_on(
    home: DesignProcess, model: ModelApart, tmp_path: Path
) -> None:
    store = ModelStore(tmp_path, include_bundled=False)
    version = store.publish("torn", models.checkpoint(4))
    weights = next(version.folder.glob("*.safetensors"))
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.chmod(0o644)
    weights.write_bytes(content)
    with pytest.raises(RuntimeError, match="torn/1/") as found:
        home.load(store, version, CPU)
    with pytest.raises(CorruptCheckpoint) as expected:
        ResidentModel.load(store, version, CPU)
    assert str(expected.value) in str(found.value)
    assert "design_worker" in "".join(found.value.__notes__)  # where it came from, for the log
    assert model.check() > 0


def test_a_model_that_nobody_holds_is_freed(home: DesignProcess, model: ModelApart, store_folder: Path) -> None:
    store = ModelStore(store_folder, include_bundled=False)
    retired = home.load(store, store.resolve("other"), CPU)
    life, key = home.life(), retired._key
    retired.check()
    del retired
    gc.collect()
    model.check()  # with which it is said
    with pytest.raises(RuntimeError, match=f"KeyError: {key}"):
        life.ask("designs", "check", key)


def killed(home: DesignProcess) -> None:
    """Kill it, and wait until that is known."""
    life = home.life()
    assert life.process.pid is not None
    os.kill(life.process.pid, signal.SIGKILL)
    while not life.has_died:
        time.sleep(1e-3)


def test_one_that_dies_is_replaced_and_its_models_answer_on(store_folder: Path) -> None:
    home, told = DesignProcess(1), threading.Event()
    home.on_death = told.set
    try:
        store = ModelStore(store_folder, include_bundled=False)
        model = home.load(store, store.resolve("ears"), CPU)
        (before,) = model.design(Recipe(n_updates=1), ears()[:1])
        killed(home)
        assert told.wait(10)
        (after,) = model.design(Recipe(n_updates=1), ears()[:1])
        assert isinstance(before, Design)
        assert isinstance(after, Design)
        assert np.array_equal(before.taps, after.taps)
        # In the middle of a design, too, which is then made by the next one.
        life, answers = home.life(), list[object]()
        asking = threading.Thread(target=lambda: answers.extend(model.design(Recipe(n_updates=8), ears()[:1] * 32)))
        asking.start()
        while not life._taken["designs"].locked():
            time.sleep(1e-4)
        killed(home)
        asking.join()
        assert len(answers) == 32
        assert all(isinstance(each, Design) for each in answers)
        assert home.n_deaths == 2
    finally:
        home.close()
    with pytest.raises(DesignProcessDied, match="closed"):
        model.check()
    assert home.n_deaths == 2  # to end it is no death


class Unreadable:
    """Nothing comes of it at the other end of a pipe."""

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return int, ("not a number",)


@pytest.mark.parametrize("lane", LANES)
def test_a_lane_that_fails_takes_the_process_along(lane: Lane) -> None:
    """Who asks it next is not to wait for ever."""
    home = DesignProcess(1)
    try:
        with pytest.raises(DesignProcessDied):
            home.life().ask(lane, "check", 0, Unreadable())
    finally:
        home.close()


def test_where_no_process_can_be_started_there_is_none_for_now(
    store_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, store = DesignProcess(1), ModelStore(store_folder, include_bundled=False)

    def refused(self: DesignProcess) -> Life:
        raise BlockingIOError("Resource temporarily unavailable")

    try:
        model = home.load(store, store.resolve("ears"), CPU)
        killed(home)
        with monkeypatch.context() as patch:
            patch.setattr(DesignProcess, "_begun", refused)
            with pytest.raises(DesignProcessDied, match="no way to start"):
                model.design(Recipe(), ears()[:1])
        assert isinstance(model.design(Recipe(), ears()[:1])[0], Design)
    finally:
        home.close()


def test_a_model_that_its_process_took_along_and_the_store_lost_is_no_defect(tmp_path: Path) -> None:
    home, store = DesignProcess(1), ModelStore(tmp_path, include_bundled=False)
    version = store.publish("ears", models.checkpoint(1))
    try:
        model = home.load(store, version, CPU)
        version.folder.rename(tmp_path / "elsewhere")
        assert model.check() > 0
        killed(home)
        with pytest.raises(ModelStoreError, match="gone or damaged"):
            model.design(Recipe(), ears()[:1])
    finally:
        home.close()


@pytest.fixture
async def engine(store_folder: Path, anyio_backend: str) -> AsyncIterator[Engine]:
    """An engine whose models live in a process of their own."""
    store = ModelStore(store_folder, include_bundled=False)
    engine = Engine(store, CPU, default_model="ears", apart=True)
    engine.start()
    await engine.started()
    yield engine
    await engine.close()


@pytest.mark.anyio
async def test_an_engine_whose_process_has_died_is_well_again_by_itself(engine: Engine) -> None:
    assert engine.process is not None
    assert engine.ready
    n_checks = engine.readiness.n_checks["passed"]
    await asyncio.to_thread(killed, engine.process)
    was_ready = []
    while engine.readiness.n_checks["passed"] == n_checks:  # nobody has asked for a design
        await asyncio.sleep(0.01)
        was_ready.append(engine.ready)
    assert not all(was_ready)  # but a balancer was told to ask elsewhere
    began = time.perf_counter()
    (design,) = await engine.design(Recipe(), ears()[:1])
    assert isinstance(design, Design)
    assert time.perf_counter() - began < 2.0  # it takes longer to begin a process
    assert engine.ready


@pytest.mark.anyio
async def test_processes_that_die_one_after_the_other_are_checked_one_at_a_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check may cost two of them their lives: of a check for each life there would be ever more."""
    n_checks, go_on = 0, asyncio.Event()

    async def check() -> Verdict:
        nonlocal n_checks
        n_checks += 1
        await go_on.wait()
        return "failed"

    monkeypatch.setattr(engine.readiness, "check", check)
    for _ in range(3):
        engine._begin_again()
        await asyncio.sleep(0)
    assert n_checks == 1
    go_on.set()
    assert engine._beginning_again is not None
    await engine._beginning_again
    engine._begin_again()  # another death, later
    await engine._beginning_again
    assert n_checks == 2


@pytest.mark.anyio
async def test_a_process_that_hangs_is_replaced(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer of its successor is late, and comes."""
    assert engine.process is not None
    patience_s = readiness_module.STALLED_AFTER_S
    monkeypatch.setattr(readiness_module, "STALLED_AFTER_S", 0.2)  # less than it takes to begin the next one
    engine.process.on_death = partial(setattr, readiness_module, "STALLED_AFTER_S", patience_s)
    pid = engine.process.life().process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    asked = asyncio.create_task(engine.design(Recipe(), ears()[:1]))
    await asyncio.sleep(0.1)
    await engine.readiness.check()
    assert engine.readiness.n_checks["stalled"] > 0
    assert isinstance((await asked)[0], Design)
    assert engine.process.n_deaths == 1
    assert engine.ready


@pytest.mark.anyio
async def test_the_end_does_not_wait_for_a_process_that_hangs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.process is not None
    monkeypatch.setattr(engine_module, "ENDS_WITHIN_S", 0.2)
    pid = engine.process.life().process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    asked = asyncio.create_task(engine.design(Recipe(), ears()[:1]))
    await asyncio.sleep(0.1)
    await asyncio.wait_for(engine.close(), 10)
    with pytest.raises(Problem, match="dead"):
        await asked


@pytest.mark.anyio
async def test_a_default_model_whose_loads_died_is_loaded_a_round_later(
    store_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice, as where memory is short at the start: the checkpoint is none the worse for it."""
    n_attempts = 0

    def dying(home: DesignProcess, *given: Any) -> ModelApart:
        nonlocal n_attempts
        n_attempts += 1
        if n_attempts == 1:
            killed(home)
            home.life()
            killed(home)
            raise DesignProcessDied
        return ModelApart(home, *given)

    monkeypatch.setattr(DesignProcess, "load", dying)
    store = ModelStore(store_folder, include_bundled=False)
    engine = Engine(store, CPU, default_model="ears", apart=True, recheck_s=0.1)
    engine.start()
    try:
        await engine.started()
        assert n_attempts == 2
        assert isinstance((await engine.design(Recipe(), ears()[:1]))[0], Design)
    finally:
        await engine.close()


@pytest.mark.anyio
async def test_a_batch_over_which_it_dies_twice_is_refused_for_now(engine: Engine) -> None:
    """As where memory is so short that the system ends whatever takes more."""
    assert engine.process is not None
    stop = threading.Event()

    def kill_what_designs() -> None:
        while not stop.is_set():
            life = engine.process and engine.process._life
            if life and life._taken["designs"].locked() and life.process.pid:
                with suppress(ProcessLookupError):
                    os.kill(life.process.pid, signal.SIGKILL)
            time.sleep(1e-3)

    killer = threading.Thread(target=kill_what_designs)
    killer.start()
    try:
        with pytest.raises(Problem, match="dead, twice") as refused:
            await engine.design(Recipe(n_updates=8), ears()[:1] * 32)
    finally:
        stop.set()
        killer.join()
    assert (refused.value.status, refused.value.code) == (503, "overloaded")
    assert not engine.is_busy
    assert isinstance((await engine.design(Recipe(), ears()[:1]))[0], Design)

"""The engine: batches, residency, its queue, and answers that are their owner's alone."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from starlette.requests import ClientDisconnect

from model_store.errors import InvalidName, UnknownModel
from model_store.store import ModelStore
from service.admission.design_times import DesignTimes
from service.designs import MAX_BATCH, Design, Ear, Evaluation, Recipe
from service.engine.engine import Engine, choose_device
from service.engine.resident import ResidentModel
from service.errors import Problem
from service.settings import Settings
from synthesis.errors import InvalidPaths, NonFiniteFilter
from synthesis.gauss_newton import PROFILES
from synthesis.synthesizer import METHODS
from tests.service import models

pytestmark = pytest.mark.anyio

SAME_IN_A_BATCH = 1e-3
"""Relative to the largest tap: operators on several rows at once add in another order, which updates amplify."""


@pytest.fixture(scope="module")
async def engine(settings: Settings, anyio_backend: str) -> AsyncIterator[Engine]:
    """An engine of these tests' own."""
    engine = Engine(ModelStore(settings.store), torch.device("cpu"), default_model="ears", max_resident_models=2)
    engine.start()
    await engine.started()
    yield engine
    await engine.close()


def ears(n: int) -> list[Ear]:
    """Ears with and without a coherence, in both signs."""
    found = []
    for seed in range(n):
        primary, secondary = (each.numpy() for each in models.responses(seed))
        coherence = models.coherence(seed).numpy() if seed % 2 else None
        found.append(Ear(primary, secondary, coherence, sign="plus" if seed % 3 == 2 else "minus"))
    return found


def only(answers: list[object]) -> Design:
    """The one design among the answers."""
    (answer,) = answers
    assert isinstance(answer, Design)
    return answer


@pytest.mark.parametrize("n", [1, 2, 3, 5, MAX_BATCH])
@pytest.mark.parametrize("method", METHODS)
async def test_a_batch_equals_its_members_alone(engine: Engine, n: int, method: str) -> None:
    recipe = Recipe(method=method, n_updates=1)
    together = await engine.design(recipe, ears(n))
    assert len(together) == n
    for ear, found in zip(ears(n), together, strict=True):
        assert isinstance(found, Design)
        alone = only(await engine.design(recipe, [ear]))
        difference = np.abs(found.taps - alone.taps).max() / np.abs(alone.taps).max()
        assert difference < SAME_IN_A_BATCH
        assert found.figures.basis == alone.figures.basis == ("model" if ear.coherence is None else "coherence")
        assert found.figures.mean_noise_reduction_db == pytest.approx(
            alone.figures.mean_noise_reduction_db, abs=0.05
        )
        assert found.refinement["applied"] == alone.refinement["applied"]
        assert found.sign == ear.sign


async def test_one_ear_s_fault_is_its_own(engine: Engine) -> None:
    good = ears(1)[0]
    late = np.zeros(65_536)
    late[[0, 50_000]] = 1.0
    too_long = replace(good, primary=np.fft.rfft(late).astype(np.complex64))
    too_large = replace(good, primary=np.full(8, 3e38, np.float32))
    answers = await engine.design(Recipe(), [too_long, good, too_large, good])
    assert isinstance(answers[0], InvalidPaths)
    assert answers[0].field == "primary"
    assert isinstance(answers[2], NonFiniteFilter)
    alone = only(await engine.design(Recipe(), [good]))
    for found in (answers[1], answers[3]):
        assert isinstance(found, Design)
        assert np.allclose(found.taps, alone.taps, atol=1e-5)


async def test_answers_are_copies(engine: Engine) -> None:
    first, second = ears(2)
    answer = only(await engine.design(Recipe(), [first]))
    (figures,) = await engine.evaluate(None, [first], [answer.taps])
    assert isinstance(figures, Evaluation)
    kept = (answer.taps.copy(), answer.figures.noise_reduction_db.copy(), figures.figures.noise_reduction_db.copy())
    await engine.design(Recipe(), [second])
    await engine.evaluate(None, [second], [np.zeros(2048, np.float32)])
    assert np.array_equal(answer.taps, kept[0])
    assert np.array_equal(answer.figures.noise_reduction_db, kept[1])
    assert np.array_equal(figures.figures.noise_reduction_db, kept[2])


async def test_models_come_on_demand_and_the_default_one_stays(engine: Engine) -> None:
    for reference, name, version in (("other", "other", 1), ("ears@1", "ears", 1), ("other@1", "other", 1)):
        answer = only(await engine.design(Recipe(reference), ears(1)))
        assert (answer.model.name, answer.model.version) == (name, version)
        resident = [(each.name, each.version) for each in engine.residency.versions()]
        assert resident == [("ears", 2), (name, version)]  # two in memory, the default one among them
    assert only(await engine.design(Recipe("ears@2"), ears(1))).model == engine.residency.versions()[0]
    assert len(engine.residency.versions()) == 2


@pytest.mark.parametrize(
    ("reference", "error"), [("nobody", UnknownModel), ("ears@7", UnknownModel), ("../x", InvalidName)]
)
async def test_an_unknown_model_is_refused(engine: Engine, reference: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        await engine.design(Recipe(reference), ears(1))
    assert engine.n_queued == 0
    only(await engine.design(Recipe(), ears(1)))


async def test_the_loop_goes_on_while_the_worker_designs(engine: Engine) -> None:
    """Between two turns of the loop there is never anything like the time of the whole design."""
    began = time.perf_counter()
    design = asyncio.ensure_future(engine.design(Recipe(n_updates=6), ears(8)))
    longest, before = 0.0, time.perf_counter()
    while not design.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, before = max(longest, now - before), now
    assert len(await design) == 8
    assert longest < 0.5 * (time.perf_counter() - began)


async def test_calls_to_the_worker_do_not_pile_up_while_work_keeps_coming(engine: Engine) -> None:
    """Alike designs merge: with a call for each job, every batch would leave some behind, to find the next ones."""
    largest = 0

    async def client() -> None:
        nonlocal largest
        for _ in range(12):
            only(await engine.design(Recipe(), ears(1)))
            largest = max(largest, engine._worker._work_queue.qsize())

    await asyncio.gather(*(client() for _ in range(8)))
    assert largest <= 2  # the next call, and the model's check


async def test_a_job_that_waits_when_it_is_due_is_answered_then(engine: Engine) -> None:
    """However long the worker is busy with what came before."""
    go_on = threading.Event()
    engine._worker.submit(go_on.wait, 60)
    try:
        with pytest.raises(Problem) as found:
            await engine.design(Recipe(), ears(1), due=time.perf_counter() + 0.2)
    finally:
        go_on.set()
    assert found.value.code == "deadline-passed"
    only(await engine.design(Recipe(), ears(1)))


async def test_waiting_is_counted_as_queue(engine: Engine) -> None:
    """Different recipes, so that one is designed after the other."""
    answers = await asyncio.gather(*(engine.design(Recipe(n_updates=k), ears(1)) for k in range(4)))
    waited = [only(each).times_ms["queue"] for each in answers]
    core = [sum(spent for stage, spent in only(each).times_ms.items() if stage != "queue") for each in answers]
    for index in range(1, 4):  # the first began while the others were handed over
        assert waited[index] >= sum(core[1:index]) * 0.9
    assert engine.n_queued == 0


async def test_what_waits_together_is_designed_together(engine: Engine) -> None:
    """While one design runs others come: alike ones share a batch, and each gets the filter of its own ear."""
    asked = ears(9)
    alone = [only(await engine.design(Recipe(), [ear])) for ear in asked]
    answers = await asyncio.gather(*(engine.design(Recipe(), [ear]) for ear in asked))
    for found, expected in zip(map(only, answers), alone, strict=True):
        difference = np.abs(found.taps - expected.taps).max() / np.abs(expected.taps).max()
        assert difference < SAME_IN_A_BATCH
    starts = {id(each.taps.base) for each in map(only, answers) if each.taps.base is not None}
    assert len(starts) < len(asked)  # views of few arrays: of few batches


async def test_a_deadline_cuts_the_updates_and_says_so(engine: Engine) -> None:
    recipe = Recipe(n_updates=8)
    for _ in range(3):
        whole = only(await engine.design(recipe, ears(1)))
    assert whole.refinement["stopped"] != "deadline"
    times = engine._queue.times
    half_s = (times.expected_s(Recipe()) + times.expected_s(recipe)) / 2
    design = only(await engine.design(recipe, ears(1), time.perf_counter() + half_s))
    assert design.refinement["requested"] == 8
    # How many are left depends on what the machine does meanwhile; `most_updates` has tests of its own.
    assert design.refinement["applied"] < 8
    assert design.refinement["stopped"] == "deadline"
    assert len(design.refinement["objective"]) == design.refinement["applied"] + 1
    assert len(design.refinement["step_scale"]) == design.refinement["applied"]


async def begun(engine: Engine) -> "asyncio.Future[list[object]]":
    """A long design that the worker is at."""
    running = asyncio.ensure_future(engine.design(Recipe(n_updates=8), ears(16)))
    while engine._queue._busy_until is None:
        await asyncio.sleep(0)
    return running


async def test_a_device_that_is_full_sheds_a_batch_and_goes_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a GPU is whose memory others take; what follows is designed."""

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as while_full:
        while_full.setattr(ResidentModel, "design", full)
        for _ in range(2):
            with pytest.raises(Problem, match="no room") as refused:
                await engine.design(Recipe(), ears(2))
            assert (refused.value.status, refused.value.code) == (503, "overloaded")
            assert not engine.is_busy
    assert len(await engine.design(Recipe(), ears(2))) == 2


async def test_what_estimates_speak_against_is_refused_and_designed_for_its_time(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, made = DesignTimes(), list[int]()
    times.observe(Recipe(), 1, 60.0, 0.0)  # of a bad moment
    monkeypatch.setattr(engine._queue, "times", times)
    monkeypatch.setattr(engine, "on_batch", made.append)
    with pytest.raises(Problem) as refused:
        await engine.design(Recipe(), ears(1), time.perf_counter() + 30.0)
    assert refused.value.code == "overloaded"
    while engine.is_busy:
        await asyncio.sleep(1e-3)
    assert (made, engine.n_queued) == ([1], 0)
    only(await engine.design(Recipe(), ears(1), time.perf_counter() + 30.0))  # as one was just made in time


async def test_the_time_of_every_design_is_known_before_anybody_asks(settings: Settings) -> None:
    """Else the first one of a kind would be let in whatever its deadline."""
    engine = Engine(ModelStore(settings.store), torch.device("cpu"), default_model="ears")
    engine.start()
    await engine.started()
    times = engine._queue.times
    known = [times.expected_s(Recipe(method=each)) for each in METHODS]
    known += [times.expected_s(Recipe(n_updates=1, profile=each)) - times.expected_s(Recipe()) for each in PROFILES]
    assert min(known) > 0
    await engine.close()


async def test_a_deadline_that_passes_while_waiting_is_not_designed(engine: Engine) -> None:
    """The estimate is wrong, as one after a long quiet may be: the queue itself takes longer than the deadline."""
    running = await begun(engine)
    waiting = asyncio.ensure_future(engine.design(Recipe(), ears(1), time.perf_counter() + 60))
    await asyncio.sleep(0)
    (group,) = engine._queue._groups.values()
    group[0].due = time.perf_counter()
    with pytest.raises(Problem) as refused:
        await waiting
    assert refused.value.code == "deadline-passed"
    assert refused.value.headers == {"Retry-After": "1"}
    assert len(await running) == 16
    assert engine.n_queued == 0


async def test_who_goes_away_frees_his_place(engine: Engine) -> None:
    running = await begun(engine)
    gone = asyncio.Event()
    waiting = [asyncio.ensure_future(engine.design(Recipe(), ears(1), gone=gone.wait)) for _ in range(3)]
    cancelled = asyncio.ensure_future(engine.design(Recipe(n_updates=1), ears(1)))
    await asyncio.sleep(0.001)
    assert engine.n_queued == 5
    gone.set()
    cancelled.cancel()
    for each in waiting:
        with pytest.raises(ClientDisconnect):
            await each
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert engine.n_queued == 1
    assert engine._queue.withdraw_all() == []
    assert not running.done()
    assert len(await running) == 16


async def test_the_estimates_are_those_of_what_ran(engine: Engine) -> None:
    answers = [only(await engine.design(Recipe(n_updates=2), ears(1))) for _ in range(16)]
    spent = sorted(sum(each.times_ms.values()) - each.times_ms["queue"] for each in answers)
    expected_ms = 1e3 * engine._queue.times.expected_s(Recipe(n_updates=2))
    assert spent[0] / 2 < expected_ms < 2 * spent[-1]


async def test_nothing_is_designed_before_it_is_ready(settings: Settings) -> None:
    engine = Engine(ModelStore(settings.store), torch.device("cpu"), default_model="ears")
    with pytest.raises(Problem) as refused:
        await engine.design(Recipe(), ears(1))
    assert refused.value.code == "not-ready"
    assert engine.residency.versions() == []
    await engine.close()


async def test_closing_finishes_what_runs_and_refuses_what_waits(settings: Settings) -> None:
    engine = Engine(ModelStore(settings.store), torch.device("cpu"), default_model="ears")
    engine.start()
    await engine.started()
    running = await begun(engine)
    waiting = asyncio.ensure_future(engine.design(Recipe(), ears(1)))
    await asyncio.sleep(0)
    await engine.close()
    with pytest.raises(Problem) as refused:
        await waiting
    assert refused.value.code == "not-ready"
    assert all(isinstance(each, Design) for each in await running)


def test_the_device_is_the_one_asked_for() -> None:
    assert choose_device("cpu").type == "cpu"
    there = torch.cuda.is_available()
    assert choose_device("auto").type == ("cuda" if there else "cpu")
    if there:
        assert choose_device("cuda").type == "cuda"
    else:
        with pytest.raises(ValueError, match="found no CUDA device"):
            choose_device("cuda")


@pytest.mark.cuda
async def test_a_gpu_gives_the_cpu_s_filters(settings: Settings) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    found = {}
    for device in ("cpu", "cuda"):
        engine = Engine(ModelStore(settings.store), torch.device(device), default_model="ears")
        engine.start()
        await engine.started()
        assert engine.ready
        recipes = [Recipe(method=method, n_updates=k) for method in METHODS for k in (0, 1, 3)]
        found[device] = [only(await engine.design(recipe, ears(1))) for recipe in recipes]
        await engine.close()
    for cpu, cuda in zip(found["cpu"], found["cuda"], strict=True):
        assert np.abs(cpu.taps - cuda.taps).max() < 1e-2 * np.abs(cpu.taps).max()
        assert cpu.figures.mean_noise_reduction_db == pytest.approx(cuda.figures.mean_noise_reduction_db, abs=0.05)
        assert all(spent >= 0 for spent in cuda.times_ms.values())


@pytest.mark.cuda
async def test_a_gpu_without_room_sheds_and_recovers(settings: Settings) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    engine = Engine(ModelStore(settings.store), torch.device("cuda"), default_model="ears")
    engine.start()
    await engine.started()
    before = only(await engine.design(Recipe(), ears(1)))
    assert engine.residency.default is not None
    del engine.residency.default._schedules[MAX_BATCH]  # so that it must be recorded again
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 2**20) / total)
    try:
        with pytest.raises(Problem) as refused:
            await engine.design(Recipe(n_updates=8, profile="paper"), ears(MAX_BATCH))
        assert refused.value.code == "overloaded"
        after = only(await engine.design(Recipe(), ears(1)))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert np.array_equal(before.taps, after.taps)
    assert len(await engine.design(Recipe(n_updates=8, profile="paper"), ears(MAX_BATCH))) == MAX_BATCH
    await engine.close()

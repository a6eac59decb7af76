"""The queue in front of the worker: what is let in, what is taken together, what is forgotten."""

import asyncio
import math
from functools import cache
from pathlib import Path
from time import perf_counter

import pytest
import torch

from model_store.store import ModelVersion
from service.admission.design_times import N_REMEMBERED
from service.designs import Ear, Recipe
from service.engine import design_queue
from service.engine.design_queue import DesignQueue, Job
from service.engine.resident import ResidentModel
from service.errors import Problem
from tests.service import models

pytestmark = pytest.mark.anyio

SINGLE_S, UPDATE_S, PER_EAR_IN_BATCH_S = 1.0, 0.5, 0.5
"""Long against what a test takes, so that no machine is too slow for these."""


@cache
def model(seed: int = 1) -> ResidentModel:
    """A model for jobs to refer to."""
    version = ModelVersion("ears", seed, Path(), "sha256:" + "0" * 64)
    return ResidentModel(version, models.checkpoint(seed), torch.device("cpu"))


@pytest.fixture
def queue() -> DesignQueue:
    """A queue that knows what `prime` takes."""
    queue = DesignQueue()
    queue.times.observe(Recipe(), 1, SINGLE_S, 0.0)
    queue.times.observe(Recipe(n_updates=1), 1, SINGLE_S + UPDATE_S, UPDATE_S)
    for size in (2, 4, 8, 16):
        queue.times.observe(Recipe(), size, PER_EAR_IN_BATCH_S * size, 0.0)
        queue.times.observe(Recipe(n_updates=1), size, (PER_EAR_IN_BATCH_S + UPDATE_S) * size, UPDATE_S * size)
    return queue


def job(recipe: Recipe, due_in_s: float = math.inf, n_ears: int = 1) -> Job:
    primary, secondary = (each.numpy() for each in models.responses(1))
    answer = asyncio.get_running_loop().create_future()
    return Job(model(), recipe, [Ear(primary, secondary)] * n_ears, perf_counter() + due_in_s, answer)


def assert_refused(job: Job) -> None:
    refusal = job.answer.exception()
    assert isinstance(refusal, Problem)
    assert refusal.code == "overloaded"


def put(queue: DesignQueue, *jobs: Job) -> None:
    for each in jobs:
        queue.put(each)


async def test_what_waits_and_is_alike_is_taken_together_oldest_first(queue: DesignQueue) -> None:
    recipes = (Recipe(), Recipe(n_updates=1), Recipe(), Recipe())
    first, other, second, third = map(job, recipes)
    put(queue, first, other, second, third)
    assert queue.take() == ([first, second], [])  # three would leave a row of four empty
    queue.done()
    assert queue.take() == ([other], [])
    queue.done()
    assert queue.take() == ([third], [])
    assert queue.take() == ([], [])


@pytest.mark.parametrize(("n_waiting", "taken"), [(1, 1), (3, 2), (5, 4), (15, 8), (16, 16), (40, 32)])
async def test_a_batch_has_no_row_to_spare(queue: DesignQueue, n_waiting: int, taken: int) -> None:
    put(queue, *(job(Recipe()) for _ in range(n_waiting)))
    assert len(queue.take()[0]) == taken


@pytest.mark.parametrize(("n_waiting", "taken"), [(1, 1), (3, 3), (31, 31), (40, 32)])
async def test_where_rows_to_spare_take_no_time_all_go_together(n_waiting: int, taken: int) -> None:
    queue = DesignQueue(spares_rows=True)
    put(queue, *(job(Recipe()) for _ in range(n_waiting)))
    assert len(queue.take()[0]) == taken


async def test_jobs_of_several_ears_keep_together(queue: DesignQueue) -> None:
    jobs = [job(Recipe(), n_ears=n) for n in (3, 2, 3, 16)]
    put(queue, *jobs)
    assert queue.take()[0] == jobs[:3]  # 3 + 2 + 3 fill a batch of 8
    assert queue.take()[0] == jobs[3:]


async def test_models_are_not_mixed(queue: DesignQueue) -> None:
    """As they are in a swap: two that go by one name."""
    first, second = job(Recipe()), job(Recipe())
    second.model = model(2)
    put(queue, first, second)
    assert queue.take()[0] == [first]
    assert queue.take()[0] == [second]


async def test_nobody_s_deadline_is_missed_for_company(queue: DesignQueue) -> None:
    hurried = job(Recipe(), due_in_s=1.2)  # enough for two together, not for four
    put(queue, hurried, *(job(Recipe()) for _ in range(7)))
    assert len(queue.take()[0]) == 2


async def test_the_deadline_decides_on_the_updates(queue: DesignQueue) -> None:
    for due_in_s, n_updates in ((0.9, None), (1.4, 0), (1.9, 1), (2.4, 2), (9.0, 8)):
        asked = job(Recipe(n_updates=8), due_in_s)
        if n_updates is None:
            design_queue_is_busy = job(Recipe())
            put(queue, design_queue_is_busy)
            with pytest.raises(Problem) as refused:
                queue.put(asked)
            assert refused.value.code == "overloaded"
            queue.withdraw(design_queue_is_busy)
        else:
            queue.put(asked)
            assert (asked.recipe.n_updates, asked.n_asked) == (n_updates, 8)
            queue.withdraw(asked)


async def test_what_is_queued_and_what_runs_counts(queue: DesignQueue) -> None:
    put(queue, job(Recipe()), job(Recipe()))
    assert queue.backlog_s() == pytest.approx(2 * PER_EAR_IN_BATCH_S)
    queue.take()
    assert queue.backlog_s() == pytest.approx(2 * PER_EAR_IN_BATCH_S, rel=0.1)
    put(queue, job(Recipe(n_updates=1)))
    assert queue.backlog_s() == pytest.approx(2 * PER_EAR_IN_BATCH_S + SINGLE_S + UPDATE_S, rel=0.1)
    with pytest.raises(Problem) as refused:
        queue.put(job(Recipe(), due_in_s=3.0))
    assert refused.value.headers == {"Retry-After": "3"}
    with pytest.raises(Problem):
        queue.refuse_hopeless(perf_counter() + 2.0)
    queue.refuse_hopeless(perf_counter() + 3.0 / design_queue.PLANNED)
    queue.done()
    queue.put(job(Recipe(), due_in_s=3.0 / design_queue.PLANNED))


async def test_a_deadline_that_passes_in_the_queue_is_not_designed(queue: DesignQueue) -> None:
    late, good = job(Recipe(), due_in_s=1.2), job(Recipe())
    put(queue, late, good)
    late.due = perf_counter()
    assert queue.take() == ([good], [late])


async def test_who_has_waited_longer_than_was_expected_gets_fewer_updates(queue: DesignQueue) -> None:
    for left_s, n_updates in ((9.0, 3), (1.8, 1), (0.5, 0)):  # the last will be late, but was promised
        admitted = job(Recipe(n_updates=3), due_in_s=9.0)
        put(queue, admitted)
        admitted.due = perf_counter() + left_s
        assert queue.take() == ([admitted], [])
        assert (admitted.recipe.n_updates, admitted.n_asked) == (n_updates, 3)
        queue.done()


async def test_what_is_withdrawn_is_forgotten(queue: DesignQueue) -> None:
    first, second = job(Recipe()), job(Recipe())
    put(queue, first, second)
    queue.withdraw(first)
    queue.withdraw(first)
    assert queue.backlog_s() == pytest.approx(SINGLE_S)
    assert queue.take()[0] == [second]
    queue.withdraw(second)
    assert queue.backlog_s() == pytest.approx(SINGLE_S, rel=0.1)  # too late: it runs


async def test_an_idle_worker_tries_again_what_its_estimates_speak_against(
    queue: DesignQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(design_queue, "PROBE_EVERY_S", 0.0)
    tried = job(Recipe(n_updates=3), due_in_s=0.01)
    queue.put(tried)
    assert_refused(tried)  # at once: it is designed for its time alone, however late
    assert not queue.withdraw(tried)
    with pytest.raises(Problem):  # but only one
        queue.put(job(Recipe(), due_in_s=0.01))
    ((found,), late) = queue.take()
    assert (found.recipe.n_updates, found.ears, late) == (0, tried.ears, [])
    queue.done()
    monkeypatch.setattr(design_queue, "PROBE_EVERY_S", 60.0)
    with pytest.raises(Problem) as refused:
        queue.put(job(Recipe(), due_in_s=0.01))
    assert refused.value.code == "overloaded"


async def test_what_is_due_already_is_never_tried(queue: DesignQueue) -> None:
    with pytest.raises(Problem) as refused:
        queue.put(job(Recipe(), due_in_s=-0.01))
    assert refused.value.code == "overloaded"


async def test_estimates_fill_a_part_of_a_deadline_where_others_wait(queue: DesignQueue) -> None:
    put(queue, job(Recipe(), 1.1 * SINGLE_S))  # alone, all of it
    both_s = 2 * PER_EAR_IN_BATCH_S
    with pytest.raises(Problem, match="designs before"):
        queue.put(job(Recipe(), 1.1 * both_s))
    with pytest.raises(Problem, match="designs before"):
        queue.refuse_hopeless(perf_counter() + 1.1 * SINGLE_S)
    put(queue, job(Recipe(), 1.1 * both_s / design_queue.PLANNED))


async def test_an_idle_worker_tries_what_was_done_in_time_lately(queue: DesignQueue) -> None:
    """After a busy moment, in which designs took ten times as long; one was quick."""
    for _ in range(N_REMEMBERED - 1):
        queue.times.observe(Recipe(), 1, 10 * SINGLE_S, 0.0)
    hurried = [job(Recipe(n_updates=1), 1.1 * SINGLE_S) for _ in range(3)]
    for each in hurried[:2]:
        queue.put(each)
        assert queue.take() == ([each], [])
        assert (each.recipe.n_updates, each.n_asked) == (0, 1)
        queue.done()
    queue.times.observe(Recipe(), 1, 10 * SINGLE_S, 0.0)  # the quick one is forgotten
    queue.put(hurried[2])  # once a second one is designed whatever is known, and refused
    assert_refused(hurried[2])
    assert len(queue.take()[0]) == 1
    queue.done()
    with pytest.raises(Problem, match="found 0 ms of designs before this one and 10000 ms of its own"):
        queue.put(job(Recipe(), 1.1 * SINGLE_S))

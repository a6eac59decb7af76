"""The queue in front of the workers: admission, batching, cancellation and expected times."""

import asyncio
import math
from dataclasses import replace
from time import perf_counter
from typing import Any

import pytest

from prime_anc.method.types import DesignOptions
from service.engine import job_queue
from service.engine.job_queue import N_REMEMBERED, PLANNED, Batch, Job, JobQueue, LatencyEstimator
from service.engine.types import RefusedJob
from service.engine.work import work_of

pytestmark = pytest.mark.anyio

# Long against what a test takes, so that no machine is too slow for these.
START_S, UPDATE_S = 20.0, 10.0  # no machine is so slow that its own delays count


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the limit on waiting above these times."""
    monkeypatch.setattr(job_queue, "LONGEST_WAIT_S", math.inf)


def run(ears: list[Any], options: DesignOptions | None) -> list[Any]:
    """A stand-in for the function of a job; it is never called."""
    return ears


def other_run(ears: list[Any], options: DesignOptions | None) -> list[Any]:
    """The same for another model."""
    return ears


def knowing(n_workers: int = 1, max_batch: int = 1) -> JobQueue:
    """A queue with known times of `prime`."""
    queue = JobQueue(n_workers, max_batch)
    queue._latency.observe(DesignOptions(n_updates=1), 1, START_S + UPDATE_S, UPDATE_S)
    return queue


def job(k: int = 0, due_in_s: float = math.inf, n_ears: int = 1, function: Any = run) -> Job:
    answer = asyncio.get_running_loop().create_future()
    return Job(function, DesignOptions(n_updates=k), list(range(n_ears)), answer, due=perf_counter() + due_in_s)


def taken(queue: JobQueue) -> Batch:
    return queue.take()


def jobs_of(batch: Batch) -> list[Job]:
    return [place for place, _ in batch.places]


async def test_ears_are_taken_in_order_of_arrival() -> None:
    queue, first, second = knowing(), job(n_ears=2), job()
    queue.put(first)
    queue.put(second)
    for owner, place in ((first, 0), (first, 1), (second, 0)):
        batch = taken(queue)
        assert batch.places == [(owner, place)]
        assert batch.problems == [owner.problems[place]]
        queue.done(batch, None)
    assert not queue.is_busy


async def test_equal_jobs_fill_batch() -> None:
    """Jobs of one model with equal options are batched across requests."""
    queue, first, other, later, third, of_another_model = (
        knowing(max_batch=4),
        job(n_ears=2),
        job(k=1),
        job(n_ears=3),
        job(),
        job(function=other_run),
    )
    for item in (first, other, later, third, of_another_model):
        queue.put(item)
    batch = taken(queue)
    assert batch.places == [(first, 0), (first, 1), (later, 0), (later, 1)]
    queue.done(batch, None)
    for expected in ([other], [later, third], [of_another_model]):
        batch = taken(queue)
        assert jobs_of(batch) == expected
        queue.done(batch, None)


@pytest.mark.parametrize(
    ("due_in_s", "n_ears", "n_updates"), [(28, 1, 0), (38, 1, 1), (48, 1, 2), (180, 1, 8), (144, 3, 2)]
)
async def test_deadline_decides_on_updates(due_in_s: float, n_ears: int, n_updates: int) -> None:
    queue, new = knowing(), job(8, due_in_s, n_ears)
    queue.put(new)
    batch = taken(queue)
    assert batch.options == DesignOptions(n_updates=n_updates)
    assert new.options == DesignOptions(n_updates=8)


async def test_idle_queue_refuses_impossible_jobs_and_retries() -> None:
    """Otherwise the times of one bad moment would reject all jobs for good."""
    queue = knowing()
    with pytest.raises(RefusedJob, match="queued; allow more time") as refused:
        queue.put(job(due_in_s=0.9 * START_S))
    assert refused.value.code == "overloaded"
    queue.put(job(due_in_s=0.9 * START_S))
    with pytest.raises(RefusedJob):  # an overdue job is never tried
        JobQueue(1, 1).put(job(due_in_s=-0.01))


async def test_long_queue_refuses_patient_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """One job per worker may wait, however long the running one takes."""
    monkeypatch.setattr(job_queue, "LONGEST_WAIT_S", START_S)
    queue = knowing()
    for _ in range(2):
        queue.put(job(due_in_s=1e3))
    batch = taken(queue)
    with pytest.raises(RefusedJob) as refused:
        queue.put(job(due_in_s=1e3))
    assert refused.value.code == "overloaded"
    queue.done(batch, None)


async def test_backlog_counts_running_and_waiting_jobs() -> None:
    queue = knowing(n_workers=2)
    queue.put(job(n_ears=2))
    batch = taken(queue)
    assert queue.backlog_s() == pytest.approx(START_S, rel=0.1)  # one runs, one waits, for two workers
    queue.put(job(k=2))
    expected_s = START_S + (START_S + 2 * UPDATE_S) / 2
    assert queue.backlog_s() == pytest.approx(expected_s, rel=0.1)
    with pytest.raises(RefusedJob, match=f"{PLANNED:.0%} of") as refused:
        queue.put(job(due_in_s=(expected_s + START_S) / PLANNED - 0.3 * START_S))
    assert refused.value.retry_after_s == pytest.approx(expected_s, rel=0.1)
    queue.put(job(due_in_s=(expected_s + 1.1 * START_S) / PLANNED))
    with pytest.raises(RefusedJob):
        queue.reject_if_overloaded(perf_counter() + 2 * expected_s)
    queue.reject_if_overloaded(perf_counter() + 3 * expected_s / PLANNED)
    queue.done(batch, None)


async def test_last_worker_keeps_a_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_queue, "BUSY_LOOP_S", START_S)
    queue = knowing(n_workers=2)
    queue.put(job())
    queue.put(job(due_in_s=1.8 * START_S / PLANNED))  # half of a start before it, and its own
    batch = taken(queue)
    with pytest.raises(RefusedJob):
        queue.put(job(due_in_s=2.5 * START_S / PLANNED))  # one, its own, and the reserve
    queue.put(job(due_in_s=3.3 * START_S / PLANNED))
    queue.done(batch, None)


async def test_late_and_cancelled_jobs_are_not_started() -> None:
    queue, late, withdrawn, good = knowing(), job(), job(n_ears=3), job()
    for item in (withdrawn, late, good):
        queue.put(item)
    begun = taken(queue)
    queue.withdraw(withdrawn)
    queue.withdraw(withdrawn)
    late.due = perf_counter()
    late_jobs: list[Job] = []
    queue.on_late = late_jobs.append
    assert jobs_of(begun) == [withdrawn]
    assert jobs_of(taken(queue)) == [good]
    assert (withdrawn.n_taken, late.n_taken) == (1, 0)
    assert late_jobs == [late]  # only the late one


async def test_urgent_job_is_next() -> None:
    queue, waits, check = knowing(), job(n_ears=2), job(function=other_run)
    queue.put(waits)
    queue.put_first(check)
    assert jobs_of(taken(queue)) == [check]


async def test_closed_queue_lets_workers_end() -> None:
    queue, left = knowing(), job()
    queue.put(left)
    assert queue.close() == [left]
    assert queue.take() is None
    with pytest.raises(RefusedJob) as refused:
        queue.put(job())
    assert refused.value.code == "not-ready"


@pytest.fixture
def latency() -> LatencyEstimator:
    """An estimator that knows a start by `prime` and an update in `fast`, from a batch of two ears with two updates."""
    latency = LatencyEstimator()
    latency.observe(DesignOptions(n_updates=2), 2, 2 * (START_S + 2 * UPDATE_S), 4 * UPDATE_S)
    return latency


def test_unseen_kind_scales_nearest(latency: LatencyEstimator) -> None:
    plain = START_S + 2 * UPDATE_S
    assert latency.expected_s(DesignOptions("wmmse", 2, "paper")) == pytest.approx(plain)
    seatings = DesignOptions(n_conditions=8)
    assert latency.start_s(seatings) == pytest.approx(START_S * work_of(seatings))
    latency.observe(seatings, 1, 2 * START_S, 0.0)
    more = replace(seatings, n_conditions=9)
    assert latency.start_s(more) == pytest.approx(2 * START_S * work_of(more) / work_of(seatings))
    in_a_loop, each_left_out = replace(seatings, n_feedbacks=8), replace(seatings, leave_one_out=True)
    assert latency.start_s(in_a_loop) > 10 * latency.start_s(seatings)
    assert latency.start_s(each_left_out) == pytest.approx(9 * latency.start_s(seatings))


def test_estimate_ignores_stalls_but_follows_slowdown(latency: LatencyEstimator) -> None:
    for spent_s in [START_S] * 10 + [100 * START_S] * 2:
        latency.observe(DesignOptions(), 1, spent_s, 0.0)
    assert latency.start_s(DesignOptions()) == START_S
    for _ in range(N_REMEMBERED):
        latency.observe(DesignOptions(), 1, 3 * START_S, 0.0)
    assert latency.start_s(DesignOptions()) == 3 * START_S

"""Queue of jobs for the workers: admitted by deadline, served in order of arrival, dropped if no longer wanted.

The queue learns from every design how long designs take.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from threading import Condition, get_ident
from time import perf_counter
from typing import Any

from prime_anc.method.profiles import FAST
from prime_anc.method.types import DesignOptions
from service.engine.types import RefusedJob
from service.engine.waiting import LONGEST_WAIT_S, Awaited, raise_if_unwanted
from service.engine.work import work_of

# Share of the time to a deadline that estimated work may fill while a worker is busy: four designs in five meet the
# estimates.
PLANNED = 0.4

# Time (s) that a design waits for the event loop in 99 of 100 cases while all workers compete for the cores; added for
# work that takes the last free worker or waits for one. On two cores at three times the capacity the answers' p99 is
# then 0.99 to 1.05 of the deadline, without it 2.2 to 2.5.
BUSY_LOOP_S = 4e-3

# Times per estimate: enough for a quantile, few enough to follow a change of load.
N_REMEMBERED = 15

# Quantile of the times: above the median, to keep deadlines; below the maximum, to ignore rare stalls.
QUANTILE = 0.8


class RecentTimes:
    """Estimate from the latest times of one kind: four in five of them stayed within `expected_s`."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=N_REMEMBERED)
        # 0 while nothing is known.
        self.expected_s = 0.0

    def observe(self, spent_s: float) -> None:
        """Add a time."""
        self._times.append(spent_s)
        self._estimate()

    def forget_slowest(self) -> None:
        """Forget the slowest time, if there is any."""
        if self._times:
            self._times.remove(max(self._times))
            self._estimate()

    def _estimate(self) -> None:
        in_order = sorted(self._times)
        self.expected_s = in_order[int(QUANTILE * (len(in_order) - 1))] if in_order else 0.0


class LatencyEstimator:
    """Estimates the worker's time (s) for one problem.

    It has two parts: one Gauss-Newton update, by profile and number of conditions; and the rest, by the other options.
    So a few observations serve every number of updates. An unobserved kind is expected to take as long as the nearest
    one, in proportion to `work_of`; 0 while there is none. Not locked.
    """

    def __init__(self) -> None:
        self._start: dict[DesignOptions | None, RecentTimes] = {}
        self._update: dict[DesignOptions | None, RecentTimes] = {}

    def observe(
        self, options: DesignOptions | None, n_problems: int, total_s: float, refine_s: float | None
    ) -> None:
        """Learn from one call of the backend.

        Parameters
        ----------
        options
            Options of the designs; None for evaluations.
        n_problems
            Number of problems of the call.
        total_s
            Time of the call.
        refine_s
            Part of it spent on updates, without those of `leave_one_out`; None if unknown.
        """
        if options is not None and options.n_updates and refine_s is not None:
            _observe(self._update, _update(options), refine_s / options.n_updates / n_problems)
            total_s -= refine_s
        _observe(self._start, _start(options), total_s / n_problems)

    def knows(self, options: DesignOptions | None) -> bool:
        """Return whether the start of these options was observed."""
        return _start(options) in self._start

    def start_s(self, options: DesignOptions | None) -> float:
        """Estimate one problem without updates, or one evaluation."""
        return _expected_s(self._start, _start(options))

    def shortest_start_s(self) -> float:
        """Estimate the known kind that takes the least time."""
        return min((item.expected_s for item in self._start.values()), default=0.0)

    def expected_s(self, options: DesignOptions | None) -> float:
        """Estimate one problem with all updates."""
        if options is None:
            return self.start_s(None)
        return self.start_s(options) + options.n_updates * _expected_s(self._update, _update(options))

    def most_updates(self, options: DesignOptions, problem_s: float) -> int:
        """Count the updates, up to those of the options, that fit into `problem_s` per problem."""
        spare_s, update_s = problem_s - self.start_s(options), _expected_s(self._update, _update(options))
        if options.n_updates * update_s <= spare_s:
            return options.n_updates
        return max(int(spare_s / update_s), 0) if update_s else 0

    def forget_slowest(self, options: DesignOptions | None) -> None:
        """Forget the slowest start of these options."""
        times = self._start.get(_start(options))
        if times is not None:
            times.forget_slowest()
            if not times.expected_s:
                del self._start[_start(options)]


# Keyed by kind of work, None for evaluations.
Times = dict[DesignOptions | None, RecentTimes]


def _observe(times: Times, kind: DesignOptions | None, spent_s: float) -> None:
    times.setdefault(kind, RecentTimes()).observe(spent_s)


def _expected_s(times: Times, kind: DesignOptions | None) -> float:
    """Estimate a kind from its times, or in proportion to its work from the nearest one, if possible of the same
    method.
    """
    if kind in times:
        return times[kind].expected_s
    if kind is None:
        return 0.0
    seen = [item for item in times if item is not None]
    if not seen:
        return 0.0
    work = work_of(kind)

    def distance(other: DesignOptions) -> tuple[bool, bool, float]:
        return other.method != kind.method, other.profile != kind.profile, abs(math.log(work_of(other) / work))

    nearest = min(seen, key=distance)
    return times[nearest].expected_s * work / work_of(nearest)


@lru_cache(maxsize=1024)
def _start(options: DesignOptions | None) -> DesignOptions | None:
    """Return the options that determine the time before the updates, and of the prediction; all for `leave_one_out`."""
    if options is None or options.leave_one_out:
        return options
    return replace(options, n_updates=0, profile=FAST.name)


@lru_cache(maxsize=1024)
def _update(options: DesignOptions) -> DesignOptions:
    """Return the options that determine the time of an update."""
    return DesignOptions(profile=options.profile, n_conditions=options.n_conditions)


@dataclass(eq=False)
class Job(Awaited):
    """The problems of one call of the engine."""

    # Called with some of `problems` and the options; returns their results in order.
    run: Callable[..., list[Any]]
    # None for evaluations.
    options: DesignOptions | None
    problems: Sequence[Any]
    # Future of the event loop, set once `answers` is complete.
    answer: asyncio.Future[list[Any]]
    since: float = field(default_factory=perf_counter)
    # Whether all workers were busy on arrival.
    had_to_wait: bool = False
    # Number of problems that workers have begun.
    n_taken: int = 0
    # Results so far, by index in `problems`.
    answers: dict[int, Any] = field(default_factory=dict)
    # Expected time per problem (s).
    problem_s: float = 0.0

    @property
    def n_left(self) -> int:
        """Number of problems that no worker has begun."""
        return len(self.problems) - self.n_taken


@dataclass(eq=False)
class Batch:
    """Problems that one worker takes in one call."""

    run: Callable[..., list[Any]]
    # Options with as many updates as the deadlines allow.
    options: DesignOptions | None
    # Problems as their job and index in its `problems`.
    places: list[tuple[Job, int]]
    began: float = field(default_factory=perf_counter)

    def __post_init__(self) -> None:
        # Arguments of `run`.
        self.problems = [job.problems[place] for job, place in self.places]
        # Whether a problem had to wait for a worker, so that its client may have gone.
        self.has_waited = any(job.had_to_wait or place for job, place in self.places)

    def check(self) -> None:
        """Raise Interrupted if none of its problems is awaited any more."""
        raise_if_unwanted([job for job, _ in self.places])


class JobQueue:
    """Jobs in order of arrival. The event loop adds them, `n_workers` threads take them.

    A batch has up to `max_batch` problems with the same model and options, of one or several jobs.
    """

    def __init__(self, n_workers: int, max_batch: int) -> None:
        self.n_workers = n_workers
        self.max_batch = max_batch
        self._latency = LatencyEstimator()
        self._changed = Condition()
        self._jobs: deque[Job] = deque()
        self._waiting_s = 0.0
        # Start and expected end of a worker's batch, by thread id.
        self._running: dict[int, tuple[float, float]] = {}
        self._is_closed = False
        # Called in a worker with a job that is dropped because its deadline has passed.
        self.on_late: Callable[[Job], None] = lambda job: None

    @property
    def is_idle(self) -> bool:
        """Return whether no job waits or runs."""
        return not self._jobs and not self._running

    @property
    def is_busy(self) -> bool:
        """Return whether a new job would have to wait."""
        return bool(self._jobs) or len(self._running) >= self.n_workers

    def backlog_s(self) -> float:
        """Estimate the time (s) until a worker is free for a new job."""
        if not self.is_busy:
            return 0.0
        now = perf_counter()
        with self._changed:
            running_s = sum(max(ends - now, 0.0) for _, ends in self._running.values())
            return (self._waiting_s + running_s) / self.n_workers

    def longest_running_s(self) -> float:
        """Return the time (s) since the start of the oldest running batch."""
        with self._changed:
            return max((perf_counter() - began for began, _ in self._running.values()), default=0.0)

    def reject_if_overloaded(self, due: float) -> None:
        """Raise RefusedJob (`overloaded`) if a new job cannot meet this deadline, whatever its options."""
        with self._changed:
            self._require_time(self.backlog_s(), self._latency.shortest_start_s(), due)

    def put(self, job: Job) -> None:
        """Admit a job if there is time for it before its deadline, at least without updates; else raise RefusedJob."""
        with self._changed:
            if self._is_closed:
                raise stopping()
            job.had_to_wait = self.is_busy
            start_s = self._latency.start_s(job.options) * self._n_rounds(len(job.problems))
            try:
                self._require_time(self.backlog_s(), start_s, job.due)
            except RefusedJob:
                # A slow measurement or a guess must not exclude a kind of work for ever.
                if not self.is_idle or job.due <= perf_counter():
                    raise
                if self._latency.knows(job.options):
                    self._latency.forget_slowest(job.options)
                    raise
            job.problem_s = self._latency.expected_s(job.options)
            self._waiting_s += job.problem_s * job.n_left
            self._jobs.append(job)
            self._changed.notify(len(job.problems))

    def put_first(self, job: Job) -> None:
        """Put a job at the head of the queue, whatever the load."""
        with self._changed:
            if self._is_closed:
                raise stopping()
            job.had_to_wait = self.is_busy
            self._jobs.appendleft(job)
            self._changed.notify(len(job.problems))

    def take(self) -> Batch | None:
        """Wait in a worker for a batch and take it; None if the queue is closed."""
        with self._changed:
            while True:
                while self._jobs and not self._jobs[0].n_taken and self._jobs[0].due <= perf_counter():
                    late = self._jobs[0]
                    self._remove(late)
                    self.on_late(late)
                if self._jobs:
                    break
                if self._is_closed:
                    return None
                self._changed.wait()
            batch = self._batch()
            problem_s = self._latency.expected_s(batch.options)
            self._running[get_ident()] = batch.began, batch.began + problem_s * len(batch.places)
            return batch

    def done(self, batch: Batch, refine_s: float | None) -> None:
        """Learn in the worker from its finished batch.

        refine_s: time of its updates; None: do not use its times in estimates.
        """
        with self._changed:
            del self._running[get_ident()]
            if refine_s is not None:
                spent_s = perf_counter() - batch.began
                self._latency.observe(batch.options, len(batch.places), spent_s, refine_s)

    def interrupted(self, batch: Batch) -> None:
        """Learn from a batch that was no longer awaited: it would have taken longer still."""
        with self._changed:
            del self._running[get_ident()]
            spent_s = perf_counter() - batch.began
            if spent_s > len(batch.places) * self._latency.start_s(batch.options):
                self._latency.observe(batch.options, len(batch.places), spent_s, None)

    def withdraw(self, job: Job) -> None:
        """Remove the problems of a job that no worker has begun."""
        with self._changed:
            if job in self._jobs:
                self._remove(job)

    def close(self) -> list[Job]:
        """Refuse new jobs and let the workers end; return the waiting jobs."""
        with self._changed:
            self._is_closed = True
            left = list(self._jobs)
            self._jobs.clear()
            self._changed.notify_all()
            return left

    def _batch(self) -> Batch:
        """Take the next problems of the first job, and of other jobs with the same model and options."""
        first = self._jobs[0]
        places: list[tuple[Job, int]] = []
        for job in self._jobs:
            if (job.run, job.options) != (first.run, first.options):
                continue
            n = min(job.n_left, self.max_batch - len(places))
            places += [(job, job.n_taken + number) for number in range(n)]
            if len(places) == self.max_batch:
                break
        options = first.options
        if options is not None and options.n_updates:
            now = perf_counter()
            call_s = min((job.due - now) / self._n_rounds(job.n_left) for job, _ in places)
            n_updates = self._latency.most_updates(options, call_s / len(places))
            if n_updates < options.n_updates:
                options = replace(options, n_updates=n_updates)
        for job, _ in places:
            job.n_taken += 1
            self._waiting_s -= job.problem_s
            if not job.n_left:
                self._jobs.remove(job)
        self._settle()
        return Batch(first.run, options, places)

    def _n_rounds(self, n_problems: int) -> int:
        """Count the consecutive calls per worker if problems are spread over all workers."""
        return math.ceil(n_problems / (self.n_workers * self.max_batch))

    def _remove(self, job: Job) -> None:
        self._jobs.remove(job)
        self._waiting_s -= job.problem_s * job.n_left
        self._settle()

    def _settle(self) -> None:
        if not self._jobs:
            self._waiting_s = 0.0  # discard accumulated rounding errors

    def _require_time(self, before_s: float, job_s: float, due: float) -> None:
        left_s = due - perf_counter()
        share = 1.0 if self.is_idle else PLANNED
        takes_last = not self.is_idle and len(self._running) >= self.n_workers - 1
        needed_s = before_s + job_s + (BUSY_LOOP_S if takes_last else 0.0)
        is_long = len(self._jobs) >= self.n_workers and before_s > LONGEST_WAIT_S
        if needed_s <= share * left_s and left_s > 0 and not is_long:
            return
        part = f"{share:.0%} of " if share < 1 else ""
        job_ms, left_ms = 1e3 * (needed_s - before_s), max(1e3 * left_s, 0)
        remedy = "retry later, or allow more time" if before_s else "allow more time"
        raise RefusedJob(
            "overloaded",
            f"{1e3 * before_s:.0f} ms of work are queued and this request takes {job_ms:.0f} ms: more than {part}"
            f"the {left_ms:.0f} ms left before its deadline, or than the {1e3 * LONGEST_WAIT_S:.0f} ms that may be "
            f"queued; {remedy}",
            retry_after_s=before_s,
        )


def stopping() -> RefusedJob:
    """Return the error for jobs during shutdown."""
    return RefusedJob("not-ready", "the service is shutting down; send requests to another replica")

"""What waits for the worker: admitted by time, taken in batches, given back when nobody wants it any more."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock
from time import perf_counter
from typing import Any

from service.admission.deadlines import shed
from service.admission.design_times import DesignTimes
from service.designs import BATCH_SIZES, MAX_BATCH, Ear, Float32, Recipe
from service.engine.model import Model

PROBE_EVERY_S = 1.0
"""An idle worker makes a design that its estimates speak against this often, for its time alone: estimates of a bad
moment must not keep everything out for good. Who asked for it is refused: nobody knows how late it will be."""

PLANNED = 0.4
"""Share of a request's time that estimates may fill while others wait: they hold for four designs in five, and know
nothing of what else delays an answer, an event loop and cores that are as busy. On two cores, at three times the
capacity, one answer in a hundred took 1.2 times as long as it might where they filled six tenths, 1.05 times with
half, 0.9 times with this."""


Kind = tuple[Model, Recipe]
"""What jobs share that may be designed together."""


@dataclass(eq=False)
class Job:
    """Ears of one recipe that were asked for together.

    model: what designs them; it stays in memory for as long as a job refers to it. recipe: as admitted; `n_asked`
    updates were asked for. due: when the answer is worth nothing any more, as `perf_counter` counts. filters: what
    to evaluate, for the method `evaluate`. waits: whether other work was there when it came.
    """

    model: Model
    recipe: Recipe
    ears: Sequence[Ear]
    due: float
    answer: asyncio.Future[list[Any]]
    filters: Sequence[Float32] | None = None
    n_asked: int = 0
    waits: bool = False
    since: float = field(default_factory=perf_counter)

    @property
    def kind(self) -> Kind:
        """Its model and recipe."""
        return self.model, self.recipe


class DesignQueue:
    """Jobs by kind, those of each in order of arrival.

    The event loop puts them in and the worker takes them out; the lock between them is held for microseconds.
    """

    def __init__(self, spares_rows: bool = False) -> None:
        """Nothing waits. spares_rows: as `DesignTimes`."""
        self.times = DesignTimes(spares_rows)
        self._lock = Lock()
        self._groups: dict[Kind, deque[Job]] = {}
        self._n_ears: Counter[Kind] = Counter()
        self._busy_until: float | None = None
        self._probed = -math.inf

    def backlog_s(self, joining: Kind | None = None, n_joining: int = 0) -> float:
        """Seconds until all that runs and waits is done; with `n_joining` more ears of a kind, these too."""
        with self._lock:
            n_ears = dict(self._n_ears)
            left_s = 0.0 if self._busy_until is None else max(self._busy_until - perf_counter(), 0.0)
        if joining is not None:
            n_ears[joining] = n_ears.get(joining, 0) + n_joining
        return left_s + sum(self.times.expected_s(recipe, n) for (_, recipe), n in n_ears.items())

    def refuse_hopeless(self, due: float) -> None:
        """Raise Problem where what is here already lasts beyond `due`: to know that, no body needs to be read."""
        if self.has_work() and (backlog_s := self.backlog_s()) > PLANNED * (due - perf_counter()):
            raise shed("designs", backlog_s, 0.0, due, PLANNED)

    def put(self, job: Job) -> None:
        """Admit a job with the most updates that its deadline leaves time for, or refuse it with a Problem
        (`overloaded`): raised, or as its answer where it is designed all the same, for its time alone."""
        asked, n_ears = job.recipe, len(job.ears)
        job.n_asked, job.waits = asked.n_updates, self.has_work()
        share = PLANNED if job.waits else 1.0
        left_s = share * (job.due - perf_counter())
        if self.backlog_s(job.kind, n_ears) > left_s:
            backlog_s = self.backlog_s()
            n_updates = self.times.most_updates(asked, n_ears, left_s - backlog_s)
            job.recipe = replace(asked, n_updates=n_updates or 0)
            if n_updates is None and not self._is_worth_trying(job):
                refusal = shed("designs", backlog_s, self.times.expected_s(job.recipe, n_ears), job.due, share)
                if job.waits or perf_counter() < self._probed + PROBE_EVERY_S or job.due <= perf_counter():
                    raise refusal
                self._probed = perf_counter()
                job.answer.set_exception(refusal)
                job = replace(job, due=math.inf)  # another one, which is not withdrawn with the first
        with self._lock:
            self._groups.setdefault(job.kind, deque()).append(job)
            self._n_ears[job.kind] += n_ears

    def take(self) -> tuple[list[Job], list[Job]]:
        """What the worker does now as one batch, and what has come too late to be done. Waits for nothing.

        The oldest job, and with it those of its kind that are there: as many as fill a batch that ends before
        the deadline of each. Where time has run faster than was expected they get fewer updates.
        """
        late: list[Job] = []
        with self._lock:
            now = perf_counter()
            while self._groups:
                kind, group = min(self._groups.items(), key=lambda each: each[1][0].since)
                if group[0].due <= now:
                    late.append(self._pop(kind))
                    continue
                batch = [self._pop(kind) for _ in range(self._n_together(kind[1], group, now))]
                n_ears = sum(len(job.ears) for job in batch)
                left_s = min(job.due for job in batch) - now
                recipe = replace(kind[1], n_updates=self.times.most_updates(kind[1], n_ears, left_s) or 0)
                for job in batch:
                    job.recipe = recipe
                self._busy_until = now + self.times.expected_s(recipe, n_ears)
                return batch, late
        return [], late

    def done(self) -> None:
        """The worker has finished what it took."""
        self._busy_until = None

    def has_jobs(self) -> bool:
        """Whether any waits."""
        with self._lock:
            return bool(self._groups)

    def withdraw(self, job: Job) -> bool:
        """Forget a job that still waits, and say whether it did; what the worker has taken goes on."""
        with self._lock:
            group = self._groups.get(job.kind)
            if group is None or job not in group:
                return False
            group.remove(job)
            self._forget(job)
            return True

    def withdraw_all(self) -> list[Job]:
        """Forget everything that waits, and return it."""
        with self._lock:
            jobs = [job for group in self._groups.values() for job in group]
            self._groups.clear()
            self._n_ears.clear()
            return jobs

    def _is_worth_trying(self, job: Job) -> bool:
        """An idle worker tries what has been done in time lately, though not mostly. Times of a busy moment, in
        which few designs are made and most requests are refused, would otherwise keep up the refusals."""
        return not job.waits and len(job.ears) == 1 and perf_counter() + self.times.least_s(job.recipe) < job.due

    def has_work(self) -> bool:
        """Whether any design runs or waits."""
        return self._busy_until is not None or bool(self._groups)

    def _n_together(self, recipe: Recipe, group: deque[Job], now: float) -> int:
        """How many of the group, from its first on, make the next batch.

        Where rows to spare would take time, none is left empty, unless the first job alone does so.
        """
        n_jobs, n_ears, due = 1, 0, math.inf
        for index, job in enumerate(islice(group, MAX_BATCH)):
            n_ears, due = n_ears + len(job.ears), min(due, job.due)
            if n_ears > MAX_BATCH or (index and now + self.times.expected_s(recipe, n_ears) > due):
                break
            if self.times.spares_rows or n_ears in BATCH_SIZES:
                n_jobs = index + 1
        return n_jobs

    def _pop(self, kind: Kind) -> Job:
        job = self._groups[kind].popleft()
        self._forget(job)
        return job

    def _forget(self, job: Job) -> None:
        self._n_ears[job.kind] -= len(job.ears)
        if not self._n_ears[job.kind]:
            del self._n_ears[job.kind], self._groups[job.kind]

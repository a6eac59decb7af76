"""A lane of the queue: whose work is next, and what cannot be done in time.

Fair between keys: the key whose work has taken the least time is next. A key that was away begins at the time of the
one that is served, so that it neither saves up a share nor owes one. This is start-time fair queueing (Goyal, Vin and
Cheng 1997) by the time that work took instead of its length. Of a key's own work, what is due first is next.

No thread and no clock of its own: `WorkQueue` drives it, and so can a simulation.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from time import perf_counter
from typing import Any

from prime_anc.method.errors import Interrupted
from service.errors import HttpProblem, retry_after
from service.queue.estimates import Cost, Estimates

# Share of the time to a deadline that estimated work may fill while all workers are busy: four in five estimates hold,
# and a worker shares its core.
PLANNED = 0.4

# Waiting pieces of work per lane; their bodies are in memory.
MAX_WAITING = 1024


_due = attrgetter("due")


@dataclass(eq=False)
class Work:
    """A piece of work, and who waits for it."""

    # Gets the items of a batch and the number of updates; returns their results, or errors, in order.
    run: Callable[[Sequence[Any], int], list[Any]]
    item: Any
    cost: Cost
    # Who asks.
    key: str = ""
    # Deadline (`perf_counter`, s).
    due: float = math.inf
    # Work of the same group may be run together; None: alone.
    group: Hashable = None
    # Called once in the worker with the result or error.
    on_done: Callable[[Any], None] = lambda result: None
    since: float = field(default_factory=perf_counter)
    # When a worker took it (`perf_counter`, s).
    began: float = 0.0
    # Updates that were made of `cost.n_updates`, because time was short.
    n_updates: int = 0
    # Nobody waits any more.
    is_abandoned: bool = False


class Batch(list[Work]):
    """Work that one worker does in one call."""

    def require_wanted(self, now: float) -> None:
        """Raise Interrupted if nobody waits for any of it any more, or its deadlines have passed."""
        if all(work.is_abandoned or work.due <= now for work in self):
            raise Interrupted(
                "the deadline passed before the work was done; allow more time, or ask for less: fewer conditions, "
                "no leave_one_out, fewer sections"
            )


class Lane:
    """Work for workers of one kind. Not locked."""

    def __init__(
        self,
        n_workers: int,
        max_batch: int = 1,
        longest_wait_s: float = math.inf,
        estimates: Estimates | None = None,
    ) -> None:
        """Make an empty lane.

        Parameters
        ----------
        n_workers
            Number of workers that take from it.
        max_batch
            Most work of one group in a batch.
        longest_wait_s
            Wait above which a key's work is refused, however late its deadline; one piece may always wait.
        estimates
            What lanes that share a machine have learned; None: of its own.
        """
        self.n_workers, self.max_batch, self.longest_wait_s = n_workers, max_batch, longest_wait_s
        self.estimates = estimates or Estimates()
        self._waiting: dict[str, deque[Work]] = {}  # by key, in order of their deadlines
        self._urgent: deque[Work] = deque()
        self._served_s: dict[str, float] = {}  # by key
        self._virtual_s = 0.0  # of the key that was served last
        self._running: dict[int, tuple[Batch, float]] = {}  # batch and its expected end, by id

    def __len__(self) -> int:
        return self._n_waiting + len(self._running)

    @property
    def is_busy(self) -> bool:
        """Return whether new work has to wait."""
        return self._n_waiting > 0 or len(self._running) >= self.n_workers

    @property
    def _n_waiting(self) -> int:
        return len(self._urgent) + sum(map(len, self._waiting.values()))

    def longest_running_s(self, now: float) -> float:
        """Return the time since the start of the oldest running batch."""
        return max((now - batch[0].began for batch, _ in self._running.values()), default=0.0)

    def wait_s(self, key: str, now: float, due: float = math.inf) -> float:
        """Return the expected time until new work of a key begins.

        Before it come what runs, the key's own waiting work that is due before, and as much of every other key's.
        """
        if not self.is_busy:
            return 0.0
        waiting_s = {
            name: sum(
                self.estimates.expected_s(work.cost)
                for work in works
                if not work.is_abandoned and (name != key or work.due <= due)
            )
            for name, works in self._waiting.items()
        }
        own_s = waiting_s.pop(key, 0.0)
        running_s = sum(max(ends - now, 0.0) for _, ends in self._running.values())
        return (running_s + own_s + sum(min(item, own_s) for item in waiting_s.values())) / self.n_workers

    def put(self, work: Work, now: float) -> None:
        """Add work; raises as `require_room`."""
        self.require_room(work.key, work.due, now, self.estimates.expected_s(work.cost, 0))
        self._served_s[work.key] = max(self._served_s.get(work.key, 0.0), self._virtual_s)
        insort(self._waiting.setdefault(work.key, deque()), work, key=_due)

    def require_room(self, key: str, due: float, now: float, start_s: float = 0.0) -> None:
        """Refuse work of a key that takes start_s without updates.

        Raises
        ------
        HttpProblem
            `overloaded`, if it is expected to be late. A lane without work always tries, since one slow measurement
            must not block a kind of work for ever.
        """
        wait_s, left_s = self.wait_s(key, now, due), due - now
        is_late = len(self) and wait_s + start_s > PLANNED * left_s
        n_free = self.n_workers - len(self._running)  # about to take what waits
        is_long = len(self._waiting.get(key, ())) > n_free and wait_s > self.longest_wait_s
        if is_late or is_long or self._n_waiting >= MAX_WAITING:
            raise HttpProblem(
                "overloaded",
                f"this work would wait {1e3 * wait_s:.0f} ms and take {1e3 * start_s:.0f} ms, too much for the "
                f"{max(1e3 * left_s, 0):.0f} ms left before its deadline or for this key's share; retry later, or "
                "allow more time",
                headers=retry_after(wait_s),
            )

    def put_first(self, work: Work) -> None:
        """Add work ahead of all other, whatever the load."""
        self._urgent.append(work)

    def take(self, now: float) -> Batch | None:
        """Take the next work that is still wanted, with others of its group; None if there is none."""
        while (first := self._next()) is not None:
            if first.is_abandoned:
                continue
            batch = Batch([first, *self._others_of(first)])
            left_s = min(work.due for work in batch) - now
            n_updates = self.estimates.most_updates(first.cost, left_s / len(batch))
            expected_s = self.estimates.expected_s(first.cost, n_updates)
            for work in batch:
                work.began, work.n_updates = now, n_updates
                self._charge(work, expected_s)
            self._running[id(batch)] = batch, now + len(batch) * expected_s
            return batch
        if not self._running:
            self._served_s.clear()
            self._virtual_s = 0.0
        return None

    def done(self, batch: Batch, now: float, *, was_interrupted: bool = False, is_typical: bool = True) -> None:
        """Finish a batch, and learn from its time.

        Parameters
        ----------
        was_interrupted
            Whether it would have taken longer still.
        is_typical
            Whether its time says anything about others': not if it failed.
        """
        del self._running[id(batch)]
        first = batch[0]
        spent_s = (now - first.began) / len(batch)
        expected_s = self.estimates.expected_s(first.cost, first.n_updates)
        for work in batch:
            self._charge(work, spent_s - expected_s)
        if is_typical or (was_interrupted and spent_s > expected_s):
            self.estimates.observe(first.cost, first.n_updates, spent_s)

    def close(self) -> list[Work]:
        """Return all waiting work, and forget it."""
        left = [*self._urgent, *(work for works in self._waiting.values() for work in works)]
        self._urgent.clear()
        self._waiting.clear()
        return left

    def _next(self) -> Work | None:
        """Remove and return the next work."""
        if self._urgent:
            return self._urgent.popleft()
        if not self._waiting:
            return None
        key = min(self._waiting, key=self._served_s.__getitem__)
        self._virtual_s = max(self._virtual_s, self._served_s[key])
        work = self._waiting[key].popleft()
        if not self._waiting[key]:
            del self._waiting[key]
        return work

    def _charge(self, work: Work, spent_s: float) -> None:
        """Count time that a key's work takes."""
        if work.key in self._served_s:
            self._served_s[work.key] += spent_s

    def _others_of(self, first: Work) -> list[Work]:
        """Remove and return the next work of the same group and cost, up to a full batch."""
        if first.group is None or self.max_batch == 1:
            return []
        same = [
            work
            for key in sorted(self._waiting, key=self._served_s.__getitem__)
            for work in self._waiting[key]
            if work.group == first.group and work.cost == first.cost and not work.is_abandoned
        ][: self.max_batch - 1]
        left = {key: deque(work for work in works if work not in same) for key, works in self._waiting.items()}
        self._waiting = {key: works for key, works in left.items() if works}
        return same

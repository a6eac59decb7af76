"""The queue's lane as a simulation, on a clock of the test's own: order, shares, deadlines, estimates."""

import heapq
import math
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest

from service.errors import HttpProblem
from service.queue.estimates import N_REMEMBERED, Cost, Estimates
from service.queue.lane import MAX_WAITING, PLANNED, Lane, Work

START_S, UPDATE_S = 2.0, 1.0


def work(key: str = "", due: float = math.inf, k: int = 0, seconds: float = START_S, group: Any = None) -> Work:
    return Work(lambda items, n: list(items), None, Cost("design", seconds, UPDATE_S, k), key, due, group)


class Simulation:
    """A lane whose workers take exactly the nominal times, from events in order of time."""

    def __init__(self, lane: Lane) -> None:
        self.lane, self.ended, self.refused = lane, [], Counter()
        self._events: list[tuple[float, int, Any]] = []
        self._order = count()
        self._n_free = lane.n_workers

    def at(self, now: float, event: Any) -> None:
        heapq.heappush(self._events, (now, next(self._order), event))

    def run(self, until: float) -> list[tuple[float, Work]]:
        """Return the end and the work of all that was done until a time."""
        while self._events and self._events[0][0] <= until:
            now, _, event = heapq.heappop(self._events)
            if isinstance(event, Work):
                event.since = now
                try:
                    self.lane.put(event, now)
                except HttpProblem:
                    self.refused[event.key] += 1
            else:
                self.lane.done(event, now)
                self.ended += [(now, item) for item in event]
                self._n_free += 1
            while self._n_free and (batch := self.lane.take(now)) is not None:
                self._n_free -= 1
                self.at(now + sum(item.cost.nominal_s(item.n_updates) for item in batch), batch)
        return self.ended


def test_keys_take_turns() -> None:
    simulation, works = Simulation(Lane(1)), [work(key) for key in "aaaabb"]
    for item in works:
        simulation.at(0.0, item)
    assert [item for _, item in simulation.run(100)] == [works[n] for n in (0, 4, 1, 5, 2, 3)]


def test_wrong_estimates_are_charged() -> None:
    """A key whose work takes four times what was expected gets no more than its share."""
    lane = Lane(1)
    spent, now = Counter(), 0.0
    for _ in range(40):
        for key in "hl":
            lane.put(work(key, seconds=1.0), now)
    while now < 60:
        batch = lane.take(now)
        took_s = 4.0 if batch[0].key == "h" else 1.0
        now += took_s
        spent[batch[0].key] += took_s
        lane.done(batch, now, is_typical=False)
    assert spent["h"] < 1.3 * spent["l"]


def poisson(rng: np.random.Generator, per_s: float, until: float) -> Iterator[float]:
    now = 0.0
    while (now := now + rng.exponential(1 / per_s)) < until:
        yield now


def test_hog_delays_no_other_key() -> None:
    """One key asks for ten times the capacity; three others' waits stay within three of their own times."""

    def waits(has_hog: bool) -> list[float]:
        rng = np.random.default_rng(3)
        simulation = Simulation(Lane(2, longest_wait_s=0.5))
        for key in "abc":
            for now in poisson(rng, 20.0, 20.0):
                simulation.at(now, work(key, due=now + 2.0, seconds=0.004))
        if has_hog:
            for now in poisson(rng, 400.0, 20.0):
                simulation.at(now, work("h", due=now + 60.0, seconds=0.04))
        ended = [(now, item) for now, item in simulation.run(30.0) if item.key != "h"]
        assert not simulation.refused.keys() - {"h"}
        assert all(now <= item.due for now, item in ended)
        assert bool(simulation.refused["h"]) == has_hog
        return [item.began - item.since for _, item in ended]

    # Two workers, each busy with 40 ms of the hog's: half of that is the mean rest of what runs.
    assert np.quantile(waits(True), 0.99) < np.quantile(waits(False), 0.99) + 2 * 0.04


def test_put_refuses_what_would_be_late() -> None:
    lane = Lane(1)
    lane.put(work(due=0.1), 0.0)  # an idle lane always tries
    needed_s = 3 * START_S
    lane.put(work(due=2 / 3 * needed_s / PLANNED), 0.0)
    with pytest.raises(HttpProblem) as refused:
        lane.put(work(due=0.99 * needed_s / PLANNED), 0.0)
    assert (refused.value.code, refused.value.headers) == ("overloaded", {"Retry-After": "4"})
    lane.put(work(due=1.01 * needed_s / PLANNED), 0.0)


def test_earliest_deadline_of_key_is_next() -> None:
    """Short work is not refused for long work of the same key that has more time, and passes it."""
    lane, urgent = Lane(1), work(due=3 * START_S / PLANNED)
    for _ in range(5):
        lane.put(work(due=100.0), 0.0)
    lane.put(urgent, 0.0)
    assert lane.take(0.0) == [urgent]


def test_put_bounds_wait_of_a_key() -> None:
    lane = Lane(1, longest_wait_s=1.0)
    lane.put(work("a"), 0.0)
    assert lane.take(0.0) is not None
    lane.put(work("a"), 0.0)  # one may always wait
    with pytest.raises(HttpProblem):
        lane.put(work("a"), 0.0)
    lane.put(work("b"), 0.0)


def test_put_bounds_number_of_waiting() -> None:
    lane = Lane(1)
    for _ in range(MAX_WAITING):
        lane.put(work(seconds=1e-6), 0.0)
    with pytest.raises(HttpProblem):
        lane.put(work(seconds=1e-6), 0.0)


def test_take_applies_updates_that_fit() -> None:
    for left_s, n in ((100.0, 8), (START_S + 3.5 * UPDATE_S, 3), (0.1, 0)):
        lane = Lane(1)
        lane.put(work(k=8, due=10 + left_s), 10.0)
        (item,) = lane.take(10.0)
        assert item.n_updates == n
    lane = Lane(1)
    lane.put(Work(lambda items, n: list(items), None, Cost("export", START_S), due=10.1), 10.0)
    assert lane.take(10.0)[0].n_updates == 0


def test_take_joins_same_group_only() -> None:
    lane = Lane(1, max_batch=3)
    same = [work(k=1, group="g") for _ in range(5)]
    for item in (same[0], work(k=1, group="h"), *same[1:], work(k=1)):
        lane.put(item, 0.0)
    assert list(lane.take(0.0)) == same[:3]
    assert [len(lane.take(0.0)) for _ in range(3)] == [1, 2, 1]
    assert lane.take(0.0) is None


def test_take_skips_abandoned_work() -> None:
    lane, left, kept = Lane(1), work(), work()
    lane.put(left, 0.0)
    lane.put(kept, 0.0)
    left.is_abandoned = True
    assert lane.wait_s("", 0.0) == START_S
    assert list(lane.take(0.0)) == [kept]


def test_put_first_passes_all() -> None:
    lane, check = Lane(1), work()
    lane.put(work(), 0.0)
    lane.put_first(check)
    assert list(lane.take(0.0)) == [check]


def test_unknown_kind_follows_speed_of_machine() -> None:
    estimates = Estimates()
    cost = Cost("a", 1.0)
    assert estimates.expected_s(cost) == 1.0
    estimates.observe(cost, 0, 3.0)
    assert estimates.expected_s(Cost("b", 2.0, 1.0, 4)) == 3.0 * 6.0


def test_estimate_ignores_stalls_but_follows_slowdown() -> None:
    estimates, cost = Estimates(), Cost("a", 1.0)
    for spent_s in [1.0] * 10 + [100.0] * 2:
        estimates.observe(cost, 0, spent_s)
    assert estimates.expected_s(cost) == 1.0
    for _ in range(N_REMEMBERED):
        estimates.observe(cost, 0, 3.0)
    assert estimates.expected_s(cost) == 3.0


def test_interrupted_work_raises_estimate() -> None:
    lane = Lane(1)
    lane.put(work(seconds=1.0), 0.0)
    batch = lane.take(0.0)
    lane.done(batch, 9.0, was_interrupted=True, is_typical=False)
    assert lane.estimates.expected_s(work(seconds=1.0).cost) == 9.0

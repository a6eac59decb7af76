"""Estimates of how long work takes, learned from the work that was done."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from statistics import median

# Times per estimate: enough for a quantile, few enough to follow a change of load.
N_REMEMBERED = 15

# Quantile of the times: above the median, to keep deadlines; below the maximum, to ignore rare stalls.
QUANTILE = 0.8


@dataclass(frozen=True)
class Cost:
    """What a piece of work costs on a machine of nominal speed (`service.queue.costs`), s."""

    # Work of one kind errs in the same way: its actual over its nominal times are learned together.
    kind: Hashable
    start_s: float
    # Of each update, of which fewer can be made.
    update_s: float = 0.0
    n_updates: int = 0

    def nominal_s(self, n_updates: int | None = None) -> float:
        """Return the nominal time with a number of updates; None: all."""
        return self.start_s + self.update_s * (self.n_updates if n_updates is None else n_updates)


class RecentTimes:
    """The latest times of one kind: four in five of them stayed within `expected`."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=N_REMEMBERED)
        # 0 while nothing is known.
        self.expected = 0.0

    def observe(self, spent: float) -> None:
        """Add a time."""
        self._times.append(spent)
        self.expected = sorted(self._times)[int(QUANTILE * (len(self._times) - 1))]


class Estimates:
    """Expected times: nominal ones, times what work of the kind took over its nominal time. Not locked."""

    def __init__(self) -> None:
        self._ratios: dict[Hashable, RecentTimes] = {}

    def observe(self, cost: Cost, n_updates: int, spent_s: float) -> None:
        """Learn from finished work."""
        self._ratios.setdefault(cost.kind, RecentTimes()).observe(spent_s / cost.nominal_s(n_updates))

    def expected_s(self, cost: Cost, n_updates: int | None = None) -> float:
        """Return the expected time with a number of updates; None: all."""
        return self._ratio(cost.kind) * cost.nominal_s(n_updates)

    def most_updates(self, cost: Cost, left_s: float) -> int:
        """Return the number of updates, up to all, that fit into a time; 0 if not even the start does."""
        spare_s = left_s / self._ratio(cost.kind) - cost.start_s
        if not cost.n_updates or spare_s >= cost.update_s * cost.n_updates:
            return cost.n_updates
        return max(int(spare_s / cost.update_s), 0)

    def _ratio(self, kind: Hashable) -> float:
        """Return the ratio of a kind; of an unknown one, the median of the known kinds: the speed of the machine."""
        if kind in self._ratios:
            return self._ratios[kind].expected
        return median([item.expected for item in self._ratios.values()] or [1.0])

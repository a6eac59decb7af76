"""Estimates of how long designs take, learned from every design."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable

from synthesis.backends.base import DesignOptions

N_REMEMBERED = 15
"""Number of times that an estimate is made from."""

QUANTILE = 0.8
"""Quantile of the times that is the estimate: above the median, to keep deadlines; below the maximum, to ignore
rare stalls."""


class RecentTimes:
    """An estimate from the last times of one kind: four in five of them stayed within `expected_s`."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=N_REMEMBERED)
        self.expected_s = 0.0
        """0 while nothing is known."""

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
    """Seconds of a worker that one ear takes.

    The time has two parts: the filter that the updates start from, and its prediction, per method; and one
    Gauss-Newton update, per profile; both by the number of conditions. So a few observations serve every number of
    updates. An unknown time counts as 0, so the first request of its kind is admitted and measured. Not locked.
    """

    def __init__(self) -> None:
        self._start: defaultdict[Hashable, RecentTimes] = defaultdict(RecentTimes)
        self._update: defaultdict[Hashable, RecentTimes] = defaultdict(RecentTimes)

    def observe(self, options: DesignOptions | None, n_ears: int, total_s: float, refine_s: float) -> None:
        """One call of the backend took `total_s`, of which `refine_s` for updates. options: None: an evaluation."""
        if options is not None and options.n_updates:
            self._update[_update(options)].observe(refine_s / options.n_updates / n_ears)
            total_s -= refine_s
        self._start[_start(options)].observe(total_s / n_ears)

    def start_s(self, options: DesignOptions | None) -> float:
        """Of one ear without updates, or of one evaluation."""
        return self._start[_start(options)].expected_s

    def expected_s(self, options: DesignOptions | None) -> float:
        """Of one ear with all updates."""
        if options is None:
            return self.start_s(None)
        return self.start_s(options) + options.n_updates * self._update[_update(options)].expected_s

    def most_updates(self, options: DesignOptions, ear_s: float) -> int:
        """The most updates, up to those of the options, that `ear_s` for each ear leave time for."""
        spare_s, update_s = ear_s - self.start_s(options), self._update[_update(options)].expected_s
        if options.n_updates * update_s <= spare_s:
            return options.n_updates
        return max(int(spare_s / update_s), 0) if update_s else 0

    def forget_slowest(self, options: DesignOptions | None) -> None:
        """Forget the slowest start of these options."""
        self._start[_start(options)].forget_slowest()


def _start(options: DesignOptions | None) -> Hashable:
    """What the time before the updates, and of the prediction, depends on."""
    return options and (options.method, options.n_conditions, options.leave_one_out)


def _update(options: DesignOptions) -> Hashable:
    return options.profile, options.n_conditions

"""How long designs take: estimates that are learned from every batch and never from a setting."""

from __future__ import annotations

from collections import defaultdict, deque

from service.designs import BATCH_SIZES, Recipe, fitting_size

N_REMEMBERED = 15
"""Times behind one estimate."""

QUICKER = 0.8
"""Share of them that an estimate covers: deadlines are to be kept, and a rare stall changes nothing."""


class RecentTimes:
    """What four in five of the last times of one kind stayed within, and the least of them, in seconds."""

    def __init__(self) -> None:
        """Nothing is known yet: both are 0."""
        self._times: deque[float] = deque(maxlen=N_REMEMBERED)
        self.expected_s = self.least_s = 0.0

    def observe(self, spent_s: float) -> None:
        """One more."""
        self._times.append(spent_s)
        in_order = sorted(self._times)
        self.expected_s, self.least_s = in_order[int(QUICKER * (len(in_order) - 1))], in_order[0]


Table = defaultdict[tuple[str, int], RecentTimes]


class DesignTimes:
    """Estimates per method, updates, profile and batch size.

    A batch's time has two parts: `start`, everything but the updates, per method and size; and `update`, one
    Gauss-Newton update, per profile and size. So a few observations serve every k, also those never asked for. A
    size that has not run yet is taken for as many single ears, which is never quicker; a method that has not run
    yet is taken to cost nothing, so that it is let in once and then known.
    """

    def __init__(self, spares_rows: bool = False) -> None:
        """Knows nothing. spares_rows: whether a batch may have rows that nobody asked for, as on a GPU, where they
        take no time."""
        self.spares_rows = spares_rows
        self._start: Table = defaultdict(RecentTimes)
        self._update: Table = defaultdict(RecentTimes)

    def observe(self, recipe: Recipe, n_ears: int, total_s: float, refine_s: float) -> None:
        """A batch took `total_s` in the worker, `refine_s` of them for its updates."""
        size = fitting_size(n_ears)
        if recipe.n_updates:
            self._update[recipe.profile, size].observe(refine_s / recipe.n_updates)
            total_s -= refine_s
        self._start[recipe.method, size].observe(total_s)

    def expected_s(self, recipe: Recipe, n_ears: int = 1) -> float:
        """Seconds that `n_ears` (any number) will take, in batches as the queue takes them."""
        start_s = self._expected_s(self._start, recipe.method, n_ears)
        return start_s + recipe.n_updates * self._expected_s(self._update, recipe.profile, n_ears)

    def least_s(self, recipe: Recipe) -> float:
        """The quickest of the last filters without updates for one ear, in seconds: with less, there is no hope."""
        known = self._start.get((recipe.method, 1))
        return known.least_s if known else 0.0

    def most_updates(self, recipe: Recipe, n_ears: int, available_s: float) -> int | None:
        """The most updates up to the recipe's that so many ears can have in that time; None: not even the filters
        that they would start from."""
        spare_s = available_s - self._expected_s(self._start, recipe.method, n_ears)
        if spare_s < 0:
            return None
        update_s = self._expected_s(self._update, recipe.profile, n_ears)
        return recipe.n_updates if recipe.n_updates * update_s <= spare_s else int(spare_s / update_s)

    def _expected_s(self, table: Table, name: str, n_ears: int) -> float:
        """Sum over the batches that `n_ears` are designed in, the largest first."""
        total_s = 0.0
        for size in reversed(BATCH_SIZES):
            n_batches, n_ears = divmod(n_ears, size)
            if self.spares_rows and n_ears and fitting_size(n_ears) == size:
                n_batches, n_ears = n_batches + 1, 0
            if n_batches:
                known = table.get((name, size))
                total_s += n_batches * (known.expected_s if known else size * table[name, 1].expected_s)
        return total_s

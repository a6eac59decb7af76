"""Moments apart from each other, for what comes in crowds and need not be done all at once."""

from __future__ import annotations

from time import perf_counter


class Spacing:
    """Hands out moments at least `gap_s` apart, each as early as it can be."""

    def __init__(self, gap_s: float) -> None:
        """gap_s: between two moments, seconds."""
        self._gap_s = gap_s
        self._next = 0.0

    def wait_s(self) -> float:
        """Seconds from now to the moment that is the caller's."""
        now = perf_counter()
        mine = max(self._next, now)
        self._next = mine + self._gap_s
        return mine - now

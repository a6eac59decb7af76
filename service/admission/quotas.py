"""Requests per second of one API key: a token bucket for each."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from service.errors import Problem, retry_after


class Quotas:
    """A bucket of `burst` tokens per key that fills at `per_s` tokens a second; one token for each design.

    Only known keys come here, so there are never more buckets than keys.
    """

    def __init__(self, per_s: float | None, burst: int, clock: Callable[[], float] = monotonic) -> None:
        """per_s None: no limit."""
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._full_at: dict[str, float] = {}
        """When a key's bucket is full again; what is missing until then has been taken."""

    def take(self, key: str, n: int = 1, held: int = 0) -> None:
        """Take `n` tokens, of which this request `held` some already, or give those back and raise Problem.

        More tokens than a bucket holds wait for a full one, and overdraw it.
        """
        if self._per_s is None:
            return
        now = self._clock()
        full_at = self._full_at[key] = max(self._full_at.get(key, now) - held / self._per_s, now)
        wait_s = full_at - now + (min(n, self._burst) - self._burst) / self._per_s
        if wait_s > 1e-9:
            raise Problem(
                "over-quota",
                f"this key is limited to {self._per_s:g} requests per second and bursts of {self._burst}; wait for "
                "Retry-After",
                headers=retry_after(wait_s),
            )
        self._full_at[key] = full_at + n / self._per_s

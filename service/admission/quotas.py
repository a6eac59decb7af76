"""How often one API key may ask: a token bucket for each."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from service.errors import Problem, retry_after


class Quotas:
    """A bucket of `burst` tokens per key that fills at `per_s` tokens a second; each request takes one, and one
    for several designs takes one for each.

    Only keys that are known come here, so there are never more buckets than keys.
    """

    def __init__(self, per_s: float | None, burst: int, clock: Callable[[], float] = monotonic) -> None:
        """per_s None: no limit."""
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._full_at: dict[str, float] = {}
        """Per key: when its bucket is full again. What is missing until then is what has been taken."""

    def take(self, key: str, n: int = 1, held: int = 0) -> None:
        """Take `n` tokens, of which this request `held` some already, or give these back and raise Problem, which
        says when there are enough. What takes more than a bucket holds waits for a full one, and overdraws it."""
        if self._per_s is None:
            return
        now = self._clock()
        full_at = self._full_at[key] = max(self._full_at.get(key, now) - held / self._per_s, now)
        wait_s = full_at - now + (min(n, self._burst) - self._burst) / self._per_s
        if wait_s > 1e-9:
            raise Problem(
                "over-quota",
                f"found more requests than this key's quota, expected at most {self._per_s:g} a second and "
                f"{self._burst} at once",
                headers=retry_after(wait_s),
            )
        self._full_at[key] = full_at + n / self._per_s

"""Room in memory for the bodies of requests: so many bytes of them as may be under way at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from service.errors import Problem, retry_after


class Room:
    """Counts bodies by their declared lengths, for by the time that their bytes are here it is too late."""

    def __init__(self, max_bytes: int) -> None:
        """max_bytes: of all bodies under way."""
        self.n_bytes = 0
        self._max_bytes = max_bytes

    @contextmanager
    def place(self, n_bytes: int, wait_s: float = 1.0) -> Iterator[None]:
        """Room for a body, from before it is read to the answer; Problem `overloaded` where there is none, with
        `wait_s` as the time after which there may be."""
        if self.n_bytes + n_bytes > self._max_bytes:
            found = f"found {self.n_bytes} bytes of bodies under way and {n_bytes} in this one"
            detail = f"{found}, expected at most {self._max_bytes}"
            raise Problem("overloaded", detail, headers=retry_after(wait_s))
        self.n_bytes += n_bytes
        try:
            yield
        finally:
            self.n_bytes -= n_bytes

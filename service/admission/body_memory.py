"""A limit on the memory that request bodies take together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from service.errors import Problem


class BodyMemoryLimit:
    """Counts bodies by their declared lengths, before they are read: afterwards it is too late."""

    def __init__(self, max_bytes: int) -> None:
        """max_bytes: of all bodies in flight together."""
        self.n_bytes = 0
        self._max_bytes = max_bytes

    @contextmanager
    def reserve(self, n_bytes: int) -> Iterator[None]:
        """Room for a body until the block is left; Problem `overloaded` where there is none."""
        if self.n_bytes + n_bytes > self._max_bytes:
            detail = f"the bodies of other requests take {self.n_bytes} of {self._max_bytes} bytes; try again later"
            raise Problem("overloaded", detail)
        self.n_bytes += n_bytes
        try:
            yield
        finally:
            self.n_bytes -= n_bytes

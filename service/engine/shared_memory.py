"""Memory that the service and its design process share, so that the arrays of a question need not cross the pipe.

A pipe takes what it is given in portions, for each of which the system wakes one side and then the other: on a slow
processor two spectra (262 kB) took 0.5 ms longer that way.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIZE = 16 * 2**20
"""Room for 32 ears, each of two spectra, a coherence and a reference spectrum on the design grid. Pages that nobody
has written to take no memory."""

ALIGNMENT = 64

Placed = tuple[str, int | bytes, int]
"""An array of one dimension: its kind, where it begins or, where it found no room, its bytes, and its length."""


class SharedMemory:
    """Arrays of one question, put by the service and read by the process; the next question overwrites them."""

    def __init__(self, descriptor: int | None = None) -> None:
        """descriptor: of the file behind it; a new one without a name unless given."""
        self._descriptor = _nameless_file() if descriptor is None else descriptor
        self._memory = mmap.mmap(self._descriptor, SIZE)
        self._end = 0

    def __reduce__(self) -> tuple[Any, ...]:
        """To a process that is being spawned."""
        return _attached, (DupFd(self._descriptor),)

    def close_file(self) -> None:
        """Nobody else is to be given it; the memory lasts as long as this object."""
        os.close(self._descriptor)

    def clear(self) -> None:
        """Begin with the next question."""
        self._end = 0

    def put(self, values: NDArray[Any]) -> Placed:
        """Copy an array into it, and say where."""
        begin = self._end
        if begin + values.nbytes > SIZE:
            return values.dtype.str, values.tobytes(), values.size
        np.frombuffer(self._memory, values.dtype, values.size, begin)[:] = values
        self._end = begin + -(-values.nbytes // ALIGNMENT) * ALIGNMENT
        return values.dtype.str, begin, values.size

    def get(self, placed: Placed) -> NDArray[Any]:
        """The array, which lasts until the next question where it lies here."""
        kind, place, size = placed
        if isinstance(place, bytes):
            return np.frombuffer(bytearray(place), kind, size)  # which may be written to
        return np.frombuffer(self._memory, kind, size, place)


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("prime-designs")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.truncate(descriptor, SIZE)
    return descriptor


def _attached(descriptor: Any) -> SharedMemory:
    memory = SharedMemory(descriptor.detach())
    memory.close_file()
    return memory

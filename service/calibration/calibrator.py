"""Calibrations are worked out beside everything else: in one thread of their own, a few at a time.

An estimate from four seconds of sixteen takes keeps a core busy for some tenths of a second. Neither the event loop
nor the designs wait for it: PyTorch's operators let go of Python's lock, and everything else that is long is done
in this thread too, signal by signal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from service.errors import Problem
from service.threads import prepare_thread

Found = TypeVar("Found")

MAX_AT_ONCE = 4
"""Calibrations that are received, wait or are worked out: each keeps its recordings in memory."""


class Calibrator:
    """Runs work in its thread, and counts who is there."""

    def __init__(self) -> None:
        """The thread starts with the first work."""
        self._worker = ThreadPoolExecutor(1, "calibrate", initializer=prepare_thread, initargs=(1,))
        self._n_there = 0

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place from before the body is read to the answer; Problem `overloaded` where there is none."""
        if self._n_there >= MAX_AT_ONCE:
            raise Problem("overloaded", f"found {self._n_there} calibrations under way, expected fewer")
        self._n_there += 1
        try:
            yield
        finally:
            self._n_there -= 1

    async def run(self, work: Callable[[], Found]) -> Found:
        """Have the thread do it."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, work)

    async def close(self) -> None:
        """Finish what runs, drop what waits, end the thread."""
        await asyncio.to_thread(self._worker.shutdown, wait=True, cancel_futures=True)

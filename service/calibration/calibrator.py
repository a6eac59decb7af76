"""Calibrations are worked out beside everything else: in one thread of their own, one after the other.

An estimate from four seconds of sixteen takes keeps a core busy for some tenths of a second. Neither the event loop
nor the designs wait for it: PyTorch's operators let go of Python's lock, and everything else that is long is done
in this thread too, signal by signal.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeVar

from service.admission.deadlines import Gone, shed, waiting
from service.admission.design_times import RecentTimes
from service.admission.room import Room
from service.threads import prepare_thread

Found = TypeVar("Found")

WORK = "calibrations"

N_LARGEST = 4
"""So many bodies of the largest size may be under way at once, or more that are smaller: they are in memory."""


class Calibrator:
    """Runs work in its thread, as much as is done by its deadline.

    Each calibration is expected to take what the last ones took: of bodies of 0.2 to 46 MB the slowest took ten
    times as long as the quickest, so their lengths would tell less.
    """

    def __init__(self, max_bytes: int) -> None:
        """max_bytes: of all bodies under way. The thread starts with the first work."""
        self._worker = ThreadPoolExecutor(1, "calibrate", initializer=prepare_thread, initargs=(1,))
        self._room = Room(max_bytes)
        self._there: set[Future[Any]] = set()
        """What waits or runs."""
        self._times = RecentTimes()

    @contextmanager
    def place(self, n_bytes: int, due: float) -> Iterator[None]:
        """Room for a body, from before it is read to the answer; Problem `overloaded` where there is none, or where
        what is here already lasts beyond `due` (as `perf_counter` counts)."""
        self._refuse_hopeless(due)
        with self._room.place(n_bytes, self._backlog_s()):
            yield

    async def run(self, work: Callable[[], Found], due: float = math.inf, gone: Gone | None = None) -> Found:
        """Have the thread do it. Problem `overloaded` at once where that cannot be done by `due`, `deadline-passed`
        where it has not been; ClientDisconnect when the client has `gone`. What still waits then is not begun."""
        self._refuse_hopeless(due)
        before_s, loop = self._backlog_s(), asyncio.get_running_loop()

        def timed() -> tuple[Found, float]:
            began = perf_counter()
            return work(), perf_counter() - began

        future = self._worker.submit(timed)
        self._there.add(future)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._left, done))
        async with waiting(WORK, due, before_s, gone):
            found, _ = await asyncio.wrap_future(future)
        return found

    async def close(self) -> None:
        """Finish what runs, drop what waits, end the thread."""
        await asyncio.to_thread(self._worker.shutdown, wait=True, cancel_futures=True)

    def _left(self, done: Future[Any]) -> None:
        """In the loop: it was dropped, or is done. A time counts though nobody may have waited for its end, or a
        service that has become too slow would never know."""
        self._there.remove(done)
        if not done.cancelled() and done.exception() is None:
            self._times.observe(done.result()[1])

    def _backlog_s(self) -> float:
        """Seconds until all that is there is done; what runs counts whole."""
        return len(self._there) * self._times.expected_s

    def _refuse_hopeless(self, due: float) -> None:
        """Where nothing else is there it is tried at least: estimates of a bad moment must not keep all out."""
        before_s, own_s = self._backlog_s(), self._times.expected_s
        if self._there and perf_counter() + before_s + own_s > due:
            raise shed(WORK, before_s, own_s, due)

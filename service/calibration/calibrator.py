"""Runs calibrations in one thread, one after the other.

An estimate from sixteen takes of four seconds keeps a core busy for some tenths of a second. Neither the event loop
nor the designs wait for it: NumPy releases Python's lock during long operations.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import Any, TypeVar

from service.engine.job_queue import RecentTimes
from service.engine.types import Disconnected, Refused
from service.engine.waiting import done_in_time

Result = TypeVar("Result")


class Calibrator:
    """Runs work in its thread if it can be finished by its deadline.

    Each calibration is expected to take as long as the last ones: of bodies of 0.2 to 46 MB the slowest took only
    ten times as long as the fastest. Admission limits the memory of their bodies.
    """

    def __init__(self) -> None:
        """The thread starts with the first calibration."""
        self._worker = ThreadPoolExecutor(1, "calibrate")
        self._futures: set[Future[Any]] = set()
        """Waiting and running work."""
        self._times = RecentTimes()

    def reject_if_overloaded(self, due: float) -> None:
        """Raise Refused (`overloaded`) if queued work is expected to end after `due` (`perf_counter` seconds)."""
        before_s, own_s, left_s = self._backlog_s(), self._times.expected_s, due - perf_counter()
        # An idle thread always tries: one slow measurement must not block all calibrations for ever.
        if self._futures and before_s + own_s > left_s:
            raise Refused(
                "overloaded",
                f"{before_s:.1f} s of calibrations are queued and this one takes {own_s:.1f} s: more than the "
                f"{max(left_s, 0):.1f} s left before its deadline; retry later, or allow more time",
                retry_after_s=before_s,
            )

    async def run(
        self, work: Callable[[], Result], due: float = math.inf, disconnected: Disconnected | None = None
    ) -> Result:
        """Run work in the thread. Raises Refused, `overloaded` at once if it cannot be done by `due`,
        `deadline-passed` if it was not; ClientDisconnected. Work that still waits is then dropped."""
        self.reject_if_overloaded(due)
        before_s, loop = self._backlog_s(), asyncio.get_running_loop()

        def timed() -> tuple[Result, float]:
            began = perf_counter()
            return work(), perf_counter() - began

        future = self._worker.submit(timed)
        self._futures.add(future)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._finished, done))
        answer = asyncio.wrap_future(future)
        try:
            if not await done_in_time(answer, due, disconnected):
                raise Refused(
                    "deadline-passed",
                    "the deadline passed before the calibration was done; ask again later, or allow more time",
                    retry_after_s=before_s,
                )
            result, _ = answer.result()
            return result
        finally:
            answer.cancel()

    async def close(self) -> None:
        """Finish running work, drop waiting work, end the thread."""
        await asyncio.to_thread(self._worker.shutdown, wait=True, cancel_futures=True)

    def _finished(self, done: Future[Any]) -> None:
        """In the event loop. The time counts even if the request was given up: otherwise a service that has become
        too slow would not notice."""
        self._futures.remove(done)
        if not done.cancelled() and done.exception() is None:
            self._times.observe(done.result()[1])

    def _backlog_s(self) -> float:
        """Expected seconds until all work is done; running work counts as if it had just begun."""
        return len(self._futures) * self._times.expected_s

"""Work beside the designs: calibrations, exports, hybrid designs and verifications, in one thread per kind.

So no kind waits for another one's queue. Their priority is above that of the design workers: they are few, and take as
long as a hundred designs. Neither the event loop nor the designs wait for them: NumPy releases Python's lock during
long operations.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import Any, TypeVar

from prime_anc.method.errors import Interrupted, interruptible
from service.engine.job_queue import PLANNED, RecentTimes
from service.engine.types import Disconnected, RefusedJob
from service.engine.waiting import GRACE_S, LONGEST_WAIT_S, Awaited, done_in_time, raise_if_unwanted

Result = TypeVar("Result")


class WorkShare:
    """Runs work of one kind in its thread, in order of arrival, if it can be finished by its deadline.

    The expected time follows the latest pieces of work, in proportion to their amounts (`service.engine.work`).
    Admission limits the memory of the bodies.
    """

    def __init__(self, kind: str) -> None:
        """Prepare a thread, which starts with the first work.

        Parameters
        ----------
        kind
            Name of the work in a refusal, plural.
        """
        self.kind = kind
        self._worker = ThreadPoolExecutor(1, kind)
        # Waiting and running work, with amounts.
        self._waiting: dict[Future[Any], float] = {}
        # Times per amount of work.
        self._times = RecentTimes()

    def reject_if_overloaded(self, due: float, work: float = 1.0) -> None:
        """Refuse work that would wait too long.

        Parameters
        ----------
        due
            Its deadline (`perf_counter`, s).
        work
            Its amount.

        Raises
        ------
        RefusedJob
            `overloaded`, if queued work is expected to end more than LONGEST_WAIT_S from now, or this work after
            PLANNED of the time to its deadline: under load it takes longer, and an evaluation may follow. An idle
            thread always tries, since one slow measurement must not block this kind for ever.
        """
        before_s, work_s, left_s = self._backlog_s(), work * self._times.expected_s, due - perf_counter()
        is_long = len(self._waiting) > 1 and before_s > LONGEST_WAIT_S
        if self._waiting and (is_long or before_s + work_s > PLANNED * left_s):
            raise RefusedJob(
                "overloaded",
                f"{before_s:.1f} s of {self.kind} are queued and this request takes {work_s:.1f} s; at most "
                f"{LONGEST_WAIT_S:g} s may be queued, and {max(left_s, 0):.1f} s are left before its deadline; "
                "retry later, or allow more time",
                retry_after_s=before_s,
            )

    async def run(
        self,
        function: Callable[[], Result],
        due: float = math.inf,
        disconnected: Disconnected | None = None,
        work: float = 1.0,
    ) -> Result:
        """Run a function in the thread.

        Parameters
        ----------
        function
            Function to run; it is interrupted at `check_interruption` once it is no longer awaited.
        due
            Its deadline (`perf_counter`, s).
        disconnected
            Awaitable that returns when the client has disconnected.
        work
            Its amount of work, for the estimates.

        Returns
        -------
        Result
            Result of the function.

        Raises
        ------
        RefusedJob
            `overloaded` at once if it cannot be done by `due`, `deadline-passed` if it was not.
        ClientDisconnected
            The client has gone. Waiting work is then dropped.
        """
        self.reject_if_overloaded(due, work)
        before_s, loop, awaited = self._backlog_s(), asyncio.get_running_loop(), Awaited(due=due)

        def check() -> None:
            raise_if_unwanted([awaited])

        def timed() -> Result:
            began = perf_counter()

            def observe(least_s: float) -> None:
                spent_s = (perf_counter() - began) / work
                if spent_s > least_s:
                    loop.call_soon_threadsafe(self._times.observe, spent_s)

            try:
                check()
                with interruptible(check):
                    result = function()
            except Interrupted:  # it would have taken longer still
                observe(self._times.expected_s)
                raise
            observe(0.0)
            return result

        future = self._worker.submit(timed)
        self._waiting[future] = work
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._waiting.pop, done))
        answer = asyncio.wrap_future(future)
        try:
            in_time = await done_in_time(answer, due, disconnected)
            if not in_time and future.running():
                in_time = await done_in_time(answer, due + GRACE_S, disconnected)
            if not in_time:
                raise RefusedJob(
                    "deadline-passed",
                    f"the deadline passed before these {self.kind} were done; ask again later, or allow more time",
                    retry_after_s=before_s,
                )
            return answer.result()
        finally:
            awaited.is_abandoned = True
            answer.cancel()

    async def close(self) -> None:
        """Finish running work that is still awaited, drop waiting work, and end the thread."""
        await asyncio.to_thread(self._worker.shutdown, wait=True, cancel_futures=True)

    def _backlog_s(self) -> float:
        """Estimate the time (s) until all work is done; running work counts as if it had just begun."""
        return sum(self._waiting.values()) * self._times.expected_s

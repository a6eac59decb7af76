"""The queue of all work: worker threads in two lanes, and the event loop's view of them.

Light work, designs and predictions, has its own workers, so that it never waits for work that takes hundreds of times
as long. The workers of heavy work run at a lower priority. Python's lock is released in the compiled core and in long
operations of NumPy.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from threading import Condition, Thread, get_native_id
from time import perf_counter
from typing import Any

from prime_anc.method.errors import DeviceLost, Interrupted, interruption_check
from service.errors import HttpProblem, retry_after
from service.queue.estimates import Estimates
from service.queue.lane import Batch, Lane, Work
from service.queue.waiting import Disconnected, done_in_time

logger = logging.getLogger(__name__)

# Expected time (s) from which work is heavy.
HEAVY_FROM_S = 0.05

# Expected time (s) from which running work's connection is watched; shorter work ends before that is worth it.
WATCHED_FROM_S = 0.02

# Wait (s) above which more work of one key is refused, by lane.
LONGEST_WAIT_S = {"light": 0.5, "heavy": 5.0}

# Added to the process's niceness for the workers: if cores are scarce, the event loop comes first.
NICENESS = {"light": 3, "heavy": 6}

# Time (s) after its deadline in which running work may notice it; then the request is answered without it.
GRACE_S = 0.25

# A worker that hangs is abandoned at the end after so many seconds.
JOIN_S = 30.0


class WorkQueue:
    """Work in two lanes. Its coroutines run in the event loop that called `start`."""

    def __init__(self, n_light: int, n_heavy: int, max_batch: int = 1) -> None:
        """Set the numbers of workers of both lanes, and the most designs in a batch."""
        estimates = Estimates()
        self.lanes = {
            "light": Lane(n_light, max_batch, LONGEST_WAIT_S["light"], estimates),
            "heavy": Lane(n_heavy, 1, LONGEST_WAIT_S["heavy"], estimates),
        }
        self._changed = Condition()
        self._is_closed = False
        self._threads = [
            Thread(target=self._work, args=(name,), name=f"{name}-{n}", daemon=True)
            for name, lane in self.lanes.items()
            for n in range(lane.n_workers)
        ]
        # Called in a worker: with the size of a finished batch; if the GPU has failed.
        self.on_batch: Callable[[int], None] = lambda n: None
        self.on_device_lost: Callable[[DeviceLost], None] = lambda error: None

    def start(self) -> None:
        """Start the workers."""
        self._loop = asyncio.get_running_loop()
        for thread in self._threads:
            thread.start()

    async def close(self) -> None:
        """Finish running work, refuse waiting work and end the threads."""
        with self._changed:
            self._is_closed = True
            left = [work for lane in self.lanes.values() for work in lane.close()]
            self._changed.notify_all()
        for work in left:
            work.on_done(stopping())
        for thread in self._threads:
            await asyncio.to_thread(thread.join, JOIN_S)

    @property
    def n_pending(self) -> dict[str, int]:
        """Return the number of pieces of work that wait or run, by lane."""
        with self._changed:
            return {name: len(lane) for name, lane in self.lanes.items()}

    def longest_running_s(self) -> float:
        """Return the time (s) since the start of the oldest light work, which is never this long."""
        with self._changed:
            return self.lanes["light"].longest_running_s(perf_counter())

    def require_room(self, key: str, due: float) -> None:
        """Refuse light work of a key that would be late however little it is; raises as `Lane.require_room`."""
        with self._changed:
            self.lanes["light"].require_room(key, due, perf_counter())

    async def run(
        self, work: Work, disconnected: Disconnected | None = None, *, lane: str | None = None, first: bool = False
    ) -> Any:
        """Queue work and await its result.

        Parameters
        ----------
        work
            What to do.
        disconnected
            Gives an awaitable that returns when the client has disconnected; the work is then dropped, or interrupted.
        lane
            `light` or `heavy`; None: by its expected time.
        first
            Whether it comes before all other work, whatever the load.

        Raises
        ------
        HttpProblem
            `overloaded`, `deadline-passed` or `not-ready`.
        ClientGone
            Nobody waits any more.
        Exception
            As the work raises.
        """
        result: asyncio.Future[Any] = self._loop.create_future()

        def deliver(answer: Any) -> None:
            self._loop.call_soon_threadsafe(_resolve, result, answer)

        work.on_done = deliver
        with self._changed:
            if self._is_closed:
                raise stopping()
            if lane is None:
                expected_s = self.lanes["light"].estimates.expected_s(work.cost)
                lane = "heavy" if expected_s > HEAVY_FROM_S else "light"
            found = self.lanes[lane]
            must_wait = found.is_busy
            if first:
                found.put_first(work)
            else:
                found.put(work, perf_counter())
            self._changed.notify_all()
        try:
            # Short work that a worker takes at once needs neither a timeout nor a watch on the connection.
            if must_wait or found.estimates.expected_s(work.cost) > WATCHED_FROM_S:
                await self._in_time(work, result, disconnected)
            return await result
        finally:
            work.is_abandoned = True

    async def _in_time(self, work: Work, result: asyncio.Future[Any], disconnected: Disconnected | None) -> None:
        """Wait until the result is there, or nobody waits for it any more."""
        in_time = await done_in_time(result, work.due, disconnected)
        if not in_time and work.began:
            in_time = await done_in_time(result, work.due + GRACE_S, disconnected)
        if not in_time:
            raise self._too_late(work)

    def _too_late(self, work: Work) -> HttpProblem:
        waited_ms = 1e3 * (perf_counter() - work.since)
        detail = f"the deadline passed after {waited_ms:.0f} ms; retry later, or allow more time"
        return HttpProblem("deadline-passed", detail, headers=retry_after(work.cost.nominal_s()))

    def _work(self, name: str) -> None:
        """Do the work of a lane, in a thread of its own."""
        with suppress(OSError, AttributeError):  # on systems without niceness per thread
            thread = get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS[name])
        lane = self.lanes[name]
        while True:
            with self._changed:
                while (batch := lane.take(perf_counter())) is None:
                    if self._is_closed:
                        return
                    self._changed.wait()
            results = self._results(batch)
            failed = [item for item in results if isinstance(item, Exception)]
            was_interrupted = any(isinstance(item, Interrupted) for item in failed)
            with self._changed:
                lane.done(batch, perf_counter(), was_interrupted=was_interrupted, is_typical=not failed)
            self.on_batch(len(batch))
            for work, result in zip(batch, results, strict=True):
                work.on_done(result)
            del batch, results, failed

    def _results(self, batch: Batch) -> list[Any]:
        """Return the results of a batch, errors in their places."""

        def check() -> None:
            batch.require_wanted(perf_counter())

        token = interruption_check.set(check)
        try:
            check()
            return batch[0].run([work.item for work in batch], batch[0].n_updates)
        except MemoryError:  # says nothing of a filter that is checked
            error: Exception = HttpProblem("overloaded", "there is not enough memory for this; retry in a moment")
        except DeviceLost as lost:
            self.on_device_lost(lost)
            error = device_lost()
        except Exception as failure:
            error = failure
        finally:
            interruption_check.reset(token)
        return [error] * len(batch)


def stopping() -> HttpProblem:
    """Return the error for work during shutdown."""
    return HttpProblem("not-ready", "the service is shutting down; send requests to another replica")


def device_lost() -> HttpProblem:
    """Return the error for work on a GPU that has failed."""
    return HttpProblem("not-ready", "the GPU of this replica has failed; send requests to another replica")


def _resolve(result: asyncio.Future[Any], answer: Any) -> None:
    """Hand over a result or an error, if it is still awaited."""
    if result.done():
        return
    if isinstance(answer, Exception):
        result.set_exception(answer)
        result.exception()  # marks it as retrieved, in case it is not awaited
    else:
        result.set_result(answer)

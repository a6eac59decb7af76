"""Where long JSON is read and written: in processes of its own, so that the event loop goes on answering.

A megabyte of numbers takes some ten milliseconds to read, fifty times what a binary body of the same paths takes,
and Python's lock would be held for most of it, in the event loop's thread or in any other.
"""

from __future__ import annotations

import asyncio
import logging
import math
import multiprocessing
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence, Sized
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from time import perf_counter
from typing import Any, TypeVar

from service.admission.deadlines import Gone, shed, waiting
from service.admission.design_times import RecentTimes
from service.errors import Problem, retry_after
from service.formats import json_numbers, side_process
from service.formats.json_numbers import Unreadable

logger = logging.getLogger(__name__)
Found = TypeVar("Found")
Work = Callable[[Any], object]

SMALL_BYTES = 65_536
"""Bodies up to this are read in the event loop: a quarter of a millisecond, less than the way to a process."""

FEW_DOCUMENTS = 4
"""Answers up to this many are written in the event loop, all in a quarter of a millisecond."""

MAX_WAITING = 32
"""Bodies that may wait or be read at once, for each process, whatever their deadlines: they are in memory."""

PORTION = 2**20
"""Bytes of a body that are copied at a time on the way to a process."""

WORK = "long JSON"


class SideLane:
    """A pool of processes for long JSON. With none, the event loop reads and writes everything itself."""

    def __init__(self, n_processes: int) -> None:
        """Starts nothing yet."""
        self._n_processes = n_processes
        self._pool: ProcessPoolExecutor | None = None
        self._n_waiting = 0
        self._waiting: Counter[Work] = Counter()
        """Bytes to be read and documents to be written, of all that waits or runs."""
        self._unit_s: defaultdict[Work, RecentTimes] = defaultdict(RecentTimes)
        """What a process took for one of them."""

    def start(self) -> None:
        """Start the processes; returns at once."""
        if self._n_processes:
            self._pool = self._new_pool()

    async def close(self) -> None:
        """End the processes once they have done what they are at."""
        if self._pool is not None:
            await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)

    async def load(
        self, body: bytes | bytearray | memoryview, due: float = math.inf, gone: Gone | None = None
    ) -> object:
        """`json_numbers.load`, or Problem: where the body is none, where what is there before it lasts beyond `due`
        (as `perf_counter` counts; `overloaded`, at once), or where that has come (`deadline-passed`). gone: as for
        `waiting`."""
        try:
            if self._pool is None or len(body) <= SMALL_BYTES:
                return json_numbers.load(body)
            return await self._run(json_numbers.load, _Body(body), due, gone)
        except Unreadable as error:
            raise Problem(error.code, error.detail) from None

    async def dump(self, documents: Sequence[object]) -> list[bytes]:
        """`json_numbers.dump`, whenever it is done: what it took to make the documents is spent."""
        if self._pool is None or len(documents) <= FEW_DOCUMENTS:
            return json_numbers.dump(documents)
        return await self._run(json_numbers.dump, documents, math.inf)

    async def _run(self, work: Callable[[Any], Found], given: Sized, due: float, gone: Gone | None = None) -> Found:
        """Have a process do it, unless that cannot be done by `due`. Where nothing else is there it is tried at
        least: estimates of a bad moment must not keep long bodies out for good."""
        before_s, own_s = self._backlog_s(), len(given) * self._unit_s[work].expected_s
        if self._n_waiting and perf_counter() + before_s + own_s > due:
            raise shed(WORK, before_s, own_s, due)
        if self._n_waiting >= MAX_WAITING * self._n_processes:
            detail = f"found {self._n_waiting} long JSON bodies waiting, expected fewer"
            raise Problem("overloaded", detail, headers=retry_after(before_s))
        self._n_waiting += 1
        self._waiting[work] += len(given)
        try:
            async with waiting(WORK, due, before_s, gone):
                found, spent_s = await self._done(work, given)
        finally:
            self._n_waiting -= 1
            self._waiting[work] -= len(given)
        self._unit_s[work].observe(spent_s / len(given))
        return found

    def _backlog_s(self) -> float:
        """Seconds until all that is there is done; what runs counts whole."""
        return sum(n * self._unit_s[work].expected_s for work, n in self._waiting.items()) / self._n_processes

    async def _done(self, work: Callable[[Any], Found], given: Sized) -> tuple[Found, float]:
        """What a process found, and its time. One that was killed is replaced, and the work done again, once."""
        loop, pool = asyncio.get_running_loop(), self._pool
        try:
            return await loop.run_in_executor(pool, side_process.timed, work, given)
        except BrokenProcessPool:
            if self._pool is pool:  # the first to notice
                logger.warning("A process for long JSON has died; others are started")
                self._pool = self._new_pool()
            return await loop.run_in_executor(self._pool, side_process.timed, work, given)

    def _new_pool(self) -> ProcessPoolExecutor:
        """Processes that import this project's JSON module and no more; on their way when this returns.

        They are spawned, never forked: this process has threads, and perhaps a GPU.
        """
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self._n_processes, context, initializer=side_process.prepare)
        for _ in range(self._n_processes):
            pool.submit(json_numbers.load, b"0")
        return pool


class _Body:
    """A body that a process gets as bytes, pickled in portions between which Python's lock can be given up: a
    copy of 60 MB in one piece, in whichever thread, keeps the event loop waiting for a tenth of a second."""

    def __init__(self, body: bytes | bytearray | memoryview) -> None:
        self._body = memoryview(body)

    def __len__(self) -> int:
        return len(self._body)

    def __reduce__(self) -> tuple[Any, ...]:
        return b"".join, ([_Portion(self._body[at : at + PORTION]) for at in range(0, len(self), PORTION)],)


class _Portion:
    """Pickled by a call into Python, which is where the lock changes hands."""

    def __init__(self, part: memoryview) -> None:
        self._part = part

    def __reduce__(self) -> tuple[Any, ...]:
        return bytes, (bytes(self._part),)

"""Where long JSON is read and written: in processes of its own, so that the event loop goes on answering.

A megabyte of numbers takes some ten milliseconds to read, fifty times what a binary body of the same paths takes,
and Python's lock would be held for most of it, in the event loop's thread or in any other.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from service.errors import Problem
from service.formats import json_numbers, side_process
from service.formats.json_numbers import Unreadable

logger = logging.getLogger(__name__)
Given = TypeVar("Given")
Found = TypeVar("Found")

SMALL_BYTES = 65_536
"""Bodies up to this are read in the event loop: a quarter of a millisecond, less than the way to a process."""

FEW_DOCUMENTS = 4
"""Answers up to this many are written in the event loop, all in a quarter of a millisecond."""

MAX_WAITING = 32
"""Bodies that may wait or be read at once, for each process; more are shed."""


class SideLane:
    """A pool of processes for long JSON. With none, the event loop reads and writes everything itself."""

    def __init__(self, n_processes: int) -> None:
        """Starts nothing yet."""
        self._n_processes = n_processes
        self._pool: ProcessPoolExecutor | None = None
        self._n_waiting = 0

    def start(self) -> None:
        """Start the processes; returns at once."""
        if self._n_processes:
            self._pool = self._new_pool()

    async def close(self) -> None:
        """End the processes once they have done what they are at."""
        if self._pool is not None:
            await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)

    async def load(self, body: bytes | bytearray | memoryview) -> object:
        """`json_numbers.load`, or Problem."""
        try:
            if self._pool is None or len(body) <= SMALL_BYTES:
                return json_numbers.load(body)
            return await self._run(json_numbers.load, bytes(body))
        except Unreadable as error:
            raise Problem(error.code, error.detail) from None

    async def dump(self, documents: Sequence[object]) -> list[bytes]:
        """`json_numbers.dump`."""
        if self._pool is None or len(documents) <= FEW_DOCUMENTS:
            return json_numbers.dump(documents)
        return await self._run(json_numbers.dump, documents)

    async def _run(self, work: Callable[[Given], Found], given: Given) -> Found:
        """Have a process do it. One that was killed is replaced, and the work done again, once."""
        if self._n_waiting >= MAX_WAITING * self._n_processes:
            raise Problem("overloaded", f"found {self._n_waiting} long JSON bodies waiting, expected fewer")
        loop = asyncio.get_running_loop()
        self._n_waiting += 1
        try:
            pool = self._pool
            try:
                return await loop.run_in_executor(pool, work, given)
            except BrokenProcessPool:
                if self._pool is pool:  # the first to notice
                    logger.warning("A process for long JSON has died; others are started")
                    self._pool = self._new_pool()
                return await loop.run_in_executor(self._pool, work, given)
        finally:
            self._n_waiting -= 1

    def _new_pool(self) -> ProcessPoolExecutor:
        """Processes that import this project's JSON module and no more; on their way when this returns.

        They are spawned, never forked: this process has threads, and perhaps a GPU.
        """
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self._n_processes, context, initializer=side_process.prepare)
        for _ in range(self._n_processes):
            pool.submit(json_numbers.load, b"0")
        return pool

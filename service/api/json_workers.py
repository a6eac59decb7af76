"""Parses long JSON bodies in a worker process.

A megabyte of numbers holds Python's lock for about ten milliseconds, fifty times as long as a binary body of the
same paths, which would delay all other requests.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from typing import Any

from service.api import json_parsing
from service.api.json_parsing import UnreadableJson
from service.engine.types import Disconnected
from service.engine.waiting import done_in_time
from service.errors import HttpProblem

logger = logging.getLogger(__name__)

SHORT_BYTES = 65_536
"""Bodies up to this size are parsed in the event loop: a quarter of a millisecond, less than the transfer to a
process."""

MAX_WAITING = 32
"""Largest number of long bodies that wait or are being parsed; this limits memory."""

NICENESS = 10
"""Lowers the worker's priority, so that designs and binary requests come before long JSON."""


class JsonWorkerPool:
    """One worker process, started by the first long body and replaced if it dies. Bodies that arrive before it has
    started are parsed in a thread, since starting may take longer than their deadline on a busy machine."""

    def __init__(self) -> None:
        """The worker is not started yet."""
        self._pool: ProcessPoolExecutor | None = None
        self._workers: list[multiprocessing.process.BaseProcess] = []
        self._is_up: Future[object] | None = None
        """Done when the first worker has parsed something."""
        self.n_waiting = 0
        self._turn = asyncio.Lock()
        self._last: asyncio.Future[object] | None = None
        """The body that the worker has. It is never cancelled, and the next waits for it: an executor of which a
        process dies gives up at a future that was cancelled, and the ones behind that would wait for ever."""

    async def parse(self, body: bytes | bytearray | memoryview, due: float, disconnected: Disconnected) -> object:
        """`json_parsing.parse`; HttpProblem if the body is invalid, if parsing is not done by `due` (`perf_counter`
        seconds; `deadline-passed`) or if too many bodies wait (`overloaded`). ClientDisconnected if the client
        disconnects."""
        try:
            if len(body) <= SHORT_BYTES:
                return json_parsing.parse(body)
            return await self._in_worker(bytes(body), due, disconnected)
        except UnreadableJson as error:
            raise HttpProblem(error.code, error.detail) from None

    async def _in_worker(self, body: bytes, due: float, disconnected: Disconnected) -> object:
        if self.n_waiting >= MAX_WAITING:
            raise HttpProblem(
                "overloaded", f"{self.n_waiting} long JSON bodies are waiting; retry later, or send binary"
            )
        parsing = asyncio.ensure_future(self._parsed(body))
        self.n_waiting += 1
        try:
            if not await done_in_time(parsing, due, disconnected):
                raise HttpProblem(
                    "deadline-passed", "the deadline passed while long JSON was being parsed; send binary"
                )
            return await parsing
        finally:
            self.n_waiting -= 1
            parsing.cancel()

    async def _parsed(self, body: bytes) -> object:
        """Try twice: a worker that was killed is replaced."""
        if self._is_up is None:
            self._start()
        assert self._is_up is not None
        if not self._is_up.done():
            return await asyncio.to_thread(json_parsing.parse, body)
        async with self._turn:
            if self._last is not None:
                await asyncio.wait([self._last])  # of a client that disconnected
            try:
                return await self._in_turn(body)
            except BrokenProcessPool:
                logger.warning("The JSON worker process died and is replaced")
                return await self._in_turn(body)

    async def _in_turn(self, body: bytes) -> object:
        self._last = asyncio.wrap_future(self._submit(body))
        self._last.add_done_callback(lambda future: future.exception())  # read also where the client has gone
        return await asyncio.shield(self._last)

    def _submit(self, body: bytes) -> Future[object]:
        if self._pool is not None:
            with suppress(BrokenProcessPool):
                return self._pool.submit(json_parsing.parse, body)
        self._start()
        assert self._pool is not None
        return self._pool.submit(json_parsing.parse, body)

    def _start(self) -> None:
        """Start a worker that imports only the parser.

        It is spawned, not forked: this process has threads, and perhaps a GPU. Its ends of both pipes are closed in
        this process: otherwise, if a worker were killed while receiving a body or sending a result, the pool would
        wait for ever for somebody to read or write the rest (the former before Python 3.11.5, CPython issue 94777).
        """
        before = set(multiprocessing.active_children())
        context = multiprocessing.get_context("spawn")
        self._pool = pool = ProcessPoolExecutor(1, context, initializer=_prepare_worker)
        first = pool.submit(json_parsing.parse, b"0")  # starts the process
        self._is_up = self._is_up or first
        self._workers = [each for each in multiprocessing.active_children() if each not in before]
        pipes: Any = pool
        pipes._call_queue._reader.close()
        pipes._result_queue._writer.close()

    async def close(self) -> None:
        """Kill the worker."""
        if self._pool is not None:
            for worker in self._workers:
                worker.kill()
            await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)


def _prepare_worker() -> None:
    """In the worker: ignore Ctrl-C, lower the priority, and end with the service."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(0)

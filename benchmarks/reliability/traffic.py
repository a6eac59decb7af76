"""Send requests to a service under test, sequentially or at a steady rate, on kept connections."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.reliability.command import counted
from benchmarks.timing import summary
from model_store.checkpoint import GoldenCase
from prime_anc.client import wire

ANSWER_BYTES = 8192
CORES_FOR_CLIENTS = 4
CLIENT_NICENESS = 10
PATIENT = {"X-Deadline-Ms": "60000"}
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_LENGTH = re.compile(rb"\ncontent-length: (\d+)", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"\nretry-after: [1-9]\d*\r", re.IGNORECASE)
_TOTAL = re.compile(rb"\nserver-timing: [^\r]*total;dur=([0-9.]+)", re.IGNORECASE)
_APPLIED = re.compile(rb"\nx-refine-applied: (\d+)", re.IGNORECASE)


def judged_by() -> str:
    """Return whose times are judged: the service's if clients share its few cores, else the client's."""
    return "client" if (os.cpu_count() or 1) >= CORES_FOR_CLIENTS else "server"


def design_body(golden: GoldenCase) -> bytes:
    """Return a binary body with the golden case's impulse responses."""
    return wire.encode(np.asarray(golden.primary), np.asarray(golden.secondary))


def request(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> bytes:
    """Compose head and body of a request."""
    lines = {"Host": "service", **({"Content-Length": str(len(body))} if body else {}), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def design_request(golden: GoldenCase, path: str, headers: Mapping[str, str] | None = None) -> bytes:
    """Compose a design request with a binary body and a binary answer."""
    binary = {"Content-Type": "application/x-safetensors", "Accept": "application/octet-stream"}
    return request("POST", path, design_body(golden), binary | dict(headers or {}))


@dataclass(frozen=True)
class Answer:
    """An answer with its times."""

    status: int
    body: bytes
    # At the client.
    latency_ms: float
    # `total` of `Server-Timing`, None without one.
    server_ms: float | None
    n_applied: int | None
    has_retry_after: bool


class TrafficConnection:
    """A kept connection, opened at the first request and again after it was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, content: bytes) -> Answer:
        """Send a complete request and read the complete answer."""
        if self._streams is not None and self._streams[0].at_eof():
            self.close()  # the service closes idle connections, as clients must expect
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        began = time.perf_counter()
        writer.write(content)
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length.group(1))) if length else b""
        latency_ms = 1e3 * (time.perf_counter() - began)
        if b"\nconnection: close" in head.lower():
            self.close()
        status, total, applied = _STATUS.match(head), _TOTAL.search(head), _APPLIED.search(head)
        if status is None:
            raise ConnectionError("the answer has no status line")
        return Answer(
            int(status.group(1)),
            body,
            latency_ms,
            float(total.group(1)) if total else None,
            int(applied.group(1)) if applied else None,
            _RETRY_AFTER.search(head) is not None,
        )

    def close(self) -> None:
        """Close the socket."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


@dataclass
class Tally:
    """Counts and times of answers of one kind."""

    # Whether the body of an answer is valid.
    is_right: Callable[[bytes], bool] = lambda body: is_filter(body)
    accepted_ms: list[float] = field(default_factory=list)
    accepted_server_ms: list[float] = field(default_factory=list)
    shed_ms: list[float] = field(default_factory=list)
    shed_server_ms: list[float] = field(default_factory=list)
    applied: Counter[int] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    # Forbidden events by kind.
    mistakes: Counter[str] = field(default_factory=Counter)

    def add(self, answer: Answer) -> None:
        """Add one answer."""
        self.statuses[answer.status] += 1
        if answer.status == 200:
            self.accepted_ms.append(answer.latency_ms)
            self.accepted_server_ms.append(answer.server_ms or 0.0)
            self.applied[answer.n_applied or 0] += 1
            if not self.is_right(answer.body):
                self.mistakes["an answer that is none"] += 1
        elif answer.status == 503:
            self.shed_ms.append(answer.latency_ms)
            if answer.server_ms is not None:
                self.shed_server_ms.append(answer.server_ms)
            if not answer.has_retry_after:
                self.mistakes["503 without Retry-After"] += 1
        else:
            self.mistakes[f"status {answer.status}"] += 1

    def accepted(self) -> dict[str, Any]:
        """Return median and p99 of accepted requests, at the client and the server."""
        return {"client": summary(self.accepted_ms), "server": summary(self.accepted_server_ms)}

    def shed(self) -> dict[str, Any]:
        """Return the same for requests refused with 503."""
        return {"client": summary(self.shed_ms), "server": summary(self.shed_server_ms)}


# Returns the next request and the tally for its answer.
Draw = Callable[[], tuple[bytes, Tally]]


def is_filter(body: bytes) -> bool:
    """Return whether a binary answer holds 2048 finite numbers."""
    return len(body) == ANSWER_BYTES and bool(np.isfinite(np.frombuffer(body, "<f4")).all())


async def closed_loop(port: int, content: bytes, n: int, n_clients: int = 1) -> Tally:
    """Send `n` requests from clients that wait for an answer before the next request."""
    tally = Tally()
    await closed_loop_of(port, lambda: (content, tally), n, n_clients)
    return tally


async def closed_loop_of(port: int, draw: Draw, n: int, n_clients: int = 1) -> None:
    """Run `closed_loop` with several kinds."""
    left = counted(n, "requests")

    async def client() -> None:
        connection = TrafficConnection(port)
        for _ in left:
            await _ask(connection, *draw())
        connection.close()

    await asyncio.gather(*(client() for _ in range(n_clients)))


async def open_loop(port: int, content: bytes, per_s: float, for_s: float) -> Tally:
    """Send requests at a steady rate, on idle or new connections, however long others take."""
    tally = Tally()
    await open_loop_of(port, lambda: (content, tally), per_s, for_s)
    return tally


async def open_loop_of(port: int, draw: Draw, per_s: float, for_s: float) -> None:
    """Run `open_loop` with several kinds."""
    idle, asking = list[TrafficConnection](), set[asyncio.Task[None]]()

    async def ask(connection: TrafficConnection) -> None:
        await _ask(connection, *draw())
        idle.append(connection)

    began = time.perf_counter()
    for number in counted(round(per_s * for_s), "requests"):
        await asyncio.sleep(max(began + number / per_s - time.perf_counter(), 0))
        task = asyncio.create_task(ask(idle.pop() if idle else TrafficConnection(port)))
        asking.add(task)
        task.add_done_callback(asking.discard)
    await asyncio.gather(*asking)
    for connection in idle:
        connection.close()


async def _ask(connection: TrafficConnection, content: bytes, tally: Tally) -> None:
    try:
        tally.add(await connection.ask(content))
    except (OSError, asyncio.IncompleteReadError) as error:
        tally.mistakes[type(error).__name__] += 1
        connection.close()

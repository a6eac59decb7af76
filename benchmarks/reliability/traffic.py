"""Traffic on a service under test: on kept connections, one after the other or at a rate of its own."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from benchmarks.long_form import counted
from model_store.golden import GoldenCase
from service.formats import wire

ANSWER_BYTES = 8192
CORES_FOR_CLIENTS = 4
CLIENTS_NICENESS = 10
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")
_LENGTH = re.compile(rb"\ncontent-length: (\d+)", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"\nretry-after: [1-9]\d*\r", re.IGNORECASE)
_TOTAL = re.compile(rb"\nserver-timing: [^\r]*total;dur=([0-9.]+)", re.IGNORECASE)
_APPLIED = re.compile(rb"\nx-refine-applied: (\d+)", re.IGNORECASE)


def whose_times(n_cores: int) -> str:
    """By whose times answers are judged: the service's own where clients share its few cores, else the clients'."""
    return "client" if n_cores >= CORES_FOR_CLIENTS else "server"


def request(golden: GoldenCase, path: str, headers: Mapping[str, str] | None = None) -> bytes:
    """A whole binary request for the golden ear, with a binary answer."""
    body = wire.encode(golden.primary.numpy(), golden.secondary.numpy())
    lines = {
        "Host": "service",
        "Content-Type": "application/octet-stream",
        "Accept": "application/octet-stream",
        "Content-Length": str(len(body)),
        **(headers or {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


@dataclass(frozen=True)
class Answer:
    """What came back. spent_ms: as the client saw it; server_ms: `total` of `Server-Timing`; None without one."""

    status: int
    body: bytes
    spent_ms: float
    server_ms: float | None
    n_applied: int | None
    says_when: bool
    """Whether `Retry-After` is there."""


class Connection:
    """One kept connection; opened when it is first used and after it was closed."""

    def __init__(self, port: int) -> None:
        """Opens nothing yet."""
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, content: bytes) -> Answer:
        """Send a whole request, and read the whole answer."""
        if self._streams is not None and self._streams[0].at_eof():
            self.close()  # hung up by the service while it was idle, as any client must expect
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        began = time.perf_counter()
        writer.write(content)
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length.group(1))) if length else b""
        spent_ms = 1e3 * (time.perf_counter() - began)
        if b"\nconnection: close" in head.lower():
            self.close()
        status, total, applied = _STATUS.match(head), _TOTAL.search(head), _APPLIED.search(head)
        if status is None:
            raise ConnectionError("found no status line, expected one")
        return Answer(
            int(status.group(1)),
            body,
            spent_ms,
            float(total.group(1)) if total else None,
            int(applied.group(1)) if applied else None,
            _RETRY_AFTER.search(head) is not None,
        )

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


@dataclass
class Tally:
    """What many requests came to. mistakes: whatever must not be, by kind."""

    accepted_ms: list[float] = field(default_factory=list)
    accepted_server_ms: list[float] = field(default_factory=list)
    shed_ms: list[float] = field(default_factory=list)
    shed_server_ms: list[float] = field(default_factory=list)
    applied: Counter[int] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    mistakes: Counter[str] = field(default_factory=Counter)
    last: bytes = b""
    """The last answer that was accepted."""

    def add(self, answer: Answer) -> None:
        """One more."""
        self.statuses[answer.status] += 1
        if answer.status == 200:
            self.accepted_ms.append(answer.spent_ms)
            self.accepted_server_ms.append(answer.server_ms or 0.0)
            self.applied[answer.n_applied or 0] += 1
            self.last = answer.body
            if len(answer.body) != ANSWER_BYTES or not np.isfinite(np.frombuffer(answer.body, "<f4")).all():
                self.mistakes["an answer that is no filter"] += 1
        elif answer.status == 503:
            self.shed_ms.append(answer.spent_ms)
            if answer.server_ms is not None:
                self.shed_server_ms.append(answer.server_ms)
            if not answer.says_when:
                self.mistakes["503 without Retry-After"] += 1
        else:
            self.mistakes[f"status {answer.status}"] += 1


async def in_turn(port: int, content: bytes, n: int, n_clients: int = 1) -> Tally:
    """`n` requests by clients who each wait for one answer before they ask again."""
    tally, left = Tally(), counted(n, "requests")

    async def client() -> None:
        connection = Connection(port)
        for _ in left:
            await _asked(connection, content, tally)
        connection.close()

    await asyncio.gather(*(client() for _ in range(n_clients)))
    return tally


async def at_a_rate(port: int, content: bytes, per_s: float, for_s: float) -> Tally:
    """Requests at a steady rate, each on an idle connection or on a new one, however long the others take."""
    tally, idle, asking = Tally(), list[Connection](), set[asyncio.Task[None]]()

    async def ask(connection: Connection) -> None:
        await _asked(connection, content, tally)
        idle.append(connection)

    began = time.perf_counter()
    for number in counted(round(per_s * for_s), "requests"):
        await asyncio.sleep(max(began + number / per_s - time.perf_counter(), 0))
        task = asyncio.create_task(ask(idle.pop() if idle else Connection(port)))
        asking.add(task)
        task.add_done_callback(asking.discard)
    await asyncio.gather(*asking)
    for connection in idle:
        connection.close()
    return tally


async def _asked(connection: Connection, content: bytes, tally: Tally) -> None:
    try:
        tally.add(await connection.ask(content))
    except (OSError, asyncio.IncompleteReadError) as error:
        tally.mistakes[type(error).__name__] += 1
        connection.close()

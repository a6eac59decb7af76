"""`python -m benchmarks load`: requests to a real service from one client, from many, and at three times its capacity.

1. One client sends each kind of design request in turn: latencies, and what HTTP and queue add to the design.
2. Many clients find the capacity, in requests per second.
3. For `--seconds`, requests come at three times the capacity, with a deadline of twice the unloaded p99. What must
   hold: only 200 and 503, 503 only with Retry-After and within 5 ms, p99 of accepted requests within twice the unloaded
   one.
4. Two seconds later, one client finds the unloaded times again.

With `--mixed` the requests are of all kinds of work, with default deadlines, and no kind may be served less than half
as often as its part of the capacity. Runs of less than a minute do not judge times. With fewer than four cores, clients
share the service's, whose own times are judged then. The status is 1 if something did not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import machine, results
from benchmarks.core import add_model_options, store_of
from benchmarks.service_process import started_service
from model_store.checkpoint import GoldenCase
from prime_anc.client import Take, wire
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ

JSON, TAPS = "application/json", "application/octet-stream"
PATIENT = {"X-Deadline-Ms": "60000"}
OVERLOAD, DEADLINE_OVER_P99 = 3.0, 2.0
RECOVERS_WITHIN_S, RECOVERED_OVER_UNLOADED = 2.0, 1.5
SHED_WITHIN_MS = 5.0
JUDGED_FROM_S = 60.0
LEAST_SHARE = 0.5
N_CLIENTS, N_WARM_UP = 8, 20
CORES_FOR_CLIENTS = 4
N_TAPS = 2048
# Stages of the answer's Server-Timing that are the design's.
DESIGN_STAGES = ["decode", "core", "predict"]
# Percentages of the kinds of a mixed load.
SHARES = {"binary": 70, "json": 15, "evaluate": 5, "export": 5, "calibrate": 5}
_LENGTH = re.compile(rb"\ncontent-length: (\d+)", re.IGNORECASE)
_TIMING = re.compile(rb"\nserver-timing: ([^\r]*)", re.IGNORECASE)
_RETRY_AFTER = re.compile(rb"\nretry-after: [1-9]\d*\r", re.IGNORECASE)

# Returns the name of a kind and a complete request.
Draw = Callable[[], tuple[str, bytes]]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    machine.add_options(parser)
    add_model_options(parser)
    parser.add_argument("--seconds", type=float, default=60.0, help="of the overload")
    parser.add_argument("--requests", type=int, default=500, help="of one client, per kind")
    parser.add_argument("--updates", type=int, default=1, metavar="K", help="Gauss-Newton updates")
    parser.add_argument("--mixed", action="store_true", help="requests of all kinds of work")


def run(options: argparse.Namespace) -> int:
    """Load a service, print the figures and write load.json."""
    device = machine.choose_device(options)
    described = machine.describe(device)
    n_alone, for_s = (10, 0.5) if options.quick else (options.requests, options.seconds)
    golden = store_of(options).load(options.model).golden
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as running:
        with on_cores(cores[:-1] or cores):
            service = started_service(options.store, "--device", device, "--model", options.model)
            load = Load(running.enter_context(service).port)
        with on_cores(cores[-1:]):
            phases = mixed if options.mixed else overload
            figures = asyncio.run(phases(load, golden, options.updates, n_alone, for_s))
    answers = pd.DataFrame(load.answers)
    table = summary(answers)
    print(table.to_string(float_format="%.3f"), "\n", figures, flush=True)
    mistakes = forbidden(answers) + (judged(answers, figures) if for_s >= JUDGED_FROM_S else [])
    for mistake in mistakes:
        print(f"MISTAKE: {mistake}", file=sys.stderr)
    settings = {"requests": n_alone, "seconds": for_s, "updates": options.updates, "mixed": options.mixed}
    results.write(options, "load", described, settings, table.reset_index(), figures=figures, mistakes=mistakes)
    return int(bool(mistakes))


async def overload(load: Load, golden: GoldenCase, k: int, n_alone: int, for_s: float) -> dict[str, Any]:
    """Load with design requests; return capacity and deadline."""
    for kind, content in design_kinds(golden, k, PATIENT).items():
        await load.closed("warm-up", lambda item=(kind, content): item, N_WARM_UP)  # type: ignore[misc]
        await load.closed("unloaded", lambda item=(kind, content): item, n_alone)  # type: ignore[misc]
    kind, plain = "binary", design_kinds(golden, k, PATIENT)["binary"]
    capacity_per_s = await load.capacity(lambda: (kind, plain), 4 * n_alone)
    deadline_ms = DEADLINE_OVER_P99 * p99(pd.DataFrame(load.answers), "unloaded", kind)
    urgent = design_kinds(golden, k, {"X-Deadline-Ms": f"{deadline_ms:.3f}"})["binary"]
    await load.open("overload", lambda: (kind, urgent), OVERLOAD * capacity_per_s, for_s)
    await asyncio.sleep(RECOVERS_WITHIN_S)
    await load.closed("recovered", lambda: (kind, plain), n_alone)
    return {"capacity_per_s": capacity_per_s, "deadline_ms": deadline_ms}


async def mixed(load: Load, golden: GoldenCase, k: int, n_alone: int, for_s: float) -> dict[str, Any]:
    """Load with all kinds of work; return the capacity, and per kind its share of what it is served in the capacity."""
    contents, random = kinds_of_work(golden, k), Random(0)

    def draw() -> tuple[str, bytes]:
        (kind,) = random.choices(list(SHARES), list(SHARES.values()))
        return kind, contents[kind]

    await load.closed("unloaded", draw, n_alone)
    capacity_per_s = await load.capacity(draw, 4 * n_alone)
    await load.open("overload", draw, OVERLOAD * capacity_per_s, for_s)
    answers = pd.DataFrame(load.answers)
    counts = answers[answers.status == 200].groupby(["phase", "kind"]).size().unstack("phase", fill_value=0)
    shares = (counts.overload / for_s) / (counts.capacity.clip(lower=1) / (4 * n_alone / capacity_per_s))
    return {"capacity_per_s": capacity_per_s, "shares": shares.to_dict()}


def design_kinds(golden: GoldenCase, k: int, headers: Mapping[str, str]) -> dict[str, bytes]:
    """Return a design request per kind of body. Tensors request only the taps, JSON requests JSON."""
    pair = [np.asarray(path) for path in (golden.primary, golden.secondary)]
    spectra = [np.fft.rfft(path, DESIGN_N_FFT).astype(np.complex64) for path in pair]
    coded = [{"complex64": base64.b64encode(path.tobytes()).decode()} for path in spectra]
    lists = [{"impulse_response": path.tolist()} for path in pair]
    path, binary = f"/refine?k={k}", {"Content-Type": wire.MEDIA_TYPE, "Accept": TAPS} | dict(headers)
    return {
        "binary": request(path, wire.encode(*pair), binary),
        "binary spectra": request(path, wire.encode(*spectra), binary),
        "json": json_request(path, headers, primary=lists[0], secondary=lists[1]),
        "json spectra": json_request(path, headers, primary=coded[0], secondary=coded[1]),
    }


def kinds_of_work(golden: GoldenCase, k: int) -> dict[str, bytes]:
    """Return a request per kind of work, with short responses in JSON."""
    primary, secondary = np.asarray(golden.primary)[:512], np.asarray(golden.secondary)[:256]
    paths = {
        "primary": {"impulse_response": primary.tolist()},
        "secondary": {"impulse_response": secondary.tolist()},
    }
    fir = np.pad(0.5 * primary, (0, N_TAPS - primary.size)).tolist()
    noise = np.random.default_rng(0).standard_normal(2 * SAMPLE_RATE_HZ).astype(np.float32)
    off, loudspeaker = (np.convolve(noise, path)[: len(noise)] for path in (primary, 0.35 * secondary))
    takes = wire.takes([Take(0.0, noise, off), Take(0.35, noise, off - loudspeaker)])
    recordings = wire.encode_request({"sample_rate": wire.RATE_HZ, "takes": takes})
    return {
        "binary": design_kinds(golden, k, {})["binary"],
        "json": json_request(f"/refine?k={k}", {}, **paths),
        "evaluate": json_request("/evaluate", {}, fir=fir, **paths),
        "export": json_request("/export", {}, fir=fir, target={"n_sections": 4}, **paths),
        "calibrate": request("/calibrate", recordings, {"Content-Type": wire.MEDIA_TYPE}),
    }


def json_request(path: str, headers: Mapping[str, str], **fields: object) -> bytes:
    """Compose a request in JSON, at 48 kHz."""
    body = json.dumps({"sample_rate": SAMPLE_RATE_HZ, **fields}).encode()
    return request(path, body, {"Content-Type": JSON, "Accept": JSON} | dict(headers))


def request(path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Compose head and body of a POST request."""
    lines = {"Host": "service", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body


class Connection:
    """A kept connection, opened at the first request and again after it was closed."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, content: bytes) -> tuple[bytes, bytes, float]:
        """Send a complete request; return head and body of the answer, and the milliseconds that it took."""
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
        return head, body, latency_ms

    def close(self) -> None:
        """Close the socket."""
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


@dataclass
class Load:
    """Sends requests to a service; a row per answer."""

    port: int
    answers: list[dict[str, Any]] = field(default_factory=list)

    async def closed(self, phase: str, draw: Draw, n: int, n_clients: int = 1) -> None:
        """Send `n` requests from clients that wait for an answer before the next request."""
        left = iter(range(n))

        async def client() -> None:
            connection = Connection(self.port)
            for _ in left:
                await self._ask(phase, connection, *draw())
            connection.close()

        await asyncio.gather(*(client() for _ in range(n_clients)))

    async def capacity(self, draw: Draw, n: int) -> float:
        """Send requests from many clients, and return how many are answered per second."""
        began = time.perf_counter()
        await self.closed("capacity", draw, n, N_CLIENTS)
        per_s = n / (time.perf_counter() - began)
        print(f"{N_CLIENTS} clients: {per_s:.1f} per second", flush=True)
        return per_s

    async def open(self, phase: str, draw: Draw, per_s: float, for_s: float) -> None:
        """Send requests at a steady rate, on idle or new connections, however long others take."""
        idle, asking = list[Connection](), set[asyncio.Task[None]]()

        async def ask(connection: Connection) -> None:
            await self._ask(phase, connection, *draw())
            idle.append(connection)

        began = time.perf_counter()
        for number in range(round(per_s * for_s)):
            await asyncio.sleep(max(began + number / per_s - time.perf_counter(), 0))
            task = asyncio.create_task(ask(idle.pop() if idle else Connection(self.port)))
            asking.add(task)
            task.add_done_callback(asking.discard)
        await asyncio.gather(*asking)
        for connection in idle:
            connection.close()

    async def _ask(self, phase: str, connection: Connection, kind: str, content: bytes) -> None:
        row: dict[str, Any] = {"phase": phase, "kind": kind}
        try:
            head, body, row["latency"] = await connection.ask(content)
        except (OSError, asyncio.IncompleteReadError) as error:
            connection.close()
            self.answers.append(row | {"mistake": type(error).__name__})
            return
        row["status"] = int(head[9:12])
        if timing := _TIMING.search(head):
            row |= {name.decode(): float(ms) for name, ms in re.findall(rb"(\w+);dur=([\d.]+)", timing.group(1))}
        if row["status"] == 200 and not is_right(body, kind):
            row["mistake"] = "an answer that is none"
        elif row["status"] == 503 and not _RETRY_AFTER.search(head):
            row["mistake"] = "503 without Retry-After"
        elif row["status"] not in (200, 503):
            row["mistake"] = f"status {row['status']}"
        self.answers.append(row)


def is_right(body: bytes, kind: str) -> bool:
    """Return whether a body holds 2048 finite numbers, or a JSON object."""
    if kind.startswith("binary"):
        return len(body) == 4 * N_TAPS and bool(np.isfinite(np.frombuffer(body, "<f4")).all())
    with suppress(ValueError):
        return isinstance(json.loads(body), dict)
    return False


def summary(answers: pd.DataFrame) -> pd.DataFrame:
    """Return numbers and times in ms, p50 and p99, by phase, kind and status.

    `besides` is the latency less decode, core and predict: HTTP and queue.
    """
    stages = answers.reindex(columns=DESIGN_STAGES).fillna(0.0).sum(axis=1)
    answers = answers.assign(besides=answers.latency - stages)
    by = answers.groupby(["phase", "kind", "status"], sort=False)
    times = by[["latency", "total", "besides"]]
    shares = {"_p50_ms": 0.5, "_p99_ms": 0.99}
    parts = [times.quantile(share).add_suffix(suffix) for suffix, share in shares.items()]
    return pd.concat(parts, axis=1).assign(n=by.size())


def p99(answers: pd.DataFrame, phase: str, kind: str, status: int = 200) -> float:
    """Return the p99 of the times that are judged: the service's if clients share its few cores, else the clients'."""
    column = "latency" if (os.cpu_count() or 1) >= CORES_FOR_CLIENTS else "total"
    chosen = answers[(answers.phase == phase) & (answers.kind == kind) & (answers.status == status)]
    return float(chosen[column].quantile(0.99)) if len(chosen) else 0.0


def forbidden(answers: pd.DataFrame) -> list[str]:
    """Return what no answer may be, with its number."""
    if "mistake" not in answers:
        return []
    return [f"{name}: {n} times" for name, n in answers.mistake.value_counts().items()]


def judged(answers: pd.DataFrame, figures: Mapping[str, Any]) -> list[str]:
    """Return times that are too long, or kinds that were served too little."""
    if "shares" in figures:
        return [
            f"{kind}: {share:.2f} of its share was served, at least {LEAST_SHARE} is expected"
            for kind, share in figures["shares"].items()
            if share < LEAST_SHARE
        ]
    unloaded_ms = p99(answers, "unloaded", "binary")
    limits = {
        "accepted": (p99(answers, "overload", "binary"), DEADLINE_OVER_P99 * unloaded_ms),
        "shed": (p99(answers, "overload", "binary", 503), SHED_WITHIN_MS),
        "recovered": (p99(answers, "recovered", "binary"), RECOVERED_OVER_UNLOADED * unloaded_ms),
    }
    return [
        f"{what}: p99 is {found_ms:.1f} ms, at most {allowed_ms:.1f} ms is allowed"
        for what, (found_ms, allowed_ms) in limits.items()
        if found_ms > allowed_ms
    ]


@contextmanager
def on_cores(cores: list[int]) -> Iterator[None]:
    """Pin this thread, and processes started meanwhile, to some cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

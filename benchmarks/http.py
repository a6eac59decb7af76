"""`python -m benchmarks http`: whole requests to the real service, measured at the client.

The service runs as `python -m service` on cores of its own where the machine has two or more; the client is a plain
socket with keep-alive and requests made beforehand, so that what is measured is the service. Closed loop: one
request after the other. Open loop: requests are due at a fixed rate, and latency counts from when one was due, so
that a slow answer also counts against those that it holds up.

Beside the closed loop, in the same run, the same bytes go there and back over servers that do nothing (`bare`):
what they take is the least that HTTP can cost on this machine.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks import bare, machine, results
from benchmarks import ears as ears_module
from benchmarks.core import add_model_options
from benchmarks.ears import Ears
from benchmarks.reliability.served import served
from benchmarks.results import Row
from benchmarks.timing import summary
from service.formats import wire
from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ

N_CONNECTIONS = 16
"""Of the open loop: so many answers may be late at once before a request is sent late."""

BINARY, JSON = "application/octet-stream", "application/json"


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's own."""
    machine.add_options(parser)
    ears_module.add_options(parser)
    add_model_options(parser)
    parser.add_argument("--requests", type=int, default=500, help="of each kind, in each loop")
    parser.add_argument("--updates", type=int, nargs="+", default=[1], metavar="K", help="Gauss-Newton updates")
    parser.add_argument("--rate", type=float, help="requests per second of the open loop (default: half of closed)")
    parser.add_argument("--quick", action="store_true", help="few requests: to see that it runs")


def run(options: argparse.Namespace) -> None:
    """Start the service, measure each kind of request in both loops, write http.json."""
    device = machine.prepare(options)
    described = machine.describe(device)
    n_requests = 20 if options.quick else options.requests
    ears = ears_module.chosen(options)
    rows = []
    arguments = ["--device", device.type, "--model", options.model]
    arguments += ["--threads", str(options.threads)] if options.threads else []
    cores = split_cores()
    with ExitStack() as running:
        with on_cores(cores["server"]):
            port = running.enter_context(served(options.store, *arguments)).port
        running.enter_context(on_cores(cores["client"]))
        for k in options.updates:
            for kind, requests in kinds(ears, k, port).items():
                closed_loop(requests, port, max(3, n_requests // 20))  # warms up what this kind needs
                closed = closed_loop(requests, port, n_requests)
                rate = options.rate or 500.0 / float(np.median(closed.latency_ms))
                opened = open_loop(requests, port, n_requests, rate)
                about = {"request": kind, "k": k, "request_bytes": len(requests[0])}
                least = least_ms(requests, port, n_requests, cores["server"])
                rows += [
                    {"loop": "closed"} | about | closed.row() | least,
                    {"loop": "open", "rate_per_s": rate} | about | opened.row(),
                ]
                for row in rows[-2:]:
                    show(row)
    settings = {"requests": n_requests, "cores": cores, "connections_open_loop": N_CONNECTIONS}
    results.write(options.out, "http", described, settings, [results.rounded(row) for row in rows], data=ears.data)


def kinds(ears: Ears, k: int, port: int) -> dict[str, list[bytes]]:
    """Ready-made requests for every ear, by the kind of body and of answer."""
    primaries, secondaries = (
        list(np.fft.rfft(each, DESIGN_N_FFT).astype(np.complex64)) for each in (ears.primary, ears.secondary)
    )
    spectra = list(zip(primaries, secondaries, strict=True))

    def json_body(primary: dict[str, Any], secondary: dict[str, Any]) -> bytes:
        return json.dumps({"primary": primary, "secondary": secondary, "sample_rate": SAMPLE_RATE_HZ}).encode()

    def packed(spectrum: np.ndarray) -> dict[str, str]:
        return {"complex64": base64.b64encode(spectrum.tobytes()).decode()}

    def listed(path: np.ndarray) -> dict[str, list[float]]:
        return {"impulse_response": path.tolist()}

    bodies = {
        ("binary, impulse responses", BINARY): ears.bodies,
        ("binary, spectra", BINARY): [wire.encode(primary, secondary) for primary, secondary in spectra],
        ("JSON, impulse responses", JSON): [
            json_body(listed(p), listed(s)) for p, s in zip(ears.primary, ears.secondary, strict=True)
        ],
        ("JSON, spectra in base64", JSON): [json_body(packed(p), packed(s)) for p, s in spectra],
    }
    return {
        kind: [
            f"POST /refine?k={k} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: {media}\r\nAccept: {media}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
            for body in each
        ]
        for (kind, media), each in bodies.items()
    }


class Connection:
    """A keep-alive connection that sends bytes and reads whole answers, and does nothing else."""

    def __init__(self, port: int) -> None:
        """Connects at once."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, request: bytes) -> bytes:
        """Head and body of the answer; OSError where the service closes instead."""
        self._socket.sendall(request)
        received = bytearray()
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._more()
        missing = end + 4 + bare.content_length(received[: end + 2]) - len(received)
        while missing > 0:
            more = self._more()
            received += more
            missing -= len(more)
        return bytes(received)

    def _more(self) -> bytes:
        more = self._socket.recv(1 << 18)
        if not more:
            raise ConnectionError("the service closed the connection in the middle of an answer")
        return more

    def close(self) -> None:
        """End it."""
        self._socket.close()


@dataclass
class Loop:
    """What a loop of requests met, one entry each; the server's own times only of answers with status 200."""

    latency_ms: list[float] = field(default_factory=list)
    server_ms: list[dict[str, float]] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, answer: bytes, latency_ms: float) -> None:
        """Judge one answer."""
        status = int(answer[9:12])
        if status != 200:
            self.failed.append(status)
            return
        header = re.search(rb"(?i)\r\nserver-timing: *([^\r]*)", answer[: answer.find(b"\r\n\r\n") + 2])
        assert header is not None
        entries = re.findall(r"(\w+);dur=([\d.]+)", header.group(1).decode())
        self.latency_ms.append(latency_ms)
        self.server_ms.append({name: float(spent) for name, spent in entries})

    def row(self) -> Row:
        """Latency at the client, the server's stages, and what lies between.

        over_core_and_decode_ms: latency less the server's `core` and `decode`, and so all that HTTP, the queue,
        the prediction and the encoding add. over_server_ms: less its `total`: sockets, parsing and the client.
        """
        pairs = list(zip(self.latency_ms, self.server_ms, strict=True))
        stages = {name for each in self.server_ms for name in each}
        return {
            "n": len(pairs),
            "failed": self.failed,
            "answers_per_s": len(pairs) / self.seconds if self.seconds else None,
            "latency_ms": summary(self.latency_ms),
            "over_core_and_decode_ms": summary([spent - each["core"] - each["decode"] for spent, each in pairs]),
            "over_server_ms": summary([spent - each["total"] for spent, each in pairs]),
            "server_ms": {
                name: summary([each[name] for each in self.server_ms if name in each]) for name in sorted(stages)
            },
        }


def closed_loop(requests: list[bytes], port: int, n_requests: int) -> Loop:
    """One client, one connection, the next request when the answer to the last is there."""
    loop, connection = Loop(), Connection(port)
    started = time.perf_counter()
    for number in range(n_requests):
        request = requests[number % len(requests)]
        sent = time.perf_counter()
        answer = connection.exchange(request)
        loop.add(answer, 1e3 * (time.perf_counter() - sent))
    loop.seconds = time.perf_counter() - started
    connection.close()
    return loop


def least_ms(requests: list[bytes], port: int, n_requests: int, server_cores: list[int]) -> Row:
    """Latency of the same bytes over each of the bare servers, on the cores that the service has."""
    connection = Connection(port)
    answer = connection.exchange(requests[0])
    connection.close()
    row: Row = {}
    for kind in bare.KINDS:
        with ExitStack() as running:
            with on_cores(server_cores):
                bare_port = running.enter_context(bare.bare(kind, answer))
            closed_loop(requests, bare_port, max(3, n_requests // 20))
            row[f"bare_{kind}_ms"] = summary(closed_loop(requests, bare_port, n_requests).latency_ms)
    return row


def open_loop(requests: list[bytes], port: int, n_requests: int, rate: float) -> Loop:
    """Requests due every 1/rate seconds, whatever became of those before; latency counts from when one was due."""
    loop, lock, numbers = Loop(), threading.Lock(), itertools.count()
    connections = [Connection(port) for _ in range(min(N_CONNECTIONS, n_requests))]
    started = time.perf_counter() + 0.05

    def work(connection: Connection) -> None:
        while (number := next(numbers)) < n_requests:
            due = started + number / rate
            time.sleep(max(0.0, due - time.perf_counter()))
            answer = connection.exchange(requests[number % len(requests)])
            spent = 1e3 * (time.perf_counter() - due)
            with lock:
                loop.add(answer, spent)

    workers = [threading.Thread(target=work, args=(connection,)) for connection in connections]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    loop.seconds = time.perf_counter() - started
    for connection in connections:
        connection.close()
    return loop


def split_cores() -> dict[str, list[int]]:
    """One core for the client and the rest for the server; a single core is shared."""
    usable = sorted(os.sched_getaffinity(0))
    return {"client": usable[-1:], "server": usable[:-1] or usable}


@contextmanager
def on_cores(cores: list[int]) -> Iterator[None]:
    """Keep this thread to some cores, and the programs and threads that it starts meanwhile."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def show(row: Row) -> None:
    """One line."""
    latency, over, server = row["latency_ms"], row["over_core_and_decode_ms"], row["over_server_ms"]
    if not row["n"]:
        print(
            f"{row['loop']:7} {row['request']:26} k={row['k']}: no answer, statuses {row['failed'][:5]}", flush=True
        )
        return
    found = ((kind, row.get(f"bare_{kind}_ms")) for kind in bare.KINDS)
    least = "".join(f"; bare {kind} {each['p50']:.3f}" for kind, each in found if each)
    print(
        f"{row['loop']:7} {row['request']:26} k={row['k']} {row['answers_per_s']:8.1f}/s  latency "
        f"{latency['p50']:.3f} / {latency['p99']:.3f} ms; "
        f"over core and decode {over['p50']:.3f} / {over['p99']:.3f}; "
        f"over the server's total {server['p50']:.3f} / {server['p99']:.3f}{least}; {len(row['failed'])} failed",
        flush=True,
    )

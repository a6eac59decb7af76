"""`python -m benchmarks.lanes`: what a busy JSON client costs those who send binary bodies.

The real service; one binary client that asks at a fixed pace, whose times the service itself reports
(`Server-Timing`); and beside it, in turn:

    alone      nobody
    read       a client that sends about a megabyte of JSON numbers, one request after the other, each read and
               checked to its last number, which is then refused: reading, and nothing else
    elsewhere  a process that has nothing to do with the service reads the same megabyte, as often
    binary     a client that has the same designs made as the next one, as often, from binary bodies
    json       a client that sends the same megabyte to be designed

One worker makes all designs, so whoever asks for one makes others wait while it lasts (`queue`), in whatever
form it was sent. What JSON costs beyond that is `json` against `binary`, and `read` against `alone`; `json`
against `alone` holds that wait too. To read a megabyte costs others, too, through the cores and caches that all
share, wherever it is done: `read` against `elsewhere` is what the service adds to that, and with fewer than four
cores it is judged by this. All is done with the side lane (`--json-processes 1`) and without (0), in turns, so that
a machine which slows down slows all of them. The clients yield to the services, as those of another machine would.
At 20 ms from one request to the next the defaults take eight minutes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from benchmarks import long_form
from benchmarks.reliability.served import Served, served
from benchmarks.reliability.traffic import CLIENTS_NICENESS, whose_times
from model_store.store import DEFAULT_ROOT
from service.formats import wire
from service.formats.side_lane import SMALL_BYTES
from service.formats.side_process import NICENESS
from synthesis.conventions import DESIGN_N_FFT, N_BINS

ALLOWED = 1.2
"""How much of the binary lane's p99 may be left when the JSON client is busy, as a factor."""

COMPANIONS = ("alone", "read", "elsewhere", "binary", "json")
LANES = ("with", "without")
SETTLE_S = 0.3
QUERY = "/refine?k=1"

Companion = Callable[[Served, threading.Event], int]


@dataclass
class Times:
    """The service's own times of the binary client's requests, ms."""

    total: list[float] = field(default_factory=list)
    queue: list[float] = field(default_factory=list)
    beside: int = 0
    """Requests of the other client that were answered meanwhile."""

    def summary(self) -> dict[str, float]:
        """p50 and p99 of the whole and of what is not waiting for the worker."""
        own = np.subtract(self.total, self.queue)
        figures: dict[str, float] = {"requests": len(self.total), "beside": self.beside}
        for name, values in (("total", self.total), ("own", own)):
            figures |= {f"{name}_p{q}_ms": round(float(np.percentile(values, q)), 3) for q in (50, 99)}
        return figures


class Connection:
    """Requests made beforehand, sent whole over one connection that is kept."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def ask(self, request: bytes) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer."""
        self._socket.sendall(request)
        status = int(self._file.readline().split()[1])
        headers: dict[str, str] = {}
        while (line := self._file.readline().decode("latin-1").strip()) != "":
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        self._file.read(int(headers["content-length"]))
        return status, headers

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self._socket.close()


@contextmanager
def connected(service: Served) -> Iterator[Connection]:
    """A connection to a service."""
    connection = Connection(service.port)
    try:
        yield connection
    finally:
        connection.close()


def as_request(path: str, media_type: str, body: bytes) -> bytes:
    """The bytes of a POST."""
    lines = (
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Accept: application/octet-stream",
        f"Content-Type: {media_type}",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join((*lines, "", "")).encode() + body


def responses() -> tuple[np.ndarray, np.ndarray]:
    """Impulse responses like an ear's: a delay, then a decaying tail."""
    draw = np.random.default_rng(0)
    found = []
    for n, delay, decay in ((4096, 12, 60.0), (4096, 5, 25.0)):
        response = np.zeros(n, np.float32)
        response[delay:] = 0.3 * draw.standard_normal(n - delay) * np.exp(-np.arange(n - delay) / decay)
        response[delay] = 1.0
        found.append(response)
    return found[0], found[1]


def binary_request() -> bytes:
    """Both impulse responses, 33 kB."""
    return as_request(QUERY, "application/octet-stream", wire.encode(*responses()))


def json_request(last_psd: float) -> bytes:
    """Both spectra and a reference spectrum as lists. last_psd: its last bin; a negative one is refused."""
    psd = np.full(N_BINS, 1e-9, np.float32)
    psd[-1] = last_psd
    document: dict[str, Any] = {"sample_rate": 48_000, "reference_psd": psd}
    for name, response in zip(("primary", "secondary"), responses(), strict=True):
        spectrum = np.fft.rfft(response, DESIGN_N_FFT).astype(np.complex64)
        document[name] = {"real": spectrum.real.copy(), "imag": spectrum.imag.copy()}
    body = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    assert len(body) > SMALL_BYTES
    return as_request(QUERY, "application/json", body)


def nobody(service: Served, stop: threading.Event) -> int:
    """No other client."""
    stop.wait()
    return 0


def busy(request: bytes, status: int, pace_s: float = 0.0) -> Companion:
    """A client that sends one request after the other, at least `pace_s` apart, and expects that status."""

    def companion(service: Served, stop: threading.Event) -> int:
        n_asked = 0
        with connected(service) as connection:
            while not stop.is_set():
                due = time.monotonic() + pace_s
                found, _ = connection.ask(request)
                if found != status:
                    raise RuntimeError(f"the other client found status {found}, expected {status}")
                n_asked += 1
                stop.wait(max(due - time.monotonic(), 0.0))
        return n_asked

    return companion


READING = """
import os, sys, time
os.nice(max(int(sys.argv[1]) - os.nice(0), 0))
from service.formats import json_numbers
body, pace_s = sys.stdin.buffer.read(), float(sys.argv[2])
while True:
    due = time.monotonic() + pace_s
    json_numbers.load(body)
    time.sleep(max(due - time.monotonic(), 0.0))
"""
"""Program that reads the same JSON again and again, with the priority of the service's own process for it."""


def elsewhere(request: bytes, pace_s: float) -> Companion:
    """A process of its own that reads a request's body every `pace_s`."""

    def companion(service: Served, stop: threading.Event) -> int:
        command = [sys.executable, "-c", READING, str(NICENESS), str(pace_s)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
            try:
                assert process.stdin is not None
                process.stdin.write(request.partition(b"\r\n\r\n")[2])
                process.stdin.close()
                stop.wait()
            finally:
                process.kill()
        return 0

    return companion


@dataclass
class Outcome:
    """figures: by lane and companion. p99_ratios: what JSON adds to the binary lane's p99, as factors."""

    figures: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    p99_ratios: dict[str, float] = field(default_factory=dict)
    mistakes: Counter[str] = field(default_factory=Counter)


def measure(
    service: Served, companion: Companion, n_requests: int, pace_s: float, times: Times, progress: Iterator[int]
) -> float:
    """Send binary requests while the companion is at work; returns the companion's seconds per request."""
    stop = threading.Event()
    failed: list[Exception] = []
    n_beside = 0

    def work() -> None:
        nonlocal n_beside
        try:
            n_beside = companion(service, stop)
        except Exception as error:
            failed.append(error)

    beside = threading.Thread(target=work)
    began = time.monotonic()
    beside.start()
    try:
        time.sleep(SETTLE_S)
        request = binary_request()
        with connected(service) as connection:
            due = time.monotonic()
            for _ in itertools.islice(progress, n_requests):
                time.sleep(max(due - time.monotonic(), 0.0))
                due = max(due + pace_s, time.monotonic())
                status, headers = connection.ask(request)
                if status != 200:
                    raise RuntimeError(f"the binary client found status {status}, expected 200")
                spent = dict(part.split(";dur=") for part in headers["server-timing"].split(", "))
                times.total.append(float(spent["total"]))
                times.queue.append(float(spent["queue"]))
    finally:
        stop.set()
        beside.join()
    if failed:
        raise failed[0]
    times.beside += n_beside
    return (time.monotonic() - began) / max(n_beside, 1)


def run(
    n_requests: int,
    n_rounds: int,
    pace_s: float,
    *arguments: str,
    store: Path = DEFAULT_ROOT,
    niceness: int = 0,
) -> dict[str, dict[str, dict[str, float]]]:
    """Every companion against services with and without the side lane; figures by both names.

    n_requests: of each companion in each round. pace_s: between two requests of the binary client, s. arguments: of
    both services. niceness: by which this process, for good, yields to them.
    """
    read, design = json_request(-1.0), json_request(1e-9)
    found = {lane: {what: Times() for what in COMPANIONS} for lane in LANES}
    n_warm_up = max(n_requests // 10, 5)
    progress = long_form.counted(len(COMPANIONS) * len(LANES) * (n_warm_up + n_rounds * n_requests), "requests")
    arguments = ("--deadline-ms", "60000", *arguments)  # every request is to be designed in full, however slowly
    with (
        served(store, "--json-processes", "1", *arguments) as beside,
        served(store, "--json-processes", "0", *arguments) as within,
    ):
        os.nice(niceness)
        for number in range(-1, n_rounds):  # the first round warms up, and is not counted
            n = n_requests if number >= 0 else n_warm_up
            for lane, service in zip(LANES, (beside, within), strict=True):
                times = found[lane] if number >= 0 else {what: Times() for what in COMPANIONS}
                measure(service, nobody, n, pace_s, times["alone"], progress)
                read_pace_s = measure(service, busy(read, 422), n, pace_s, times["read"], progress)
                measure(service, elsewhere(read, read_pace_s), n, pace_s, times["elsewhere"], progress)
                json_pace_s = measure(service, busy(design, 200), n, pace_s, times["json"], progress)
                binary = busy(binary_request(), 200, json_pace_s)
                measure(service, binary, n, pace_s, times["binary"], progress)
    return {lane: {what: each.summary() for what, each in times.items()} for lane, times in found.items()}


def ratios(figures: dict[str, dict[str, dict[str, float]]]) -> dict[str, float]:
    """What JSON adds to the binary lane's p99, as factors."""
    pairs = (("read", "alone"), ("read", "elsewhere"), ("json", "binary"), ("json", "alone"))
    return {
        f"{name}: {above}/{below}": round(found[above]["total_p99_ms"] / found[below]["total_p99_ms"], 3)
        for name, found in figures.items()
        for above, below in pairs
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures as a table and as JSON; 1 where JSON costs the binary lane more than is allowed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lanes", description=__doc__)
    parser.add_argument("--requests", type=int, default=400, help="binary requests of each kind in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pace-ms", type=float, default=20.0, help="between two requests of the binary client")
    parser.add_argument("--niceness", type=int, default=CLIENTS_NICENESS, help="of the clients")
    outcome = Outcome()

    def work(options: argparse.Namespace, rest: Sequence[str]) -> None:
        pace_s, niceness = options.pace_ms / 1e3, options.niceness
        outcome.figures = run(options.requests, options.rounds, pace_s, *rest, niceness=niceness)
        outcome.p99_ratios = ratios(outcome.figures)
        for name, found in outcome.figures.items():
            for what, summary in found.items():
                line = " ".join(f"{key}={value:g}" for key, value in summary.items())
                print(f"{name:8s} the side lane, {what:9s} {line}")
        has_cores = whose_times(os.cpu_count() or 1) == "client"
        for pair in ("read/alone" if has_cores else "read/elsewhere", "json/binary"):
            if not outcome.p99_ratios[f"with: {pair}"] <= ALLOWED:
                outcome.mistakes[f"{pair}: more than {ALLOWED - 1:.0%}"] += 1

    return long_form.main("lanes", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

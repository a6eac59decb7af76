"""`python -m benchmarks http`: whole requests to the real service, timed at the client.

One client on a separate core, if the machine has two: plain sockets, keep-alive and prepared requests, so that the
service is timed. Then several clients, which share all cores with the service: designs per second. With `--baseline
FOLDER` the service of an older checkout takes turns with this one's.
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
from pathlib import Path

import numpy as np

from benchmarks import ears as ears_module
from benchmarks import machine, results
from benchmarks.core import add_model_options
from benchmarks.ears import Ears
from benchmarks.reliability.service_process import started_service
from benchmarks.results import Row
from benchmarks.timing import summary
from prime_anc.client import wire
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.types import Complex64, Float32

BINARY, JSON = wire.MEDIA_TYPE, "application/json"
TAPS = "application/octet-stream"
WARM_UP, CHUNK = 20, 50
CLIENTS_PER_CORE = 4
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
_SERVER_TIMING = re.compile(rb"\r\nserver-timing: *([^\r]*)", re.IGNORECASE)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    machine.add_options(parser)
    ears_module.add_options(parser)
    add_model_options(parser)
    parser.add_argument("--requests", type=int, default=1000, help="number per kind")
    parser.add_argument("--updates", type=int, nargs="+", default=[1], metavar="K", help="Gauss-Newton updates")
    parser.add_argument("--baseline", type=Path, metavar="FOLDER", help="an older checkout of this project")


def run(options: argparse.Namespace) -> None:
    """Start the services, time every kind of request, and write http.json."""
    device = machine.choose_device(options)
    described = machine.describe(device)
    n_requests = 20 if options.quick else options.requests
    ears = ears_module.load(options)
    checkouts = {"current": None} | ({"baseline": options.baseline} if options.baseline else {})
    cores = sorted(os.sched_getaffinity(0))
    server_cores, client_cores = cores[:-1] or cores, cores[-1:]
    rows: list[Row] = []
    arguments = ("--device", device, "--model", options.model)
    with ExitStack() as running:
        with on_cores(server_cores):
            ports = {
                name: running.enter_context(started_service(options.store, *arguments, checkout=checkout)).port
                for name, checkout in checkouts.items()
            }
        with on_cores(client_cores):
            for k in options.updates:
                for kind, requests in request_kinds(ears, k).items():
                    latency = {name: Latencies() for name in ports}
                    for port in ports.values():
                        one_client(requests, port, WARM_UP, Latencies())
                    for _ in range(max(1, n_requests // CHUNK)):
                        for name, port in ports.items():
                            one_client(requests, port, min(n_requests, CHUNK), latency[name])
                    for name, found in latency.items():
                        about = {"service": name, "request": kind, "k": k, "request_bytes": len(requests[0])}
                        rows.append(about | found.row())
                        show(rows[-1])
    n_clients = CLIENTS_PER_CORE * len(cores)
    for name, checkout in checkouts.items():
        with started_service(options.store, *arguments, checkout=checkout) as service:
            for k in options.updates:
                requests = request_kinds(ears, k)["binary, impulse responses"]
                many_clients(requests, service.port, WARM_UP, n_clients)
                per_s = many_clients(requests, service.port, 2 * n_requests, n_clients)
                rows.append({"service": name, "k": k, "clients": n_clients, "designs_per_s": per_s})
                print(f"{name:9} k={k} {n_clients} clients: {per_s:.0f} designs per second", flush=True)
    settings = {"requests": n_requests, "server_cores": server_cores, "client_cores": client_cores}
    if options.baseline:
        settings["baseline"] = machine.commit(options.baseline)
    file = results.folder_for(options.out, described) / "http.json"
    results.write(file, "http", described, settings, rows, data=ears.data)


def request_kinds(ears: Ears, k: int) -> dict[str, list[bytes]]:
    """Prepare complete requests for every ear by kind of body. Tensors request only the taps, JSON requests JSON."""
    spectra = [tuple(np.fft.rfft(item, DESIGN_N_FFT).astype(np.complex64) for item in pair) for pair in ears.pairs]
    return {
        "binary, impulse responses": [request(wire.encode(*pair), BINARY, k) for pair in ears.pairs],
        "binary, spectra": [request(wire.encode(*pair), BINARY, k) for pair in spectra],
        "JSON, impulse responses": [request(json_body(*pair), JSON, k) for pair in ears.pairs],
        "JSON, spectra in base64": [request(json_body(*pair), JSON, k) for pair in spectra],
    }


def request(body: bytes, media_type: str, k: int) -> bytes:
    """Compose head and body of a design request."""
    accept = TAPS if media_type == BINARY else JSON
    head = f"POST /refine?k={k} HTTP/1.1\r\nHost: service\r\nContent-Type: {media_type}\r\nAccept: {accept}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def json_body(*paths: Float32 | Complex64) -> bytes:
    """Compose a design request in JSON: impulse responses as lists, spectra in base64."""
    primary, secondary = (
        {"complex64": base64.b64encode(path.tobytes()).decode()}
        if np.iscomplexobj(path)
        else {"impulse_response": path.tolist()}
        for path in paths
    )
    return json.dumps({"primary": primary, "secondary": secondary, "sample_rate": SAMPLE_RATE_HZ}).encode()


class Connection:
    """A keep-alive connection for complete requests and answers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, content: bytes) -> bytes:
        """Send a request and return head and body of the answer; ConnectionError if the service closes instead."""
        self._socket.sendall(content)
        received = bytearray()
        while (end := received.find(b"\r\n\r\n")) < 0:
            received += self._more()
        length = _LENGTH.search(received, 0, end)
        missing = end + 4 + (int(length.group(1)) if length else 0) - len(received)
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
        """Close the socket."""
        self._socket.close()


@dataclass
class Latencies:
    """Latencies of requests."""

    latency_ms: list[float] = field(default_factory=list)
    # The service's stages, of answers with status 200 only.
    server_ms: list[dict[str, float]] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)

    def add(self, answer: bytes, latency_ms: float) -> None:
        """Add one answer."""
        status = int(answer[9:12])
        if status != 200:
            self.failed.append(status)
            return
        header = _SERVER_TIMING.search(answer)
        assert header is not None
        entries = re.findall(r"(\w+);dur=([\d.]+)", header.group(1).decode())
        self.latency_ms.append(latency_ms)
        self.server_ms.append({name: float(spent) for name, spent in entries})

    def row(self) -> Row:
        """Summarise; over_core_ms is latency less decode, core and predict: HTTP, queue and plausibility."""
        pairs = list(zip(self.latency_ms, self.server_ms, strict=True))
        subtracted = ("core", "decode", "predict")
        return {
            "failed": self.failed,
            "latency_ms": summary(self.latency_ms),
            "over_core_ms": summary([spent - sum(pair.get(s, 0) for s in subtracted) for spent, pair in pairs]),
            "server_ms": {
                stage: summary([item[stage] for item in self.server_ms if stage in item])
                for stage in sorted({stage for item in self.server_ms for stage in item})
            },
        }


def one_client(requests: list[bytes], port: int, n_requests: int, into: Latencies) -> None:
    """Use one connection, sending a request after the answer to the last one."""
    connection = Connection(port)
    for number in range(n_requests):
        content = requests[number % len(requests)]
        sent = time.perf_counter()
        answer = connection.exchange(content)
        into.add(answer, 1e3 * (time.perf_counter() - sent))
    connection.close()


def many_clients(requests: list[bytes], port: int, n_requests: int, n_clients: int) -> float:
    """Measure answers with status 200 per second to several concurrent clients."""
    numbers, n_ok = itertools.count(), itertools.count()

    def work() -> None:
        connection = Connection(port)
        while (number := next(numbers)) < n_requests:
            if connection.exchange(requests[number % len(requests)])[9:12] == b"200":
                next(n_ok)
        connection.close()

    clients = [threading.Thread(target=work) for _ in range(n_clients)]
    began = time.perf_counter()
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return next(n_ok) / (time.perf_counter() - began)


@contextmanager
def on_cores(cores: list[int]) -> Iterator[None]:
    """Pin this thread, and processes started meanwhile, to some cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def show(row: Row) -> None:
    """Print one line."""
    latency, over = row["latency_ms"], row["over_core_ms"]
    if not latency["n"]:
        print(f"{row['service']:9} {row['request']:26} k={row['k']}: every request failed, {row['failed'][:5]}")
        return
    print(
        f"{row['service']:9} {row['request']:26} k={row['k']} latency {latency['p50']:.3f} / {latency['p99']:.3f} "
        f"ms, over core, decode and predict {over['p50']:.3f} / {over['p99']:.3f} ms, {len(row['failed'])} failed",
        flush=True,
    )

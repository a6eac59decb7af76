"""What Ray's proxy costs: the same requests to the service's own server and to the adapter on a local cluster.

    python -m benchmarks.ray_cost --requests 1000

One client on one kept connection sends binary bodies to either in turn, so that both see the same machine. What is
printed, and written where `--out FILE` says, is the time of the whole request less what the service itself spent on
it (`Server-Timing`), in milliseconds.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchmarks import long_form
from benchmarks.reliability.served import served
from benchmarks.timing import summary
from model_store.store import DEFAULT_ROOT, ModelStore
from service.formats import wire

HEADERS = {"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"}
WARM_UP = 50
READY_WITHIN_S = 180.0


@contextmanager
def on_ray() -> Iterator[int]:
    """The adapter on a local cluster: the port of its proxy, once the service behind it is ready."""
    import ray
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    ray.init(include_dashboard=False, log_to_driver=False)
    try:
        from service.ray_serve import application

        serve.start(http_options=serve.HTTPOptions(host="127.0.0.1", port=port))
        serve.run(application)
        given_up = time.monotonic() + READY_WITHIN_S
        while _get(port, "/health/ready") != 200:
            if time.monotonic() > given_up:
                raise RuntimeError("the service on the cluster does not become ready")
            time.sleep(0.1)
        yield port
    finally:
        serve.shutdown()
        ray.shutdown()


@dataclass
class Outcome:
    """Whole requests less the service's own time, ms, at the service's own server and through Ray's proxy."""

    own: dict[str, Any] = field(default_factory=dict)
    ray: dict[str, Any] = field(default_factory=dict)
    mistakes: Counter[str] = field(default_factory=Counter)


def run(n_requests: int, *arguments: str) -> Outcome:
    """Ask both in turns. arguments: of the service's own server; the adapter reads its own in the environment."""
    golden = ModelStore().load("default").golden
    body = wire.encode(golden.primary.numpy(), golden.secondary.numpy())
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    overheads: dict[str, list[float]] = {"own": [], "ray": []}
    with served(DEFAULT_ROOT, *arguments) as own, on_ray() as port:
        ports = {"own": own.port, "ray": port}
        connections = {
            name: http.client.HTTPConnection("127.0.0.1", port, timeout=60) for name, port in ports.items()
        }
        for number in range(WARM_UP + n_requests):
            for name, connection in connections.items():
                spent_ms = _overhead_ms(connection, body)
                if number >= WARM_UP:
                    overheads[name].append(spent_ms)
        for connection in connections.values():
            connection.close()
    return Outcome(summary(overheads["own"]), summary(overheads["ray"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_cost", description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    outcome = Outcome()

    def work(options: argparse.Namespace, rest: Sequence[str]) -> None:
        found = run(options.requests, *rest)
        outcome.own, outcome.ray = found.own, found.ray

    return long_form.main("ray_cost", parser, arguments, outcome, work)


def _overhead_ms(connection: http.client.HTTPConnection, body: bytes) -> float:
    began = time.perf_counter()
    connection.request("POST", "/refine?k=1", body, HEADERS)
    answer = connection.getresponse()
    answer.read()
    whole_ms = 1e3 * (time.perf_counter() - began)
    if answer.status != 200:
        raise RuntimeError(f"found status {answer.status}, expected 200")
    total = re.search(r"total;dur=([0-9.]+)", answer.headers["Server-Timing"])
    assert total is not None
    return whole_ms - float(total[1])


def _get(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(main())

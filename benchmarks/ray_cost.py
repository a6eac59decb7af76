"""What Ray's proxy costs: the same requests to the service's own server and to the adapter on a local cluster.

    python -m benchmarks.ray_cost --requests 1000

One client on one kept connection sends binary bodies to either in turn, so that both see the same machine. Printed
is the time of the whole request less what the service itself spent on it (`Server-Timing`), in milliseconds.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from benchmarks.reliability.served import served
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


def main() -> int:
    """Measure and print one line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ray_cost")
    parser.add_argument("--requests", type=int, default=1000)
    options = parser.parse_args()
    golden = ModelStore().load("default").golden
    body = wire.encode(golden.primary.numpy(), golden.secondary.numpy())
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with served(DEFAULT_ROOT) as own, on_ray() as port:
        connections = {
            "own": http.client.HTTPConnection("127.0.0.1", own.port, timeout=60),
            "ray": http.client.HTTPConnection("127.0.0.1", port, timeout=60),
        }
        overheads: dict[str, list[float]] = {name: [] for name in connections}
        for number in range(WARM_UP + options.requests):
            for name, connection in connections.items():
                spent_ms = _overhead_ms(connection, body)
                if number >= WARM_UP:
                    overheads[name].append(spent_ms)
        for connection in connections.values():
            connection.close()
    result = {
        name: {f"p{level}_ms": round(float(np.percentile(each, level)), 3) for level in (50, 90, 99)}
        for name, each in overheads.items()
    }
    print(json.dumps({"overhead over the service's own time": result, "requests": options.requests}))
    return 0


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

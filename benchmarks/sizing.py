"""`python -m benchmarks sizing`: designs a second over HTTP, by what the service is given and by how many ask.

The service has one core, then all of the machine's, and one client, then sixteen, each of whom waits for an answer
before he asks again: one update, impulse responses (41 kB) in binary. The clients have the cores that the service
has not, where there are any. Refusals would be mistakes: the deadline is a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time

import numpy as np

from benchmarks import machine, results
from benchmarks.core import add_model_options
from benchmarks.http import on_cores
from benchmarks.reliability.served import served
from benchmarks.reliability.traffic import in_turn, request
from benchmarks.results import Row
from model_store.store import DEFAULT_ROOT, ModelStore

N_CLIENTS = (1, 16)
WARM_UP = 50


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's own."""
    machine.add_options(parser)
    add_model_options(parser)
    parser.add_argument("--requests", type=int, default=2000, help="of each kind")
    parser.add_argument("--quick", action="store_true", help="a few requests: to see that it runs")


def run(options: argparse.Namespace) -> None:
    """Measure each share of the machine, print its rows, write sizing.json."""
    described = machine.describe(machine.prepare(options))
    golden = ModelStore(options.store).load(options.model).golden
    content = request(golden, "/refine?k=1", {"X-Deadline-Ms": "60000"})
    arguments = ["--model", options.model, *([] if options.device == "auto" else ["--device", options.device])]
    store = None if options.store == DEFAULT_ROOT else options.store
    n_requests = 4 * max(N_CLIENTS) if options.quick else options.requests
    usable = sorted(os.sched_getaffinity(0))
    rows = []
    for shares in {len(each): each for each in (usable[:1], usable)}.values():
        others = [each for each in usable if each not in shares] or usable
        with on_cores(shares), served(store, *arguments) as service, on_cores(others):
            rows += [_row(service.port, content, n_requests, len(shares), n) for n in N_CLIENTS]
    results.write(options.out, "sizing", described, {"requests": n_requests}, rows)


def _row(port: int, content: bytes, n_requests: int, n_cores: int, n_clients: int) -> Row:
    asyncio.run(in_turn(port, content, WARM_UP, n_clients))
    began = time.perf_counter()
    tally = asyncio.run(in_turn(port, content, n_requests, n_clients))
    per_s = n_requests / (time.perf_counter() - began)
    if tally.mistakes or set(tally.statuses) != {200}:
        raise ValueError(f"found {dict(tally.statuses)} and {dict(tally.mistakes)}, expected designs alone")
    p50, p99 = np.percentile(tally.accepted_ms, (50, 99))
    row: Row = {"cores": n_cores, "clients": n_clients, "designs_per_s": per_s, "p50": p50, "p99": p99}
    print(f"cores {n_cores}, clients {n_clients}: {per_s:.0f}/s, p50 {p50:.1f}, p99 {p99:.1f} ms", flush=True)
    return results.rounded(row)

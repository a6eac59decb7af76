"""`python -m benchmarks start`: from the start of the service's process to its first 200 of `/health/ready`.

Each round starts `python -m service` with its default settings on a port of its own choosing, asks until it is
ready and stops it again. What is measured holds the import of torch, the model's load, check and warming up, and
the small program that keeps the service on a leash (an interpreter's start); it is told 20 ms late at most.
"""

from __future__ import annotations

import argparse
from statistics import median

from benchmarks import machine, results
from benchmarks.core import add_model_options
from benchmarks.reliability.served import served
from benchmarks.results import Row
from model_store.store import DEFAULT_ROOT


def add_options(parser: argparse.ArgumentParser) -> None:
    """The command's own."""
    machine.add_options(parser)
    add_model_options(parser)
    parser.add_argument("--starts", type=int, default=20, help="one after the other")
    parser.add_argument("--quick", action="store_true", help="two starts: to see that it runs")


def run(options: argparse.Namespace) -> None:
    """Start and stop the service so many times, print each, write start.json."""
    described = machine.describe(machine.prepare(options))
    n_starts = 2 if options.quick else options.starts
    # What is not asked for is the service's own default.
    arguments = [] if options.device == "auto" else ["--device", options.device]
    arguments += ["--threads", str(options.threads)] if options.threads else []
    arguments += [] if options.model == "default" else ["--model", options.model]
    ready_s = []
    for number in range(n_starts):
        with served(None if options.store == DEFAULT_ROOT else options.store, *arguments) as service:
            ready_s.append(service.ready_s)
        print(f"start {number + 1}: ready after {ready_s[-1]:.2f} s", flush=True)
    row: Row = {"p50_s": median(ready_s), "max_s": max(ready_s), "n": n_starts, "each_s": ready_s}
    print(f"start to ready: median {row['p50_s']:.2f} s, at most {row['max_s']:.2f} s, {n_starts} starts")
    settings = {"model": options.model, "arguments": arguments}
    results.write(options.out, "start", described, settings, [results.rounded(row)])

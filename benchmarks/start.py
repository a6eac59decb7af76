"""`python -m benchmarks start`: time from the start of `python -m service` to ready, and resident memory then.

Ready is the first 200 of `/health/ready`.
"""

from __future__ import annotations

import argparse

import pandas as pd

from benchmarks import machine, results
from benchmarks.core import add_model_options
from benchmarks.service_process import started_service


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    machine.add_options(parser)
    add_model_options(parser)
    parser.add_argument("--starts", type=int, default=10)


def run(options: argparse.Namespace) -> int:
    """Start and stop the service repeatedly, print every start, write start.json."""
    device = machine.choose_device(options)
    described, rows = machine.describe(device), []
    for _ in range(1 if options.quick else options.starts):
        with started_service(options.store, "--device", device, "--model", options.model) as service:
            rows.append({"ready_s": service.ready_s, "resident_mb": service.resident_bytes() / 1e6})
        print(f"ready after {rows[-1]['ready_s']:.2f} s, {rows[-1]['resident_mb']:.0f} MB resident", flush=True)
    table = pd.DataFrame(rows)
    median = table.median()
    print(f"{median.ready_s:.2f} s and {median.resident_mb:.0f} MB in the median")
    results.write(options, "start", described, {"model": options.model}, table)
    return 0

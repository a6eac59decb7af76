"""`python -m benchmarks start`: time from the start of `python -m service` to ready, and resident memory then.

Ready is the first 200 of `/health/ready`. With `--baseline FOLDER` the service of an older checkout takes turns.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median

from benchmarks import machine, results
from benchmarks.core import add_model_options
from benchmarks.reliability.service_process import started_service
from benchmarks.results import Row


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the command's options."""
    machine.add_options(parser)
    add_model_options(parser)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--baseline", type=Path, metavar="FOLDER", help="an older checkout of this project")


def run(options: argparse.Namespace) -> None:
    """Start and stop the services repeatedly, print every start, write start.json."""
    device = machine.choose_device(options)
    described = machine.describe(device)
    checkouts = {"current": None} | ({"baseline": options.baseline} if options.baseline else {})
    ready_s: dict[str, list[float]] = {name: [] for name in checkouts}
    resident_mb: dict[str, list[float]] = {name: [] for name in checkouts}
    for number in range(2 if options.quick else options.starts):
        for name, checkout in checkouts.items():
            arguments = ("--device", device, "--model", options.model)
            with started_service(options.store, *arguments, checkout=checkout) as service:
                ready_s[name].append(service.ready_s)
                resident_mb[name].append(service.resident_bytes() / 1e6)
            print(
                f"start {number + 1}, {name}: ready after {ready_s[name][-1]:.2f} s, "
                f"{resident_mb[name][-1]:.0f} MB resident",
                flush=True,
            )
    rows: list[Row] = [
        {
            "service": name,
            "n": len(item),
            "ready_p50_s": median(item),
            "ready_max_s": max(item),
            "resident_p50_mb": median(resident_mb[name]),
        }
        for name, item in ready_s.items()
    ]
    for row in rows:
        print(f"{row['service']}: {row['ready_p50_s']:.2f} s and {row['resident_p50_mb']:.0f} MB in the median")
    file = results.folder_for(options.out, described) / "start.json"
    results.write(file, "start", described, {"model": options.model}, rows)

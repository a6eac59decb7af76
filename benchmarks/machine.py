"""Describe the machine of a measurement, and check for other load."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from training import machine

# Most cores that other processes may keep busy during a measurement.
MAX_BUSY_CORES = 0.15
WATCH_S = 0.5

_STAT = Path("/proc/stat")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `--device`."""
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")


def choose_device(options: argparse.Namespace) -> str:
    """Return `cpu` or `cuda`; ValueError for a missing CUDA device."""
    if options.device == "cpu":
        return "cpu"
    from training.data import choose_device

    return choose_device(options.device).type


def describe(device: str) -> dict[str, Any]:
    """Return date, commit, processor, versions and load; warn on standard error if the machine is busy.

    Call it before any work: it sleeps for half a second and counts what the cores do meanwhile as other load.
    """
    busy = busy_cores()
    is_quiet = busy <= MAX_BUSY_CORES
    if not is_quiet:
        print(
            f"WARNING: other processes keep {busy:.2f} cores busy (at most {MAX_BUSY_CORES} are allowed): "
            "do not quote these times",
            file=sys.stderr,
            flush=True,
        )
    cores = len(os.sched_getaffinity(0))
    return machine.describe(device) | {"cores": cores, "busy_cores": busy, "quiet": is_quiet}


def busy_cores() -> float:
    """Count busy cores while this process sleeps."""
    before = _ticks()
    time.sleep(WATCH_S)
    spent, idle = (late - early for early, late in zip(before, _ticks(), strict=True))
    share = 1 - idle / spent if spent else 0.0
    return round(max(share, 0.0) * (os.cpu_count() or 1), 3)


def _ticks() -> tuple[int, int]:
    """Return the ticks of all cores since the start, and the idle ones."""
    fields = [int(part) for part in _STAT.read_text().splitlines()[0].split()[1:9]]
    return sum(fields), fields[3] + fields[4]

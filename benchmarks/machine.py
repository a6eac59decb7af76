"""Where and on what a figure was measured, and whether anybody else was at work there."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import scipy
import torch

from service.engine.engine import choose_device
from service.settings import physical_cores
from service.threads import prepare_thread
from synthesis.cpu import transforms
from training.run_folder import environment

QUIET_CORES = 0.15
"""Cores that others may keep busy while a benchmark's own process sleeps."""
WATCHED_S = 0.5

_STAT = Path("/proc/stat")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of every command that runs torch here."""
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, help="of one operator on the CPU (default: as the service chooses)")


def prepare(options: argparse.Namespace) -> torch.device:
    """Choose the device and set up this thread as the service sets up its worker.

    Raises ValueError where the device asked for is not there.
    """
    device = choose_device(options.device)
    prepare_thread(options.threads or physical_cores())
    return device


def describe(device: torch.device) -> dict[str, Any]:
    """Date, device, versions, commit and how busy the machine was; a warning on standard error if it was.

    Call it before any work: it sleeps for half a second and charges what the cores do meanwhile to others.
    """
    busy, load = busy_cores(), os.getloadavg()
    quiet = busy <= QUIET_CORES
    print(f"load average {load[0]:.2f} {load[1]:.2f} {load[2]:.2f}; others keep {busy:.2f} cores busy", flush=True)
    if not quiet:
        print(
            f"WARNING: the machine is not quiet ({busy:.2f} cores busy, expected at most {QUIET_CORES}): "
            "times below are not to be quoted",
            file=sys.stderr,
            flush=True,
        )
    described = environment(device) | {
        "device_type": device.type,
        "scipy": scipy.__version__,
        "transforms": "SciPy" if transforms.pyfftw is None else "FFTW",  # of designs on a CPU
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load_average": list(load),
        "busy_cores": busy,
        "quiet": quiet,
    }
    if device.type == "cuda":
        described |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return described


def busy_cores(seconds: float = WATCHED_S) -> float:
    """Cores' worth of work done on this machine while this process sleeps; NaN where the system does not tell."""
    before = _ticks()
    time.sleep(seconds)
    after = _ticks()
    if before is None or after is None:
        return float("nan")
    spent, idle = (late - early for early, late in zip(before, after, strict=True))
    share = 1 - idle / spent if spent else 0.0
    return round(max(share, 0.0) * (os.cpu_count() or 1), 3)


def _ticks() -> tuple[int, int] | None:
    """All ticks of all cores since the start, and those that were idle."""
    try:
        fields = [int(each) for each in _STAT.read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    return sum(fields), fields[3] + fields[4]

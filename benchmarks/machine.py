"""Describe the machine of a measurement, and check for other load."""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

# Most cores that other processes may keep busy during a measurement.
MAX_BUSY_CORES = 0.15
WATCH_S = 0.5
PACKAGES = ("numpy", "scipy", "torch")

_STAT, _CPUINFO = Path("/proc/stat"), Path("/proc/cpuinfo")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `--device`."""
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")


def choose_device(options: argparse.Namespace) -> str:
    """Return `cpu` or `cuda`; ValueError for a missing CUDA device."""
    if options.device == "cpu":
        return "cpu"
    try:
        import torch

        available = torch.cuda.is_available()
    except ImportError:
        available = False
    if options.device == "cuda" and not available:
        raise ValueError("--device cuda: no CUDA device is available; use --device cpu")
    return "cuda" if available else "cpu"


def describe(device: str) -> dict[str, Any]:
    """Return date, commit, processor, versions and load; warn on standard error if the machine is busy.

    Call it before any work: it sleeps for half a second and counts what the cores do meanwhile as other load.
    """
    busy = busy_cores()
    described = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": device_name(device),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        **{name: package_version(name) for name in PACKAGES},
        "busy_cores": busy,
        "quiet": busy <= MAX_BUSY_CORES,
    }
    if not described["quiet"]:
        print(
            f"WARNING: other processes keep {busy:.2f} cores busy (at most {MAX_BUSY_CORES} are allowed): "
            "do not quote these times",
            file=sys.stderr,
            flush=True,
        )
    return described


def device_name(device: str) -> str:
    """Return the GPU's name, or the processor's with its widest vector instructions."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name()
    try:
        lines = _CPUINFO.read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    vectors = next((name for name in ("avx512f", "avx2") if name in fields.get("flags", "").split()), "")
    return f"{fields.get('model name', platform.machine())} {vectors.removesuffix('f')}".strip()


def commit(folder: Path | None = None) -> str:
    """Return a checkout's commit, marked if files differ from it; `unknown` outside a checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(
            command, cwd=folder or Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def package_version(name: str) -> str | None:
    """Return a package's version, None if not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def busy_cores() -> float:
    """Count busy cores while this process sleeps; NaN if unknown."""
    before = _ticks()
    time.sleep(WATCH_S)
    after = _ticks()
    if before is None or after is None:
        return float("nan")
    spent, idle = (late - early for early, late in zip(before, after, strict=True))
    share = 1 - idle / spent if spent else 0.0
    return round(max(share, 0.0) * (os.cpu_count() or 1), 3)


def _ticks() -> tuple[int, int] | None:
    """Return the ticks of all cores since the start, and the idle ones."""
    try:
        fields = [int(part) for part in _STAT.read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    return sum(fields), fields[3] + fields[4]

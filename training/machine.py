"""The checkout and the machine of a result."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "scipy", "torch")
_CPUINFO = Path("/proc/cpuinfo")


def describe(device: str) -> dict[str, Any]:
    """Return what a result may depend on besides its settings: date, commit, processor or GPU, versions."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "device": device_name(device),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def device_name(device: str) -> str:
    """Return the name of the GPU, or that of the processor with its widest vector instructions."""
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


@cache
def commit(folder: Path = Path(__file__).parent) -> str:
    """Return a checkout's commit, marked if files differ from it; `unknown` outside a checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"

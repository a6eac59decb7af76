"""The service's settings, read from the command line and from environment variables with the prefix PRIME_."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

_CPU = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")

MIN_DEADLINE_MS, MAX_DEADLINE_MS = 1.0, 60_000.0

# What the command and the tests read, and what Kubernetes sets for services named prime-anc. PRIME_API_KEY, of clients,
# is not among them: meant as a setting, it would leave the service open.
_OF_OTHERS = re.compile(r"PRIME_(URL|CASES|ANC_.*)")


class Settings(BaseSettings):
    """Serve filter design over HTTP."""

    model_config = SettingsConfigDict(
        env_prefix="PRIME_",
        frozen=True,
        use_attribute_docstrings=True,
        cli_prog_name="python -m service",
        cli_kebab_case=True,
        cli_hide_none_type=True,
        cli_implicit_flags=True,
    )

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(8000, ge=0, le=65_535)
    """Port to listen on; 0: a free one."""
    uds: Path | None = None
    """Unix socket to listen on instead, for its owner and group."""
    allowed_hosts: tuple[Annotated[str, StringConstraints(to_lower=True)], ...] = ()
    """Names in Host besides addresses and undotted ones; if set, not over loopback alone."""
    cors_origins: tuple[Annotated[str, StringConstraints(pattern=r"^https?://[^/\s*]+$")], ...] = ()
    """Other origins whose pages may call, as https://app.example.org."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Processor; a GPU is faster for batches alone."""
    store: str | Path | None = None
    """Folder or URL (s3://bucket/models) of models; default: `model_store/checkpoints`."""
    model: str = "generic"
    """Default model: name, name@version or alias."""
    threads: int | None = Field(None, ge=1, le=1024)
    """Workers of light work; default: one per physical core."""
    max_resident_models: int = Field(4, ge=2, le=1000)
    """Models in memory; the least recently used goes first."""
    deadline_ms: float = Field(2000.0, ge=MIN_DEADLINE_MS, le=MAX_DEADLINE_MS)
    """Deadline without X-Deadline-Ms, receipt of the body included."""
    calibration_deadline_ms: float = Field(30_000.0, ge=MIN_DEADLINE_MS, le=MAX_DEADLINE_MS)
    """The same for recordings, and for designs with a controller."""
    api_keys_file: Path | None = None
    """File of API keys, lines name:sha256; none: no key is needed."""
    management_keys_file: Path | None = None
    """File of keys that may load and unload models; none: nobody may."""
    max_connections: int = Field(4096, ge=1, le=1_000_000)
    """Open connections; beyond, 503."""
    drain_s: float = Field(0.0, ge=0)
    """Seconds after SIGTERM in which it answers, though not ready."""
    log_format: Literal["text", "json"] = "text"
    """json: an object a line."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest severity logged."""
    access_log: bool = False
    """Log every request."""
    commit: str = ""
    """Commit of this build, for the metrics."""

    def n_threads(self) -> int:
        """Return the number of workers of light work on a CPU."""
        return min(self.threads or physical_cores(), len(processors()))


def misspelt(variables: Iterable[str]) -> dict[str, str]:
    """Return the variables with our prefix that are no setting, each with a setting of nearly that name, or ""."""
    known = [f"PRIME_{name.upper()}" for name in Settings.model_fields]
    unknown = [
        name
        for name in variables
        if name.startswith("PRIME_") and name.upper() not in known and not _OF_OTHERS.fullmatch(name)
    ]
    return {
        name: next(iter(get_close_matches(name.upper(), known, n=1, cutoff=0.75)), "") for name in sorted(unknown)
    }


def processors() -> set[int]:
    """Return the numbers of the logical processors that this process may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def physical_cores() -> int:
    """Count the physical cores that this process may use, within a container's CPU quota; at least 1.

    Hardware threads of one core share its vector units: transforms are slower with a design thread per hardware thread.
    """
    cores = set()
    for cpu in processors():
        siblings = _CPU / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        try:
            first = re.split(r"[,-]", siblings.read_text().strip())[0]
        except OSError:
            first = str(cpu)
        cores.add(first)
    count = len(cores)
    try:
        quota, period = _QUOTA.read_text().split()
        count = min(count, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):  # no such file, or "max": no quota
        pass
    return max(count, 1)

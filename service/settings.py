"""The service's settings, read from the command line and from environment variables with the prefix PRIME_."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic_settings import BaseSettings, SettingsConfigDict

_CPU = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")

MIN_DEADLINE_MS, MAX_DEADLINE_MS = 1.0, 60_000.0

KeyDigest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


KEYS = ("api_keys", "management_keys")
"""Settings that hold digests of keys."""


class Settings(BaseSettings):
    """Serve filter design over HTTP."""

    model_config = SettingsConfigDict(
        env_prefix="PRIME_",
        frozen=True,
        use_attribute_docstrings=True,
        cli_prog_name="python -m service",
        cli_kebab_case=True,
        cli_hide_none_type=True,
    )

    host: str = "127.0.0.1"
    """Address to listen on."""
    allowed_hosts: tuple[Annotated[str, StringConstraints(to_lower=True)], ...] = ()
    """Names that Host may have in requests over loopback, besides addresses and names without a dot: those of a
    proxy on this machine. Others are refused, since a page of another site may have sent them."""
    port: int = Field(8000, ge=0, le=65_535)
    """Port to listen on; 0 chooses a free one."""
    uds: Path | None = None
    """Unix socket to listen on instead; access to its folder gives access to the service."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Processor that designs filters; auto: a GPU if there is one."""
    store: str | Path | None = None
    """Folder or URL (s3://bucket/models) of checkpoints besides the bundled ones; default: the store's own."""
    model: str = "generic"
    """Default model (name, name@version or alias), loaded at startup."""
    threads: int | None = Field(None, ge=1, le=1024)
    """Design threads on a CPU, each with one filter at a time; default: one per physical core; at most one per
    logical processor."""
    fallback_below_db: float = float("inf")
    """Predicted noise reduction in dB below which the generator's filter is compared with the Wiener filter; inf:
    always, for about 1 ms on a CPU."""
    fallback_margin_db: float = Field(0.5, ge=0)
    """dB by which the Wiener filter must be predicted better to replace the generator's."""
    deadline_ms: float = Field(2000.0, ge=MIN_DEADLINE_MS, le=MAX_DEADLINE_MS)
    """Deadline in milliseconds of requests without X-Deadline-Ms."""
    calibration_deadline_ms: float = Field(30_000.0, ge=MIN_DEADLINE_MS, le=MAX_DEADLINE_MS)
    """The same for requests with recordings; includes receiving the body."""
    max_resident_models: int = Field(4, ge=2, le=1000)
    """Models in memory, the default one included; the least recently used is unloaded first."""
    max_body_bytes: int = Field(12 * 2**20, ge=1024)
    """Largest request body; sixteen calibration answers sent as items are 11 MB."""
    max_calibration_bytes: int = Field(64 * 2**20, ge=1024)
    """Largest body with recordings; sixteen takes of four seconds are 33 MB in base64."""
    api_keys: tuple[KeyDigest, ...] = ()
    """SHA-256 digests (hexadecimal) of API keys; none: no key is needed."""
    management_keys: tuple[KeyDigest, ...] = ()
    """Digests of keys that may load and unload models; none: only the management listener may."""
    api_keys_file: Path | None = None
    """File with further API keys, one `name:sha256` per line."""
    management_keys_file: Path | None = None
    """File with further management keys, in the same format."""
    management_host: str = "127.0.0.1"
    """Address of the management listener."""
    management_port: int | None = Field(None, ge=0, le=65_535)
    """Port of a separate listener for metrics and model management, which the main one then does not answer."""
    receive_timeout_s: float = Field(10.0, gt=0, le=3600)
    """Seconds allowed for receiving a request's body."""
    max_connections: int = Field(4096, ge=1, le=1_000_000)
    """Open connections; while there are more, requests are answered 503."""
    keep_alive_s: int = Field(30, ge=1)
    """Seconds after which an idle connection is closed."""
    ready_budget_ms: float = Field(1000.0, gt=0)
    """Milliseconds for the golden design; a slower service is not ready."""
    recheck_s: float = Field(15.0, gt=0)
    """Seconds between checks of the golden design."""
    drain_s: float = Field(0.0, ge=0)
    """Seconds after SIGTERM during which the service reports not ready but still accepts requests."""
    shutdown_s: int = Field(math.ceil(MAX_DEADLINE_MS / 1e3), ge=0)
    """Seconds that accepted requests get to finish at shutdown."""
    log_format: Literal["text", "json"] = "text"
    """Format of log lines; json includes the trace id of the request."""
    otlp_endpoint: str | None = None
    """URL of an OpenTelemetry collector (http://host:4318/v1/traces)."""
    commit: str = ""
    """Commit of this build, shown in the metrics."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest severity that is logged."""

    def n_threads(self) -> int:
        """Design threads to start on a CPU."""
        return min(self.threads or physical_cores(), len(processors()))


def processors() -> set[int]:
    """Numbers of the logical processors that this process may run on."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def physical_cores() -> int:
    """Physical cores that this process may use, within a container's CPU quota; at least 1.

    Hardware threads of one core share its vector units: with one design thread on each, transforms are slower.
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

"""What an operator may set: on the command line, or in the environment with the prefix PRIME_."""

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

NET_BELOW_DB, NET_MARGIN_DB = 15.0, 3.0
"""On 30 measured ears the default generator's filters are predicted to take away more than the first; the second is
twice what the prediction misses by at worst on persons left out."""

KeyDigest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


KEYS = ("api_keys", "management_keys")
"""Settings that name keys by their digests."""


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
    port: int = Field(8000, ge=0, le=65_535)
    """Port to listen on; 0 takes a free one."""
    uds: Path | None = None
    """Unix socket to listen on instead; who may enter its folder may ask."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where models live; auto takes a GPU where there is one."""
    store: str | Path | None = None
    """Folder or URL (s3://bucket/models) of published checkpoints, beside the bundled ones; by default the model
    store's own folder."""
    store_cache: Path = Path("~/.cache/prime-anc")
    """Folder that a URL's checkpoints are copied to."""
    model: str = "default"
    """Model (name, name@version or alias) that is loaded at the start and used where a request names none."""
    threads: int | None = Field(None, ge=1, le=1024)
    """Threads of one design on the CPU; by default the physical cores at hand, at most the processors."""
    design_process: bool | None = None
    """Whether models on a CPU live in a process of their own, so that under load neither designs nor refusals wait
    for one another; by default where there are two physical cores at hand. A single client's
    requests take about a millisecond more that way."""
    net_below_db: float = NET_BELOW_DB
    """Predicted noise reduction, dB, below which a generator's filter is compared with the Wiener filter for the
    same estimates; inf: always, which takes 8 ms of a CPU core a design."""
    net_margin_db: float = Field(NET_MARGIN_DB, ge=0)
    """By how many dB the Wiener filter must be predicted better to be the answer in its place."""
    json_processes: int = Field(1, ge=0, le=64)
    """Processes that read and write long JSON, so that binary requests need not wait for it; 0: none."""
    deadline_ms: float = Field(2000.0, ge=MIN_DEADLINE_MS, le=MAX_DEADLINE_MS)
    """Milliseconds within which a request without X-Deadline-Ms is to be answered. What cannot be is given fewer
    updates or refused at once."""
    calibration_deadline_ms: float = Field(30_000.0, ge=MIN_DEADLINE_MS, le=MAX_DEADLINE_MS)
    """The same for calibrations, the receipt of their long bodies included."""
    max_resident_models: int = Field(4, ge=2, le=1000)
    """Models kept in memory, the default one among them; the least recently used goes first."""
    max_body_bytes: int = Field(12 * 2**20, ge=1024)
    """Largest request body. Every field on the 65,536-point grid takes about 5 MB of JSON, sixteen calibrations as
    they were answered take 11 MB."""
    max_calibration_bytes: int = Field(64 * 2**20, ge=1024)
    """Largest body of a calibration. Sixteen takes of four seconds are 25 MB of float32, 33 MB in base64."""
    max_header_bytes: int = Field(16_384, ge=512)
    """Largest request head."""
    api_keys: tuple[KeyDigest, ...] = ()
    """SHA-256 digests (hexadecimal) of the API keys that may ask for designs; none: anybody may."""
    management_keys: tuple[KeyDigest, ...] = ()
    """SHA-256 digests of the keys that may load and unload models; none: nobody may."""
    api_keys_file: Path | None = None
    """File of further API keys, a line `name:sha256` each; read again when it changes."""
    management_keys_file: Path | None = None
    """File of further management keys, likewise."""
    management_host: str = "127.0.0.1"
    """Address of the management listener."""
    management_port: int | None = Field(None, ge=0, le=65_535)
    """Port of a listener apart for metrics and for loading and unloading models, which the other one then does not
    answer; by default all is answered on one."""
    quota_per_s: float | None = Field(None, gt=0, le=1e6)
    """Requests per second that one API key may make in the long run, each item of several counted, and questions
    about models too; by default as many as it likes. Without API keys it cannot be set."""
    quota_burst: int = Field(20, ge=1, le=1_000_000)
    """Requests that one API key may make at once after a pause."""
    receive_timeout_s: float = Field(10.0, gt=0, le=3600)
    """Seconds within which a request's head, and then its body, must have come."""
    max_connections: int = Field(4096, ge=1, le=1_000_000)
    """Connections that may be open at once; more are answered 503 and closed."""
    keep_alive_s: int = Field(30, ge=1)
    """Seconds that an idle connection is kept."""
    ready_budget_ms: float = Field(1000.0, gt=0)
    """Time that the golden design may take; a service that needs longer is not ready."""
    recheck_s: float = Field(15.0, gt=0)
    """Seconds from one check of the golden design to the next."""
    drain_s: float = Field(0.0, ge=0)
    """Seconds at the end for which requests are still answered while the service says that it is not ready."""
    shutdown_s: int = Field(math.ceil(MAX_DEADLINE_MS / 1e3), ge=0)
    """Seconds given at the end to requests under way, by default the longest deadline that one may have."""
    log_format: Literal["text", "json"] = "text"
    """Form of the log's lines; json names the trace of the request that a line belongs to."""
    otlp_endpoint: str | None = None
    """URL of an OpenTelemetry collector (http://host:4318/v1/traces); it gets a span for each request and stage."""
    commit: str = ""
    """Commit that this build was made from, for the metrics; an image knows it."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe message that is logged."""

    def n_threads(self) -> int:
        """Threads for torch's operators in the worker."""
        return min(self.threads or physical_cores(), len(processors()))

    def designs_apart(self) -> bool:
        """Whether models on a CPU live in a process of their own."""
        return physical_cores() > 1 if self.design_process is None else self.design_process


def processors() -> set[int]:
    """Those that this process may run on: hardware threads, by their numbers."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def physical_cores() -> int:
    """Physical cores that this process may use, within a container's CPU quota; at least 1.

    Two hardware threads of one core share its vector units, so counting both slows transforms down.
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

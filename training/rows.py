"""The rows of an experiment: one Parquet file per finished task, joined into `rows.parquet`.

    OUT/run.json                  settings that determine the results, and configuration and environment of all starts
    OUT/rows/METHOD/TASK.parquet  rows of one finished task
    OUT/state/METHOD/TASK.pt      training state of an unfinished task
    OUT/models/METHOD/TASK.pt     weights of a trained generator
    OUT/rows.parquet              all rows; `attrs` hold run.json and the held-out listeners of the splits

A file appears whole or not at all, so that a killed run loses at most the tasks in progress.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch

Row = dict[str, Any]

ROWS_FILE = "rows.parquet"
RECORD_FILE = "run.json"
# Metadata key of a Parquet file.
ATTRS = "run"
# Method with a filter per noise: shown in the figure over frequency only.
PER_NOISE = "weighted_fxlms"

# Columns of a filter's figures and their headings in tables.
COLUMNS = {
    "noise_reduction_db": "NR dB",
    "amplification_db": "AMP dB",
    "wide_amplification_db": "AMP 25-20k dB",
    "out_of_band_low_db": "low dB",
    "out_of_band_high_db": "high dB",
    "max_gain_db": "max gain dB",
    "control_rms": "RMS",
    "late_cut_noise_reduction_db": "NR late cut dB",
}
# Probes of a run by recording.
BROAD_BAND = ("white", "pink", "pool")


class RunError(ValueError):
    """A run that cannot start or continue as requested."""


class DesignRow(NamedTuple):
    """Method, number of Gauss-Newton updates and their profile; the profile is empty at k = 0."""

    method: str
    k: int = 0
    profile: str = ""

    @property
    def name(self) -> str:
        """Return `prime-log + GN(2)`; a profile other than the method's group is named: `prime-log + GN(2, paper)`."""
        if not self.k:
            return self.method
        other = "" if self.profile == default_profile(self.method) else f", {self.profile}"
        return f"{self.method} + GN({self.k}{other})"


def default_profile(method: str) -> str:
    """Return the default profile of a method's updates: `fast` for prime-log, else `paper`."""
    return "fast" if method.startswith("prime-log") else "paper"


def as_design(key: Hashable) -> DesignRow:
    """Make a design from the first three levels of an index."""
    method, k, profile = cast("tuple[str, int, str]", key)[:3]
    return DesignRow(method, int(k), profile)


@dataclass(frozen=True)
class RunFolder:
    """Folder of one run, with results of one setting."""

    folder: Path

    def open(self, settings: Mapping[str, Any], start: Mapping[str, Any]) -> None:
        """Create the folder or continue in it, and record this start.

        Raises
        ------
        RunError
            The folder holds a run with other settings, or a record that cannot be read.
        """
        record = self.record()
        if record["settings"]:
            check_settings(str(self.folder), record["settings"], settings)
        record = {"settings": settings, "starts": [*record["starts"], start]}
        write_atomically(self.folder / RECORD_FILE, (json.dumps(record, indent=2) + "\n").encode())

    def record(self) -> dict[str, Any]:
        """Return settings and starts in run.json; both are empty before the first start."""
        file = self.folder / RECORD_FILE
        if not file.exists():
            return {"settings": {}, "starts": []}
        try:
            record = json.loads(file.read_text())
            return {"settings": dict(record["settings"]), "starts": list(record["starts"])}
        except (ValueError, KeyError, TypeError) as error:
            raise RunError(f"{file}: cannot be read as a run's record ({error!r}); delete it") from error

    def has(self, task: str) -> bool:
        """Return whether the rows of a task (METHOD/TASK) exist."""
        return self._file(task).exists()

    def write(self, task: str, rows: pd.DataFrame) -> None:
        """Keep the rows of a task, which marks it finished, and delete its training state."""
        rows = rows.assign(task=task.partition("/")[2])
        rows.attrs = {}
        write_parquet(self._file(task), rows)
        self.state_file(task).unlink(missing_ok=True)

    def read(self, tasks: Sequence[str] | None = None) -> pd.DataFrame:
        """Read the rows of the finished tasks among `tasks`, or of all."""
        files = sorted((self.folder / "rows").glob("*/*.parquet"))
        if tasks is not None:
            files = [self._file(task) for task in tasks if self.has(task)]
        return joined([read_parquet(file) for file in files])

    def collect(self, held_out: Mapping[int, Sequence[str]]) -> pd.DataFrame:
        """Write and return all rows of the folder, whatever configuration requested them.

        Parameters
        ----------
        held_out
            Held-out listeners per split; those of earlier starts are kept.
        """
        file = self.folder / ROWS_FILE
        earlier = read_rows(file).attrs["held_out"] if file.exists() else {}
        rows = self.read()
        if rows.empty:
            raise RunError(f"{self.folder}: no task is finished; repeat the command and let one finish")
        now = {str(split): list(listeners) for split, listeners in held_out.items()}
        for name, value in (self.record() | {"held_out": earlier | now}).items():
            rows.attrs[name] = value
        write_parquet(file, rows)
        return rows

    def state_file(self, task: str) -> Path:
        """Return the file of a task's training state."""
        return self.folder / "state" / f"{task}.pt"

    def loss_file(self, task: str) -> Path:
        """Return the table of a training's losses."""
        return self.folder / "losses" / f"{task}.csv"

    def model_file(self, task: str) -> Path:
        """Return the file of a trained generator's weights."""
        return self.folder / "models" / f"{task}.pt"

    def _file(self, task: str) -> Path:
        return self.folder / "rows" / f"{task}.parquet"


def read_rows(run: Path) -> pd.DataFrame:
    """Read all rows of a run with its record in `attrs`.

    Parameters
    ----------
    run
        Folder of a run, or a file like its `rows.parquet`.

    Raises
    ------
    RunError
        There is no such file, or it holds no rows of a run.
    """
    file = run / ROWS_FILE if run.is_dir() else run
    rows = read_parquet(file)
    missing = {"settings", "starts", "held_out"}.difference(rows.attrs) | {"method", "task"}.difference(rows)
    if missing:
        raise RunError(f"{file}: found no {', '.join(sorted(missing))}; give the rows.parquet of a run")
    return rows


def by_split(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with a split each, without `attrs`, which pandas would copy at every step of a report.

    An untrained design has rows once per listener. They enter all splits whose held-out listeners all have them, so
    that every method's mean of a split is taken over the same cases.
    """
    held_out = {int(split): set(listeners) for split, listeners in rows.attrs["held_out"].items()}
    rows = rows.copy()
    rows.attrs = {}
    if "split" not in rows:
        rows["split"] = np.nan
    fitted = rows["split"].notna()
    parts = [rows[fitted]]
    for _, group in rows[~fitted].groupby("method", sort=False):
        done = set(group.listener)
        parts += [group[group.listener.isin(item)].assign(split=n) for n, item in held_out.items() if item <= done]
    found = joined(parts)
    return found.assign(split=found["split"].astype(int)) if len(found) else found


def split_means(rows: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Average columns by (method, k, profile, split): within a listener, then over listeners."""
    design = ["method", "k", "profile"]
    listeners = rows.groupby([*design, "split", "listener"], sort=False)[columns].mean()
    return listeners.groupby(level=[*design, "split"], sort=False).mean()


def joined(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate rows; a column that one part lacks is missing there."""
    parts = [part for part in parts if len(part)]
    return (
        pd.concat([part.dropna(axis=1, how="all") for part in parts], ignore_index=True)
        if parts
        else pd.DataFrame()
    )


def rounded(rows: pd.DataFrame) -> pd.DataFrame:
    """Round levels to 0.001 dB, those of single bands to 0.1 dB, times to 1 us, control RMS to 1e-5.

    Further digits depend on the machine, and make up most of the size of a kept run.
    """
    levels = [name for name in map(str, rows.columns) if name.endswith("_db")]
    digits = {name: 1 if name.startswith("band_") else 3 for name in levels}
    return rows.round(digits | {"control_rms": 5, "core_ms": 3})


def write_parquet(file: Path, rows: pd.DataFrame) -> None:
    """Write a data frame, with its `attrs` as JSON in the file's metadata, atomically."""
    table = pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata()
    # A published file is a third smaller without Arrow's schema and the statistics of columns.
    options: Any = {
        "compression": "zstd",
        "compression_level": 19,
        "store_schema": False,
        "write_statistics": False,
    }
    with replacing(file) as beside, pq.ParquetWriter(beside, table.schema, **options) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({ATTRS: json.dumps(rows.attrs)})


def read_parquet(file: Path) -> pd.DataFrame:
    """Read what `write_parquet` wrote.

    Raises
    ------
    RunError
        The file is not there or is no Parquet file.
    """
    try:
        opened = pq.ParquetFile(file)
        rows: pd.DataFrame = opened.read().to_pandas()
    except FileNotFoundError as error:
        raise RunError(f"{file}: does not exist; give the folder of a run, or its rows.parquet") from error
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise RunError(
            f"{file}: cannot be read as a Parquet file ({reason}); delete it to repeat its tasks"
        ) from error
    rows.attrs = json.loads((opened.metadata.metadata or {}).get(ATTRS.encode(), b"{}"))
    return rows


def write_atomically(file: Path, content: bytes) -> None:
    """Write a file so that a kill leaves the old or the new content."""
    with replacing(file) as beside:
        beside.write_bytes(content)


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """Yield a file that replaces `file` at the end."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f"{file.name}.{os.getpid()}.partial")
    yield beside
    with beside.open("rb") as stream:
        os.fsync(stream.fileno())
    os.replace(beside, file)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a run's folder; a kill releases it.

    Raises
    ------
    RunError
        Another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "run.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(f"{folder}: another run works in this folder; wait for its end, or stop it") from error
        yield


def check_settings(where: str, found: Mapping[str, Any], requested: Mapping[str, Any]) -> None:
    """Compare the settings of a run with those requested.

    Raises
    ------
    RunError
        They differ; settings that older runs do not name count as equal.
    """
    changed = "; ".join(_differences(found, json.loads(json.dumps(requested))))
    if changed:
        raise RunError(f"{where}: holds a run with other settings ({changed}); choose another")


def _differences(found: Mapping[str, Any], requested: Mapping[str, Any], inside: str = "") -> Iterator[str]:
    for key in sorted(found.keys() & requested.keys()):
        here, there = found[key], requested[key]
        if isinstance(here, dict) and isinstance(there, dict):
            yield from _differences(here, there, f"{inside}{key}.")
        elif here != there:
            yield f"{inside}{key}: found {here!r}, requested {there!r}"


def environment(device: torch.device) -> dict[str, Any]:
    """Return what a result may depend on besides its settings: commit, versions, machine, date."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "device": device_name(device),
        "n_threads": torch.get_num_threads(),
    }


def device_name(device: torch.device) -> str:
    """Return the name of the GPU, or of the processor."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "cpu"
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "cpu")


@cache
def commit() -> str:
    """Return the commit of the checkout, marked if files differ from it; `unknown` outside a checkout."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()

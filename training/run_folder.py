"""A run on disk: what it was asked for, what is finished, where the rows are.

OUT/run.json               what decides the results, and options, commit and environment of each start
OUT/rows/METHOD/TASK.csv   rows of one finished task: a listener's, or a split and seed's; `rounded`
OUT/state/...              training states of unfinished tasks
OUT/run.lock               held by the process that works in the folder
OUT/cases.csv              all rows, an untrained design's once for each split that holds its listener out
OUT/weighted_fxlms.csv     those of weighted FxLMS, which has a filter for each noise
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from training.baselines.adaptive import WeightedFxLms
from training.evaluation import Row
from training.precision import computes_bfloat16
from training.report import CASES_FILE
from training.report.inputs import WEIGHTED_FXLMS_FILE

RECORD_FILE = "run.json"
LOCK_FILE = "run.lock"


class RunError(ValueError):
    """A run that cannot start or go on as asked."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run. `settings` decide its results: a folder never holds results of two settings."""

    folder: Path

    @classmethod
    def open(cls, folder: Path, settings: dict[str, Any], record: dict[str, Any]) -> RunFolder:
        """Create the folder, or go on in one with the same settings; `record` of this start joins those before.

        Raises RunError where the folder holds a run with other settings, or a record that cannot be read.
        """
        starts: list[dict[str, Any]] = []
        if (folder / RECORD_FILE).exists():
            found, starts = read_record(folder / RECORD_FILE)
            check_settings(str(folder), found, settings)
        folder.mkdir(parents=True, exist_ok=True)
        run = cls(folder)
        run.write_record(settings, [*starts, record])
        return run

    def write_record(self, settings: dict[str, Any], starts: list[dict[str, Any]]) -> None:
        """Write run.json."""
        text = json.dumps({"settings": settings, "starts": starts}, indent=2) + "\n"
        write_atomically(self.folder / RECORD_FILE, text)

    def state_file(self, task: str) -> Path:
        """Where a task's training keeps its state."""
        return self.folder / "state" / f"{task}.pt"

    def is_finished(self, task: str) -> bool:
        """Whether the rows of a task (METHOD/TASK) are there."""
        return self.rows_file(task).exists()

    def finish(self, task: str, rows: list[Row]) -> None:
        """Keep a task's rows, which marks it finished, and delete its training state.

        Each row names the commit that made it: a run may go on under a later one.
        """
        self.write_rows(task, pd.DataFrame(rows).assign(commit=commit()))
        self.state_file(task).unlink(missing_ok=True)

    def write_rows(self, task: str, rows: pd.DataFrame) -> None:
        """The rows of a task, rounded."""
        write_rows(self.rows_file(task), rounded(rows))

    def rows(self, tasks: Iterable[str]) -> pd.DataFrame:
        """Rows of those of the tasks that are finished, joined."""
        found = [read_rows(self.rows_file(each)) for each in tasks if self.is_finished(each)]
        return pd.concat(found, ignore_index=True) if found else pd.DataFrame()

    def collect(self, queries: Mapping[int, tuple[str, ...]]) -> pd.DataFrame:
        """Join the rows of all that is finished, whatever command asked for it, into cases.csv.

        queries: the held-out listeners of each split; splits that cases.csv has already are kept. An untrained
        design's rows enter once for each of the splits whose held-out listeners it has all designed for, so that
        every method's mean of a split is taken over the same cases.
        """
        queries = self.held_out() | dict(queries)
        parts = []
        for folder in sorted((self.folder / "rows").iterdir()):
            found = [read_rows(file) for file in sorted(folder.glob("*.csv"))]
            if not found:
                continue
            rows = pd.concat(found, ignore_index=True)
            if "split" in rows:
                parts.append(rows)
                continue
            done = set(rows.listener)
            parts += [
                rows[rows.listener.isin(held_out)].assign(split=split)
                for split, held_out in queries.items()
                if done.issuperset(held_out)
            ]
        if not parts:
            raise RunError(f"{self.folder}: no method is finished for a whole split; let the run finish one")
        rows = pd.concat(parts, ignore_index=True)
        for_figure = rows.method == WeightedFxLms.name
        if for_figure.any():
            write_atomically(self.folder / WEIGHTED_FXLMS_FILE, rows[for_figure].to_csv(index=False))
        rows = rows[~for_figure]
        write_atomically(self.folder / CASES_FILE, rows.to_csv(index=False))
        return rows

    def held_out(self) -> dict[int, tuple[str, ...]]:
        """The listeners of each split in cases.csv; none where there is no such file."""
        if not (self.folder / CASES_FILE).exists():
            return {}
        rows = read_rows(self.folder / CASES_FILE)
        found: dict[Any, Any] = rows.groupby("split").listener.unique().to_dict()
        return {int(split): tuple(listeners) for split, listeners in found.items()}

    def rows_file(self, task: str) -> Path:
        """Where a finished task's rows are."""
        return self.folder / "rows" / f"{task}.csv"


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold a run's folder; RunError where another process does. A kill releases it as well."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RunError(f"{folder}: another run works in this folder; wait for its end, or stop it") from error
        yield


def read_record(file: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Settings and starts of a run.json; RunError where it is none."""
    try:
        record = json.loads(file.read_text())
        return record["settings"], list(record["starts"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{file}: cannot be read as a run's record ({error!r})") from error


def check_settings(where: str, found: dict[str, Any], asked: dict[str, Any]) -> None:
    """RunError where the settings found in a run are not those asked for."""
    asked = json.loads(json.dumps(asked))
    if found != asked:
        changed = "; ".join(_differences(found, asked))
        raise RunError(f"{where}: holds a run with other settings ({changed}); choose another")


def _differences(found: dict[str, Any], asked: dict[str, Any], inside: str = "") -> Iterator[str]:
    """What differs, each by its dotted name: a setup is too long to be told whole."""
    for key in sorted(found.keys() | asked.keys()):
        here, there = found.get(key), asked.get(key)
        if isinstance(here, dict) and isinstance(there, dict):
            yield from _differences(here, there, f"{inside}{key}.")
        elif here != there:
            one, other = ("a table" if isinstance(each, dict) else repr(each) for each in (here, there))
            yield f"{inside}{key}: found {one}, asked for {other}"


def rounded(rows: pd.DataFrame) -> pd.DataFrame:
    """Levels to 0.001 dB, those of single bands to 0.1 dB, control RMS to 1e-5.

    Further digits would be those of one machine's arithmetic, and they are most of what a kept run would weigh.
    """
    levels = [name for name in map(str, rows.columns) if name.endswith("_db")]
    digits = {name: 1 if name.startswith("band_") else 3 for name in levels}
    return rows.round(digits | {"control_rms": 5})


def read_rows(file: Path) -> pd.DataFrame:
    """Rows of one table file; RunError where it holds none."""
    try:
        return pd.read_csv(file, keep_default_na=False, na_values=[""], low_memory=False)
    except ValueError as error:
        raise RunError(f"{file}: cannot be read as rows ({error}); delete it to repeat that task") from error


def write_rows(file: Path, rows: pd.DataFrame) -> None:
    """One row per case, as CSV."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, rows.to_csv(index=False))


def write_atomically(file: Path, content: str | bytes) -> None:
    """Write beside the file and swap, so that a kill leaves the old or the new content, never half of one."""
    beside = file.with_name(f"{file.name}.{os.getpid()}.partial")
    with beside.open("wb") as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(beside, file)


def environment(device: torch.device) -> dict[str, Any]:
    """What a result may depend on besides its settings: commit, versions, machine, date."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "device": device_name(device),
        "n_threads": torch.get_num_threads(),
        "bfloat16": computes_bfloat16(device),
    }


def device_name(device: torch.device) -> str:
    """The GPU's name, or the processor's as far as the system tells it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "cpu"
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "cpu")


@cache
def commit() -> str:
    """The checkout's commit, marked where files differ from it; `unknown` outside a checkout."""
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

"""The rows of an experiment: one Parquet file per finished task, joined into `rows.parquet`.

    OUT/run.json                  settings that determine the results, and configuration and machine of all starts
    OUT/rows/METHOD/TASK.parquet  rows of one finished task
    OUT/state/METHOD/TASK.pt      training state of an unfinished task
    OUT/models/METHOD/TASK.pt     weights of a trained generator
    OUT/losses/METHOD/TASK.csv    losses of a training
    OUT/rows.parquet              all rows; `attrs` hold run.json and the held-out listeners of the splits

A file appears whole or not at all, so that a killed run loses at most the tasks in progress.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout
from pyarrow import ArrowException

Row = dict[str, Any]

ROWS_FILE = "rows.parquet"
RECORD_FILE = "run.json"
SUFFIXES = {"rows": ".parquet", "state": ".pt", "models": ".pt", "losses": ".csv"}


class RunError(ValueError):
    """A run that cannot start or continue as requested."""


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
        there, here = (
            pd.json_normalize(json.loads(json.dumps(item))).to_dict("records")[0]
            for item in (record["settings"], settings)
        )
        changed = [
            f"{name}: found {there[name]!r}, requested {here[name]!r}"
            for name in sorted(map(str, there.keys() & here.keys()))  # older runs do not name all
            if there[name] != here[name]
        ]
        if changed:
            detail = "; ".join(changed)
            raise RunError(f"{self.folder}: holds a run with other settings ({detail}); choose another")
        record = {"settings": settings, "starts": [*record["starts"], start]}
        with replacing(self.folder / RECORD_FILE) as beside:
            beside.write_text(json.dumps(record, indent=2) + "\n")

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
        return self.file("rows", task).exists()

    def write(self, task: str, rows: pd.DataFrame) -> None:
        """Keep the rows of a task, which marks it finished, and delete its training state."""
        write_rows(self.file("rows", task), rows.assign(task=task.partition("/")[2]))
        self.file("state", task).unlink(missing_ok=True)

    def read(self, tasks: Sequence[str] | None = None) -> pd.DataFrame:
        """Read the rows of the finished tasks among `tasks`, or of all."""
        files = sorted((self.folder / "rows").glob("*/*.parquet"))
        if tasks is not None:
            files = [self.file("rows", task) for task in tasks if self.has(task)]
        return joined([_read(file) for file in files])

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
        listeners = {str(split): list(names) for split, names in held_out.items()}
        rows.attrs = self.record() | {"held_out": earlier | listeners}
        write_rows(file, rows)
        return rows

    def file(self, kind: str, task: str) -> Path:
        """Return the file of a kind (rows, state, models, losses) of a task."""
        return self.folder / kind / f"{task}{SUFFIXES[kind]}"


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
    rows = _read(file)
    missing = {"settings", "starts", "held_out"}.difference(rows.attrs) | {"method", "task"}.difference(rows)
    if missing:
        raise RunError(f"{file}: found no {', '.join(sorted(missing))}; give the rows.parquet of a run")
    return rows


def _read(file: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(file)
    except FileNotFoundError as error:
        raise RunError(f"{file}: does not exist; give the folder of a run, or its rows.parquet") from error
    except (OSError, ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise RunError(
            f"{file}: cannot be read as a Parquet file ({reason}); delete it to repeat its tasks"
        ) from error


def write_rows(file: Path, rows: pd.DataFrame) -> None:
    """Write rows atomically, levels to 0.001 dB, those of single bands to 0.1 dB, times to 1 us, control RMS to 1e-5.

    Further digits depend on the machine, and make up most of the size of a kept run.
    """
    levels = [name for name in map(str, rows.columns) if name.endswith("_db")]
    digits = {name: 1 if name.startswith("band_") else 3 for name in levels}
    with replacing(file) as beside:
        rows.round(digits | {"control_rms": 5, "core_ms": 3}).to_parquet(beside, compression="zstd", index=False)


def by_split(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows with a split each, without `attrs`, which pandas would copy at every step of a report.

    An untrained design has rows once per listener. They enter all splits whose held-out listeners all have them, so
    that every method's mean of a split is taken over the same cases.
    """
    held_out = {int(split): set(listeners) for split, listeners in rows.attrs["held_out"].items()}
    rows = rows.reindex(columns=[*rows.columns.union(["split"], sort=False)])
    rows.attrs = {}
    fitted = rows["split"].notna()
    parts = [rows[fitted]]
    for _, group in rows[~fitted].groupby("method", sort=False):
        done = set(group.listener)
        parts += [group[group.listener.isin(item)].assign(split=n) for n, item in held_out.items() if item <= done]
    return joined(parts).astype({"split": int})


def split_means(rows: pd.DataFrame, columns: Sequence[str], by: Sequence[str] = ("design",)) -> pd.DataFrame:
    """Average columns by (`by`, split): over cases and seeds within a listener, then over listeners."""
    keys = [*by, "split"]
    listeners = rows.groupby([*keys, "listener"], observed=True)[list(columns)].mean()
    return listeners.groupby(level=keys, observed=True).mean()


def joined(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate rows; a column that one part lacks is missing there."""
    parts = [part.dropna(axis=1, how="all") for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"split": np.empty(0)})


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
    try:
        with FileLock(folder / "run.lock", timeout=0):
            yield
    except Timeout as error:
        raise RunError(f"{folder}: another run works in this folder; wait for its end, or stop it") from error

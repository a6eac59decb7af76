"""A run on disk: what it was asked for, what is finished, where the rows are.

OUT/run.json               options, configuration, data fingerprints, commit, environment
OUT/rows/METHOD/PIECE.csv  rows of one finished piece of work: a listener's, or a split and seed's
OUT/state/...              training states of unfinished pieces
OUT/cases.csv              all rows, an untrained design's once for each split that holds its listener out
OUT/weighted_fxlms.csv     those of weighted FxLMS, which has a filter for each noise
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from training.baselines.adaptive import WeightedFxLms
from training.datasets.splits import Split
from training.protocol import Row
from training.report import CASES_FILE
from training.report.inputs import WEIGHTED_FXLMS_FILE


class RunError(ValueError):
    """A run that cannot start or go on as asked; the message names what was found and expected."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run. `settings` decide its results: a folder never holds results of two settings."""

    folder: Path

    @classmethod
    def open(cls, folder: Path, settings: dict[str, Any], record: dict[str, Any]) -> RunFolder:
        """Create the folder, or go on in one with the same settings; `record` is kept beside them.

        Raises RunError where the folder holds a run with other settings.
        """
        settings = json.loads(json.dumps(settings))
        file = folder / "run.json"
        if file.exists():
            found = json.loads(file.read_text())["settings"]
            changed = sorted(key for key in settings.keys() | found.keys() if settings.get(key) != found.get(key))
            if changed:
                differences = "; ".join(
                    f"{key}: found {found.get(key)!r}, asked for {settings.get(key)!r}" for key in changed
                )
                raise RunError(f"{folder}: holds a run with other settings ({differences}); choose another --out")
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps({"settings": settings, **record}, indent=2) + "\n")
        return cls(folder)

    def state_file(self, piece: str) -> Path:
        """Where a piece's training keeps its state."""
        return self.folder / "state" / f"{piece}.pt"

    def is_finished(self, piece: str) -> bool:
        """Whether the rows of a piece of work (METHOD/PIECE) are there."""
        return self._rows_file(piece).exists()

    def finish(self, piece: str, rows: list[Row]) -> None:
        """Keep a piece's rows, which marks it finished; its training state is no longer needed."""
        write_rows(self._rows_file(piece), rows)
        self.state_file(piece).unlink(missing_ok=True)

    def rows(self, pieces: Iterable[str]) -> pd.DataFrame:
        """Rows of those of the pieces that are finished, joined."""
        found = [read_rows(self._rows_file(each)) for each in pieces if self.is_finished(each)]
        return pd.concat(found, ignore_index=True) if found else pd.DataFrame()

    def collect(self, untrained: Iterable[str], fitted: Iterable[str], splits: Iterable[Split]) -> pd.DataFrame:
        """Join the rows of all finished pieces into cases.csv.

        An untrained design's rows enter once for each of the splits that holds the listener out, so that every
        method's mean of a split is taken over the same cases.
        """
        cases, parts = self.rows(untrained), [self.rows(fitted)]
        if len(cases):
            parts += [cases[cases.listener.isin(each.query)].assign(split=each.index) for each in splits]
        rows = pd.concat(parts, ignore_index=True)
        for_figure = rows.method == WeightedFxLms.name
        if for_figure.any():
            write_atomically(self.folder / WEIGHTED_FXLMS_FILE, rows[for_figure].to_csv(index=False))
        rows = rows[~for_figure]
        write_atomically(self.folder / CASES_FILE, rows.to_csv(index=False))
        return rows

    def _rows_file(self, piece: str) -> Path:
        return self.folder / "rows" / f"{piece}.csv"


def read_rows(file: Path) -> pd.DataFrame:
    """Rows of one table file."""
    return pd.read_csv(file, keep_default_na=False, na_values=[""])


def write_rows(file: Path, rows: list[Row]) -> None:
    """One row per case, as CSV."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, pd.DataFrame(rows).to_csv(index=False))


def write_atomically(file: Path, text: str) -> None:
    """Write beside the file and swap, so that a kill leaves the old or the new text, never half of one."""
    beside = file.with_name(f"{file.name}.{os.getpid()}.partial")
    with beside.open("w") as stream:
        stream.write(text)
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

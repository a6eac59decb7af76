"""A run on disk: what it was asked for, what is finished, where the rows are.

OUT/run.json            options, configuration, data fingerprints, commit, environment
OUT/baselines.csv       rows of the untrained designs, one for each pair of the data set
OUT/models/NAME/        state.pt while training; rows.csv and done.json once finished
OUT/cases.csv           all rows, split by split
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

from training.datasets.splits import Split
from training.protocol import Row
from training.report import CASES_FILE


class RunError(ValueError):
    """A run that cannot start or go on as asked; the message names what was found and expected."""


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run. `settings` decide its results: a folder never holds results of two settings."""

    folder: Path
    settings: dict[str, Any]

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
        return cls(folder, settings)

    def state_file(self, name: str) -> Path:
        """Where a model's training keeps its state."""
        return self.folder / "models" / name / "state.pt"

    def finished(self, name: str) -> str | None:
        """The store reference of a finished model, or None."""
        file = self.folder / "models" / name / "done.json"
        return json.loads(file.read_text())["reference"] if file.exists() else None

    def finish(self, name: str, reference: str, digest: str, rows: list[Row]) -> None:
        """Keep a model's rows and mark it finished; its training state is no longer needed."""
        folder = self.folder / "models" / name
        folder.mkdir(parents=True, exist_ok=True)
        write_rows(folder / "rows.csv", rows)
        write_atomically(folder / "done.json", json.dumps({"reference": reference, "digest": digest}) + "\n")
        self.state_file(name).unlink(missing_ok=True)

    def baselines(self) -> pd.DataFrame | None:
        """Rows of the untrained designs, if they are finished."""
        file = self.folder / "baselines.csv"
        return read_rows(file) if file.exists() else None

    def write_baselines(self, rows: list[Row]) -> None:
        """Keep the rows of the untrained designs."""
        write_rows(self.folder / "baselines.csv", rows)

    def collect(self, splits: Iterable[Split]) -> pd.DataFrame:
        """Join the rows of all finished models with the baselines of their splits' queries into cases.csv."""
        parts = []
        baselines = self.baselines()
        finished = sorted((self.folder / "models").glob("*/rows.csv"))
        models = pd.concat([read_rows(file) for file in finished]) if finished else pd.DataFrame()
        for split in splits:
            if baselines is not None and len(models) and (models["split"] == split.index).any():
                own = baselines[baselines.listener.isin(split.query)].copy()
                own["split"] = split.index
                parts.append(own)
        rows = pd.concat([*parts, models], ignore_index=True)
        write_atomically(self.folder / CASES_FILE, rows.to_csv(index=False))
        return rows


def read_rows(file: Path) -> pd.DataFrame:
    """Rows of one table file."""
    return pd.read_csv(file, keep_default_na=False, na_values=[""])


def write_rows(file: Path, rows: list[Row]) -> None:
    """One row per case, as CSV."""
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
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "n_threads": torch.get_num_threads(),
    }


def _commit() -> str:
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

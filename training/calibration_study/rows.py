"""The study's rows: read from their files, joined, averaged over persons."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from training.run_folder import write_atomically

SCORES = ("noise_reduction_db", "amplification_db", "wide_amplification_db", "control_rms")


def read_study(folder: Path) -> pd.DataFrame:
    """OUT/rows.csv."""
    return read_table(folder / "rows.csv")


def read_table(file: Path) -> pd.DataFrame:
    """Rows of one table file; the probes stay a word, 01 is not 1."""
    return pd.read_csv(file, dtype={"probes": str, "profile": str}, keep_default_na=False, na_values=[""])


def collect(folder: Path) -> pd.DataFrame:
    """Join all finished rows into OUT/rows.csv."""
    files = sorted((folder / "rows").glob("*/*/*.csv"))
    rows = pd.concat([read_table(file) for file in files], ignore_index=True)
    write_atomically(folder / "rows.csv", rows.to_csv(index=False))
    return rows


def person_means(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Means of the scores: over ears and conditions within a person, then over persons."""
    persons = rows.groupby([*by, "listener"], sort=False, dropna=False)[list(SCORES)].mean()
    return persons.groupby(level=by, sort=False, dropna=False).mean()

"""Optional inputs of a report, in addition to the rows.

OUT/core_time.csv      method, k, profile, device, core_ms, n_cases: one line per design and device
OUT/weighted_fxlms.csv rows of weighted FxLMS as in cases.csv; only the bands are used
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from training.report.rows import ReportError, read_csv, with_profile

CORE_TIME_FILE = "core_time.csv"
WEIGHTED_FXLMS_FILE = "weighted_fxlms.csv"


def read_core_times(folder: Path) -> pd.DataFrame | None:
    """Core times, or None without a file; ReportError if a design has two times on one device."""
    file = folder / CORE_TIME_FILE
    if not file.exists():
        return None
    times = read_csv(file)
    missing = {"method", "k", "profile", "device", "core_ms", "n_cases"}.difference(times.columns)
    if missing:
        raise ReportError(f"{file}: found no column {', '.join(sorted(missing))}")
    times = with_profile(times)
    key = ["method", "k", "profile", "device"]
    if times.duplicated(key).any():
        raise ReportError(f"{file}: found {dict(times[times.duplicated(key)].iloc[0][key])} twice")
    return times


def read_weighted_fxlms(folder: Path, rows: pd.DataFrame) -> pd.DataFrame | None:
    """Rows of weighted FxLMS on the held-out listeners of each split of `rows`, or None without a file."""
    file = folder / WEIGHTED_FXLMS_FILE
    if not file.exists():
        return None
    held_out = rows[["split", "listener"]].drop_duplicates()
    own = with_profile(read_csv(file)).drop(columns="split", errors="ignore").drop_duplicates()
    return own.merge(held_out, on="listener")

"""Optional inputs of a report, in addition to the rows.

OUT/core_time.csv      method, k, profile, device, core_ms, n_cases: one line per design and device
OUT/weighted_fxlms.csv rows of weighted FxLMS as in cases.csv; only the bands are used
OUT/paths.npz          per listener and ear, under `LISTENER/EAR/...`: true impulse responses `primary` and
                       `secondary` at 48 kHz, and taps of designs under their names (`prime-log + GN(1)`)
OUT/wearing.csv        rows of `studies.wearing`, read by `training.report.wearing`
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from training.report.designs import Design, design_named
from training.report.rows import ReportError, read_csv, with_profile

CORE_TIME_FILE = "core_time.csv"
WEIGHTED_FXLMS_FILE = "weighted_fxlms.csv"
PATHS_FILE = "paths.npz"


@dataclass
class EarPaths:
    """True paths of one ear and the filters that were designed for it: impulse responses at 48 kHz."""

    primary: NDArray[np.floating] | None = None
    secondary: NDArray[np.floating] | None = None
    taps: dict[Design, NDArray[np.floating]] = field(default_factory=dict)


Listeners = dict[str, dict[str, EarPaths]]


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


def read_paths(folder: Path) -> Listeners | None:
    """Paths and filters by listener and ear, or None without a file."""
    file = folder / PATHS_FILE
    if not file.exists():
        return None
    listeners: Listeners = {}
    try:
        opened = np.load(file)
    except (ValueError, OSError, EOFError) as error:
        raise ReportError(f"{file}: cannot be read as named arrays ({error})") from error
    with opened as arrays:
        for key in arrays.files:
            parts = key.split("/", 2)
            if len(parts) != 3:
                raise ReportError(f"{file}: found the key {key!r}, expected LISTENER/EAR/NAME")
            listener, ear, name = parts
            paths = listeners.setdefault(listener, {}).setdefault(ear, EarPaths())
            if name in ("primary", "secondary"):
                setattr(paths, name, arrays[key])
            else:
                paths.taps[design_named(name)] = arrays[key]
    for listener, ears in listeners.items():
        for ear, paths in ears.items():
            if paths.primary is None or paths.secondary is None:
                raise ReportError(f"{file}: found no primary and secondary path of {listener}, {ear}")
    return listeners

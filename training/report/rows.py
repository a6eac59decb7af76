"""Reads, checks and averages the rows of a run.

Means are taken as in the paper: over ears, conditions and seeds within a listener, over listeners within
a split, over splits; SD is the sample standard deviation over split means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from measurement.estimate import REGULARISATION
from training.report.designs import Design, as_design, by_design

CASES_FILE = "cases.csv"

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

LOUD_HIGH_BAND_DB = 3.0
"""An ear counts as loud above the scored bands if any band above 8.9 kHz becomes louder by more than this."""

_DESIGN = ["method", "k", "profile"]
_CASE = ["listener", "ear", "condition"]
_KEY = [*_DESIGN, "window", "split", "seed", *_CASE, "probe", "snr_db"]
_OPTIONAL = [
    "profile",
    "seed",
    "probe",
    "snr_db",
    "predicted_noise_reduction_db",
    "predicted_blind_noise_reduction_db",
]
_REQUIRED = [*_KEY, "dataset", "simulated", "fit", "worst_high_band_db", *COLUMNS]


class ReportError(ValueError):
    """Rows that cannot be used for a report; the message names what was found and expected."""


def read_rows(folder: Path) -> pd.DataFrame:
    """All rows of a run: those of untrained methods and of finished models."""
    return read_csv(folder / CASES_FILE)


def read_csv(file: Path) -> pd.DataFrame:
    """Read a CSV file; only an empty field is a missing value."""
    text = {"listener": str, "support": str, "profile": str, "paths": str}
    try:
        return pd.read_csv(file, keep_default_na=False, na_values=[""], dtype=text, low_memory=False)
    except ValueError as error:
        raise ReportError(f"{file}: cannot be read as a table ({error})") from error


def with_profile(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with an empty, not missing, profile at k = 0."""
    named = rows["profile"].fillna("") if "profile" in rows else pd.Series("", rows.index)
    return rows.assign(profile=named.where(rows.k > 0, ""))


def checked(rows: pd.DataFrame) -> pd.DataFrame:
    """Checked rows with derived columns: prediction errors and loud high bands.

    Raises:
        ReportError: a column is missing, two rows stand for one case, a row belongs to no split, the rows are of
            several data sets, or a listener or a probe was in its model's support.
    """
    missing = [name for name in _REQUIRED if name not in rows and name not in _OPTIONAL]
    if missing:
        raise ReportError(f"columns: found none named {', '.join(missing)}")
    if rows["split"].isna().any():
        raise ReportError(f"split: found {rows['split'].isna().sum()} rows without one, expected one in each")
    if rows.dataset.nunique() != 1:
        raise ReportError(f"dataset: found {sorted(rows.dataset.unique())}, expected one")
    rows = with_profile(rows).assign(**{name: float("nan") for name in _OPTIONAL[1:] if name not in rows})
    twice = rows[rows.duplicated(_KEY)]
    if len(twice):
        raise ReportError(f"rows: found {len(twice)} cases twice, the first {dict(twice.iloc[0][_KEY])}")
    _check_support(rows)
    paths = rows["paths"].fillna("estimated") if "paths" in rows else "estimated"
    rows = rows.assign(paths=paths)
    error = rows.predicted_noise_reduction_db - rows.noise_reduction_db
    blind = rows.predicted_blind_noise_reduction_db - rows.noise_reduction_db
    return rows.assign(
        prediction_error_db=error,
        prediction_miss_db=error.abs(),
        blind_miss_db=blind.abs(),
        loud_high_band=(rows.worst_high_band_db > LOUD_HIGH_BAND_DB).astype(float),
    )


def _check_support(rows: pd.DataFrame) -> None:
    """ReportError for a listener or a probe in the support of the model, whose names any separators divide."""
    for case, known in (("listener", "support"), ("probe", "support_recordings")):
        if known not in rows:
            continue
        for name, support in rows[[case, known]].dropna().drop_duplicates().itertuples(index=False, name=None):
            if name in re.findall(r"[\w.-]+", support):
                raise ReportError(f"{known}: found {name} held out and in its model's support ({support})")


def split_means(rows: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Mean of each column per design and split, indexed (method, k, profile, split)."""
    rows = with_profile(rows)
    listeners = rows.groupby([*_DESIGN, "split", "listener"], sort=False)[columns].mean()
    return listeners.groupby(level=[*_DESIGN, "split"], sort=False).mean()


Figures = dict[Design, "pd.Series[float]"]
"""A number for each column, by design."""


def mean_and_deviation(rows: pd.DataFrame, columns: list[str]) -> tuple[Figures, Figures]:
    """Mean and sample SD over splits of each column; the SD is missing if there is only one split."""
    grouped = split_means(rows, columns).groupby(level=_DESIGN, sort=False)

    def figures(table: pd.DataFrame) -> Figures:
        return {as_design(key): line for key, line in table.iterrows()}

    return figures(grouped.mean()), figures(grouped.std())


def counts(rows: pd.DataFrame) -> dict[str, int | str]:
    """Numbers of splits, seeds, listeners and cases behind a mean; a method without randomness has no seeds, and an
    unfinished one may have different numbers per split."""
    seeds = sorted(set(rows.groupby("split").seed.nunique()))
    return {
        "splits": rows["split"].nunique(),
        "seeds": " to ".join(str(n or "-") for n in (seeds if len(seeds) < 2 else seeds[:: len(seeds) - 1])),
        "listeners": rows.listener.nunique(),
        "cases": len(rows[_CASE].drop_duplicates()),
    }


@dataclass(frozen=True)
class Section:
    """Rows of one table: one data set, one window, one group of conditions (`all`, `original`, ...)."""

    dataset: str
    window: int
    conditions: str
    simulated: bool
    rows: pd.DataFrame

    @cached_property
    def designs(self) -> dict[Design, pd.DataFrame]:
        """The rows of each design, in the tables' order."""
        return by_design(self.rows)

    def title(self, what: str) -> str:
        """A title with data set, conditions and calibration; it states if the data are simulated."""
        names = ["SIMULATED data"] if self.simulated else []
        names += [self.dataset] if self.dataset != "simulated" else []
        calibration = f"window {self.window}" + self._unusual_regularisation
        return f"{what} ({', '.join(names)}, {_CONDITIONS[self.conditions]}, {calibration})"

    @property
    def _unusual_regularisation(self) -> str:
        found = set(self.rows.regularisation.dropna()) if "regularisation" in self.rows else set()
        return "".join(f", regularisation {each:.0e}" for each in sorted(found - {REGULARISATION}))


_CONDITIONS = {
    "all": "mean over all conditions",
    "original": "original measurements",
    "modified": "modified secondary paths",
}


def sections(rows: pd.DataFrame) -> Iterator[Section]:
    """For each window: all conditions, original and modified measurements, as far as there are such rows."""
    for window, own in rows.groupby("window"):
        original = own.condition == "original"
        groups = {"all": own, "original": own[original], "modified": own[~original]}
        if original.all() or not original.any():
            groups.pop("all")
        for conditions, chosen in groups.items():
            if len(chosen):
                simulated = bool(rows.simulated.any())
                yield Section(rows.dataset.iloc[0], int(str(window)), conditions, simulated, chosen)


def paired_differences(first: pd.DataFrame, second: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """One design's rows minus another's on every case that both have, indexed (split, listener, ear, condition).

    Seeds are averaged within a case; empty if the two share no case.
    """

    means = (own.groupby(["split", *_CASE])[columns].mean() for own in (first, second))
    one, other = next(means).align(next(means), join="inner", axis=0)
    return one - other

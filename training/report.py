"""Tables and figures of a run, from its rows alone: `python -m training.report OUT`. Never runs a model.

Means are taken as the paper takes them: over ears, conditions and seeds within a listener, over listeners within
a split, over splits; the standard deviation is the sample's, over split means.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import cast

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt

from synthesis.octave_bands import nominal_hz
from training.scoring import SCORED_BANDS

CASES_FILE = "cases.csv"
TABLES_FILE = "tables.md"

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

NOTE = (
    "NR: mean over the one-third octaves 50 Hz-5 kHz. AMP: 50 Hz-8 kHz. low, high: change of level in "
    "22.4-44.7 Hz and 8.9-22.4 kHz, positive is louder. late cut: the primary's taps from 2048 on set to zero."
)


def read_rows(folder: Path) -> pd.DataFrame:
    """All rows of a run: its baselines and its finished models'."""
    return pd.read_csv(folder / CASES_FILE, keep_default_na=False, na_values=[""])


def design_name(method: str, k: int) -> str:
    """`prime-log + GN(2)`."""
    return f"{method} + GN({k})" if k else method


def as_design(key: Hashable) -> tuple[str, int]:
    """Method and number of updates from the first two levels of a table's index."""
    method, k = cast("tuple[str, int]", key)[:2]
    return method, k


def split_means(rows: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Mean of each column per design and split, indexed (method, k, split)."""
    listeners = rows.groupby(["method", "k", "split", "listener"], sort=False)[columns].mean()
    return listeners.groupby(level=["method", "k", "split"], sort=False).mean()


def over_splits(rows: pd.DataFrame) -> pd.DataFrame:
    """A line per design: mean and SD over splits, worst ear, and the error of the prediction."""
    means = split_means(rows, list(COLUMNS))
    grouped = means.groupby(level=["method", "k"], sort=False)
    lines = []
    for key, mean in grouped.mean().iterrows():
        method, k = as_design(key)
        own = rows[(rows.method == method) & (rows.k == k)]
        deviation = grouped["noise_reduction_db"].std().loc[(method, k)]
        error = own.predicted_noise_reduction_db - own.noise_reduction_db
        blind = own.predicted_blind_noise_reduction_db - own.noise_reduction_db
        lines.append(
            {
                "design": design_name(method, k),
                "splits": own["split"].nunique(),
                "seeds": max(1, own["seed"].nunique()),
                **{title: mean[column] for column, title in COLUMNS.items()},
                "NR SD over splits": deviation,
                "worst ear NR": own.noise_reduction_db.min(),
                "loudest band above 8.9 kHz": own.worst_high_band_db.max(),
                "predicted - scored": error.mean(),
                "its mean size": error.abs().mean(),
                "its largest": error.abs().max(),
                "its mean size without coherence": blind.abs().mean(),
            }
        )
    return pd.DataFrame(lines)


def per_split(rows: pd.DataFrame) -> pd.DataFrame:
    """NR and AMP of every design (columns) in every split (rows)."""
    means = split_means(rows, ["noise_reduction_db", "amplification_db"]).reset_index()
    means["design"] = [design_name(m, k) for m, k in zip(means.method, means.k, strict=True)]
    means["cell"] = [
        f"{nr:.2f} / {amp:.3f}" for nr, amp in zip(means.noise_reduction_db, means.amplification_db, strict=True)
    ]
    return means.pivot(index="split", columns="design", values="cell")[list(dict.fromkeys(means.design))]


def every_split(rows: pd.DataFrame) -> pd.DataFrame:
    """All figures of every design in every split, a line each."""
    means = split_means(rows, list(COLUMNS)).rename(columns=COLUMNS).reset_index()
    means.insert(0, "design", [design_name(m, k) for m, k in zip(means.method, means.k, strict=True)])
    return means.drop(columns=["method", "k"]).sort_values("split", kind="stable")


def markdown(table: pd.DataFrame) -> str:
    """A Markdown table; numbers with three decimals."""

    def cell(value: object) -> str:
        if isinstance(value, float):
            return "" if math.isnan(value) else f"{value:.3f}"
        return str(value)

    lines = [list(map(str, table.columns)), ["---"] * len(table.columns)]
    lines += [[cell(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_report(folder: Path) -> str:
    """Write `tables.md` and the figures beside the rows; return the table over splits as text."""
    rows = read_rows(folder)
    simulated = " (SIMULATED data)" if rows.simulated.any() else ""
    parts = [f"# {rows.dataset.iloc[0]}, listeners held out{simulated}", NOTE]
    for conditions, chosen in _condition_groups(rows):
        parts.append(f"## {conditions}: {chosen.listener.nunique()} listeners, {len(chosen)} rows")
        parts.append(markdown(over_splits(chosen)))
        parts.append("NR / AMP in dB, split by split:")
        parts.append(markdown(per_split(chosen).reset_index()))
        parts.append("All figures, split by split:")
        parts.append(markdown(every_split(chosen)))
    text = "\n\n".join(parts) + "\n"
    (folder / TABLES_FILE).write_text(text)
    original = rows[rows.condition == "original"]
    plot_bands(original, folder / "noise_reduction_per_band.png")
    plot_prediction(original, folder / "predicted_against_scored.png")
    return text


def _condition_groups(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    original = rows.condition == "original"
    groups = [("Original measurements", rows[original]), ("Modified secondary paths", rows[~original])]
    return [(title, group) for title, group in groups if len(group)]


def plot_bands(rows: pd.DataFrame, file: Path) -> None:
    """NR per one-third octave of each design, mean over splits."""
    names = [f"band_{nominal_hz(n):g}_db" for n in SCORED_BANDS]
    means = split_means(rows, names).groupby(level=["method", "k"], sort=False).mean()
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    for key, bands in means.iterrows():
        label = design_name(*as_design(key))
        axes.semilogx([nominal_hz(n) for n in SCORED_BANDS], bands, label=label, lw=1.3)
    axes.axhline(0, color="0.6", lw=0.8)
    axes.axvspan(44.7, 5620, color="0.95", zorder=0)
    axes.set(xlabel="one-third octave (Hz)", ylabel="noise reduction (dB), positive is quieter")
    axes.set_title("Held-out listeners, mean over splits; shaded: the bands that NR counts")
    axes.legend(fontsize=7, ncols=2)
    figure.savefig(file, dpi=130)
    plt.close(figure)


def plot_prediction(rows: pd.DataFrame, file: Path) -> None:
    """The service's prediction against the score, an ear a dot."""
    figure, axes = plt.subplots(figsize=(5.5, 5), layout="constrained")
    for key, own in rows.groupby(["method", "k"], sort=False):
        label = design_name(*as_design(key))
        axes.plot(own.noise_reduction_db, own.predicted_noise_reduction_db, ".", ms=3, label=label)
    limits = axes.get_xlim()
    axes.plot(limits, limits, color="0.5", lw=0.8)
    axes.set(xlabel="scored NR (dB)", ylabel="predicted NR (dB)")
    axes.legend(fontsize=6)
    figure.savefig(file, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / CASES_FILE).is_file():
        sys.exit(f"usage: python -m training.report OUT, OUT a run's folder with a {CASES_FILE}")
    print(write_report(Path(sys.argv[1])))

"""Draw the figures of a run from its sections; a design has the same colour in all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from prime_anc.method.bands import nominal_hz
from training.rows import split_means
from training.scoring import SCORED_BANDS

# Okabe and Ito's palette without its yellow; a marker distinguishes methods of one colour.
STYLES = {
    "ratio_base_full_band": ("#E69F00", "v"), "ratio_base_held_band": ("#CC79A7", "^"), "fir_wiener": ("#009E73", "h"),
    "projected_ratio": ("#000000", "<"), "wmmse_shared": ("#56B4E9", "P"), "fomaml": ("#56B4E9", "X"),
    "e2e_cfg": ("#000000", "d"), "prime": ("#009E73", "o"), "prime-log": ("#D55E00", "D"), "wmmse": ("#0072B2", "s"),
    "iterative_fir": ("#000000", "*"), "weighted_fxlms": ("0.55", "1"),
}  # fmt: skip
OTHER = ("0.7", ".")
# Designs shown over frequency, the first seven that a section has.
MAIN = (
    "weighted_fxlms (true paths)", "prime-log", "prime", "wmmse", "ratio_base_full_band", "prime-log + GN(1)",
    "prime + GN(1)", "ratio_base_held_band", "wmmse + GN(3)", "e2e_cfg", "fomaml",
)  # fmt: skip
N_LINES = 7
DASHES = ("-", "--", ":", "-.")
TICKS_HZ = (31.5, 63, 125, 250, 500, 1000, 2000, 4000, 8000, 16_000)
# Column and centre (Hz) of the reduction per band.
BANDS = {f"band_{nominal_hz(n):g}_db": nominal_hz(n) for n in SCORED_BANDS}


def draw(sections: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Draw the figures of the sections by title: NR over frequency of all, NR over updates of the first.

    Parameters
    ----------
    sections
        Rows with `design`, as of `report.sections`.
    folder
        Where to write.
    """
    if not sections:
        return
    plot_bands(sections, folder / "noise_reduction_per_band.png")
    title, first = next(iter(sections.items()))
    if (first.k > 0).any():
        plot_starts(title, first, folder / "gauss_newton_starts.png")


def plot_bands(sections: Mapping[str, pd.DataFrame], file: Path) -> None:
    """Plot NR per one-third octave of the main designs, split SD shaded, a panel per section."""
    parts = {title: rows for title, rows in sections.items() if not title.startswith("mean")}
    figure, grid = plt.subplots(
        len(parts), figsize=(9, 1.5 + 4.1 * len(parts)), squeeze=False, layout="constrained", sharex=True
    )
    handles: dict[str, Any] = {}
    centres = list(BANDS.values())
    for axes, (title, rows) in zip(grid[:, 0], parts.items(), strict=True):
        splits = split_means(rows, list(BANDS)).groupby("design", observed=True)
        means, deviations = splits.mean(), splits.std().fillna(0)
        for design in [name for name in MAIN if name in means.index][:N_LINES] or means.index[:N_LINES]:
            line = rows[rows.design == design].iloc[0]
            colour, mean, deviation = STYLES.get(line.method, OTHER)[0], means.loc[design], deviations.loc[design]
            (handles[design],) = axes.plot(centres, mean, color=colour, ls=DASHES[min(line.k, 3)], lw=1.4)
            axes.fill_between(centres, mean - deviation, mean + deviation, color=colour, alpha=0.18, lw=0)
        axes.axvspan(44.7, 5620, color="0.95", zorder=0)
        axes.axhline(0, color="0.6", lw=0.8, zorder=1)
        axes.set(xscale="log", xlim=(20, 22400), xticks=TICKS_HZ)
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(FuncFormatter(lambda hz, _: f"{hz:g}" if hz < 1000 else f"{hz / 1000:g}k"))
        axes.set_title(f"Held-out listeners ({title})", fontsize=10)
        axes.set_ylabel("noise reduction (dB)\npositive is quieter")
    grid[-1, 0].set_xlabel("one-third octave (Hz); grey ground: the bands that NR counts")
    save(figure, handles, file)


def plot_starts(title: str, rows: pd.DataFrame, file: Path) -> None:
    """Plot NR against the number of Gauss-Newton updates, a line per start, a panel per profile."""
    keys = ["method", "profile", "k"]
    splits = split_means(rows, ["noise_reduction_db"], keys).noise_reduction_db.groupby(keys)
    means, deviations = splits.mean(), splits.std().fillna(0)
    profiles = sorted(set(rows.profile) - {""})
    figure, grid = plt.subplots(
        1, len(profiles), figsize=(1.5 + 4.4 * len(profiles), 5.6), squeeze=False, layout="constrained", sharey=True
    )
    handles: dict[str, Any] = {}
    for axes, profile in zip(grid[0], profiles, strict=True):
        methods = means.xs(profile, level="profile").index.unique("method")
        for method in [name for name in STYLES if name in methods] or methods:
            mean, deviation = (
                pd.concat([item.loc[method, ""], item.loc[method, profile]]) for item in (means, deviations)
            )
            colour, marker = STYLES.get(method, OTHER)
            (handles[method],) = axes.plot(mean.index, mean, marker=marker, color=colour, ms=5, lw=1.4)
            axes.fill_between(mean.index, mean - deviation, mean + deviation, color=colour, alpha=0.18, lw=0)
        axes.set(xlabel="Gauss-Newton updates K", title=f"profile {profile}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(color="0.92")
    grid[0, 0].set_ylabel("NR (dB), mean and SD over splits")
    figure.suptitle(f"Common starts ({title})", fontsize=10)
    save(figure, handles, file)


def save(figure: Figure, handles: dict[str, Any], file: Path) -> None:
    """Add a legend below all panels, write the figure and close it."""
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8)
    figure.savefig(file, dpi=130)
    plt.close(figure)

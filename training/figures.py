"""Draw the figures of a run from its sections; a method has the same colour in all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from prime_anc.method.bands import nominal_hz
from training.report import DESIGN, Section, as_design, in_order
from training.rows import PER_NOISE, DesignRow
from training.scoring import SCORED_BANDS

N_LINES = 7
# Designs shown over frequency, in order of priority.
MAIN = (
    DesignRow("prime-log"), DesignRow("prime"), DesignRow("wmmse"), DesignRow("ratio_base_full_band"),
    DesignRow("prime-log", 1, "fast"), DesignRow("prime", 1, "paper"), DesignRow("ratio_base_held_band"),
    DesignRow("wmmse", 3, "paper"), DesignRow("e2e_cfg"), DesignRow("fomaml"), DesignRow("iterative_fir"),
)  # fmt: skip

# Methods and profiles over core time, in order of priority.
TRAILS = (
    ("prime-log", "fast"), ("prime", "paper"), ("wmmse", "paper"), ("fir_wiener", "fast"), ("wmmse", "fast"),
    ("prime", "fast"), ("ratio_base_full_band", "paper"), ("iterative_fir", ""), ("fxnlms", ""),
    ("ratio_base_held_band", "fast"), ("e2e_cfg", ""), ("fomaml", ""), ("wmmse_fast", ""), ("wmmse_shared", ""),
    ("selective", ""), ("generative", ""), ("projected_ratio", ""), ("fxlms", ""),
)  # fmt: skip
N_TRAILS = 8

# Okabe and Ito's palette without its yellow; shape and line distinguish methods of one colour.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY = "0.55"
STYLES: dict[str, tuple[str, str]] = {
    "ratio_base_full_band": (ORANGE, "v"), "ratio_base_held_band": (PURPLE, "^"), "fir_wiener": (GREEN, "h"),
    "projected_ratio": (BLACK, "<"), "wmmse_shared": (SKY, "P"), "fomaml": (SKY, "X"), "selective": (ORANGE, "P"),
    "generative": (PURPLE, "X"), "e2e_cfg": (BLACK, "d"), "prime": (GREEN, "o"), "prime-log": (VERMILION, "D"),
    "wmmse": (BLUE, "s"), "wmmse_fast": (SKY, "s"), "iterative_fir": (BLACK, "*"), "fxlms": (GREY, "1"),
    "fxnlms": (GREY, "2"),
}  # fmt: skip
LINES = ("-", "--", ":", "-.")
# Column and centre (Hz) of the reduction per band.
BANDS = {f"band_{nominal_hz(n):g}_db": nominal_hz(n) for n in SCORED_BANDS}


def draw(found: Sequence[Section], per_noise: pd.DataFrame, folder: Path) -> None:
    """Draw the figures per window; those over updates and time use the largest group of conditions.

    Parameters
    ----------
    found
        Sections of a run.
    per_noise
        Rows of the method with a filter per noise, shown in grey over frequency.
    folder
        Where to write.
    """
    windows = sorted({section.window for section in found})
    for window in windows:
        window_sections = [section for section in found if section.window == window]
        apart = [section for section in window_sections if section.conditions != "all"]
        figures = {
            "noise_reduction_per_band": plot_bands(apart, per_noise),
            "gauss_newton_starts": plot_starts(window_sections[0]),
            "quality_against_core_time": plot_core_time(window_sections[0]),
        }
        suffix = f"_window{window}" if len(windows) > 1 else ""
        for name, figure in figures.items():
            if figure is not None:
                save(figure, folder / f"{name}{suffix}.png")


def plot_bands(groups: Sequence[Section], per_noise: pd.DataFrame) -> Figure:
    """Plot NR per one-third octave of the main designs, split SD shaded, a panel per group of conditions."""
    figure, grid = _panels(len(groups), 1)
    handles: dict[str, Any] = {}
    for axes, section in zip(grid[:, 0], groups, strict=True):
        means, deviations = section.means(list(BANDS))
        same = per_noise[per_noise.condition.isin(section.rows.condition.unique())]
        if len(same):
            reference = Section(section.window, section.conditions, same).means(list(BANDS))[0][
                DesignRow(PER_NOISE)
            ]
            (handles[f"{PER_NOISE} (true paths)"],) = axes.plot(BANDS.values(), reference, color=GREY, lw=2.5)
        for design in _chosen(section):
            mean, deviation = means[design], deviations[design].fillna(0)
            handles[section.name(design)] = _band_line(axes, design, mean)
            low, high, colour = mean - deviation, mean + deviation, style(design.method)[0]
            axes.fill_between(list(BANDS.values()), low, high, color=colour, alpha=0.18, lw=0)
        axes.set_title(section.title("Held-out listeners"), fontsize=10)
        axes.set_ylabel("noise reduction (dB)\npositive is quieter")
    grid[-1, 0].set_xlabel("one-third octave (Hz); grey ground: the bands that NR counts")
    return _with_legend(figure, handles)


def plot_starts(section: Section) -> Figure | None:
    """Plot NR against the number of Gauss-Newton updates, a line per start, a panel per profile."""
    profiles = sorted({design.profile for design in section.designs if design.k})
    if not profiles:
        return None
    means, deviations = section.means(["noise_reduction_db"])
    figure, grid = _panels(1, len(profiles))
    handles: dict[str, Any] = {}
    for axes, profile in zip(grid[0], profiles, strict=True):
        present = dict.fromkeys(design.method for design in section.designs if design.profile == profile)
        for method in [name for name in present if name in STYLES][:N_TRAILS] or list(present)[:N_TRAILS]:
            line = [d for d in section.designs if d.method == method and d.profile in ("", profile)]
            k = [design.k for design in line]
            mean = np.array([means[design].iloc[0] for design in line])
            deviation = np.nan_to_num([deviations[design].iloc[0] for design in line])
            colour, marker = style(method)
            (handles[method],) = axes.plot(k, mean, marker=marker, color=colour, ms=5, lw=1.4)
            axes.fill_between(k, mean - deviation, mean + deviation, color=colour, alpha=0.18, lw=0)
        axes.set(xlabel="Gauss-Newton updates K", title=f"profile {profile}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(color="0.92")
    grid[0, 0].set_ylabel("NR (dB), mean and SD over splits")
    figure.suptitle(section.title("Common starts"), fontsize=10)
    return _with_legend(figure, handles)


def plot_core_time(section: Section) -> Figure | None:
    """Plot NR against core time, with the updates of a method connected, a panel per device."""
    times = section.rows.dropna(subset=["core_ms"]).groupby(["device", *DESIGN]).core_ms.median()
    devices = sorted(times.index.unique("device"))
    if not devices:
        return None
    means, _ = section.means(["noise_reduction_db"])
    figure, grid = _panels(1, len(devices))
    handles: dict[str, Any] = {}
    for axes, device in zip(grid[0], devices, strict=True):
        core_ms = {as_design(key): value for key, value in times[device].items()}
        for line in trails(core_ms):
            handles |= _trail(axes, line, [(core_ms[design], means[design].iloc[0]) for design in line])
        axes.set(xlabel="core time (ms)", title=str(device))
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.grid(color="0.92")
    grid[0, 0].set_ylabel("NR (dB), mean over splits")
    figure.suptitle(section.title("Quality against core time; numbers: last K"), fontsize=10)
    return _with_legend(figure, handles)


def trails(designs: Iterable[DesignRow]) -> list[list[DesignRow]]:
    """Group designs of the methods in TRAILS by profile, from k = 0 upwards; N_TRAILS lines at most.

    The filter without updates begins both lines of its method, or is a line by itself.
    """
    ordered = in_order(designs)
    updated = {(design.method, design.profile) for design in ordered if design.k}
    single = {(d.method, "") for d in ordered if not {(d.method, "fast"), (d.method, "paper")} & updated}
    present = updated | single
    wanted = [trail for trail in TRAILS if trail in present or (trail[0], "") in single] or sorted(present)
    chosen = list(dict.fromkeys((method, "" if (method, "") in single else profile) for method, profile in wanted))
    lines = [
        [design for design in ordered if design.method == method and design.profile in ("", profile)]
        for method, profile in chosen[:N_TRAILS]
    ]
    return sorted(lines, key=lambda line: in_order([other[-1] for other in lines]).index(line[-1]))


def style(method: str) -> tuple[str, str]:
    """Return colour and marker of a method, those of its family by default."""
    if method in STYLES:
        return STYLES[method]
    family = next((name for name in ("prime-log", "prime", "wmmse") if method.startswith(name)), "")
    return (STYLES[family][0] if family else GREY), "."


def save(figure: Figure, file: Path) -> None:
    """Write a figure and close it."""
    figure.savefig(file, dpi=130)
    plt.close(figure)


def _chosen(section: Section) -> list[DesignRow]:
    present = section.designs
    return in_order([item for item in MAIN if item in present][:N_LINES] or list(present)[:N_LINES])


def _panels(n_rows: int, n_columns: int) -> tuple[Figure, Any]:
    size = (max(9, 1.5 + 4.4 * n_columns), 1.5 + 4.1 * n_rows)
    share = {"sharex": True} if n_rows > 1 else {"sharey": True}
    return plt.subplots(n_rows, n_columns, figsize=size, squeeze=False, layout="constrained", **share)  # type: ignore


def _with_legend(figure: Figure, handles: dict[str, Any]) -> Figure:
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8)
    return figure


def _band_line(axes: Axes, design: DesignRow, bands_db: pd.Series) -> Any:
    """Draw the reduction per one-third octave on a logarithmic axis, the bands of NR shaded."""
    dashes = LINES[min(design.k, len(LINES) - 1)]
    (line,) = axes.plot(list(BANDS.values()), bands_db, color=style(design.method)[0], ls=dashes, lw=1.4)
    axes.axvspan(44.7, 5620, color="0.95", zorder=0)
    axes.axhline(0, color="0.6", lw=0.8, zorder=1)
    axes.set(xscale="log", xlim=(20, 22400), xticks=[31.5, 63, 125, 250, 500, 1000, 2000, 4000, 8000, 16000])
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(FuncFormatter(lambda hz, _: f"{hz / 1000:g}k" if hz >= 1000 else f"{hz:g}"))
    return line


def _trail(axes: Axes, line: list[DesignRow], points: list[tuple[float, float]]) -> dict[str, Any]:
    """Draw one method's points joined, with the last K; return the legend's entry."""
    method, last = line[0].method, line[-1]
    colour, marker = style(method)
    dashes = "--" if last.profile == "paper" else "-"
    (handle,) = axes.plot(*zip(*points, strict=True), marker=marker, color=colour, ms=6, lw=1, ls=dashes)
    if last.k:
        axes.annotate(str(last.k), points[-1], (5, 3), textcoords="offset points", fontsize=8, color=colour)
    return {method + (f" + GN, {last.profile}" if last.k else ""): handle}

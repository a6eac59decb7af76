"""Figures of one window, drawn from rows; a method has the same colour in all figures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from synthesis.octave_bands import nominal_hz
from training.report.designs import Design, as_design, in_order, marked_name, on_true_paths
from training.report.rows import Section, mean_and_deviation
from training.scoring import SCORED_BANDS

N_LINES = 7
"""Largest number of lines in one plot; a grey reference may be the eighth."""

MAIN = (
    Design("prime-log"),
    Design("prime"),
    Design("wmmse"),
    Design("ratio_base_full_band"),
    Design("prime-log", 1, "fast"),
    Design("prime", 1, "paper"),
    Design("ratio_base_held_band"),
    Design("wmmse", 3, "paper"),
    Design("e2e_cfg"),
    Design("fomaml"),
    Design("iterative_fir"),
)
"""Designs to show in a figure, in order of priority."""

TRAILS = (
    ("prime-log", "fast"),
    ("prime", "paper"),
    ("wmmse", "paper"),
    ("fir_wiener", "fast"),
    ("wmmse", "fast"),
    ("prime", "fast"),
    ("ratio_base_full_band", "paper"),
    ("iterative_fir", ""),
    ("fxnlms", ""),
    ("ratio_base_held_band", "fast"),
    ("e2e_cfg", ""),
    ("fomaml", ""),
    ("wmmse_fast", ""),
    ("wmmse_shared", ""),
    ("selective", ""),
    ("generative", ""),
    ("projected_ratio", ""),
    ("fxlms", ""),
)
"""Methods and profiles to show in a figure of quality against cost, in order of priority."""

N_TRAILS = 8

# Okabe and Ito's palette, without its yellow; shape and line tell methods of one colour apart.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
GREY = "0.55"
STYLES: dict[str, tuple[str, str]] = {
    "ratio_base_full_band": (ORANGE, "v"),
    "ratio_base_held_band": (PURPLE, "^"),
    "fir_wiener": (GREEN, "h"),
    "projected_ratio": (BLACK, "<"),
    "wmmse_shared": (SKY, "P"),
    "fomaml": (SKY, "X"),
    "selective": (ORANGE, "P"),
    "generative": (PURPLE, "X"),
    "e2e_cfg": (BLACK, "d"),
    "prime": (GREEN, "o"),
    "prime-log": (VERMILION, "D"),
    "wmmse": (BLUE, "s"),
    "wmmse_fast": (SKY, "s"),
    "iterative_fir": (BLACK, "*"),
    "fxlms": (GREY, "1"),
    "fxnlms": (GREY, "2"),
}
LINES = ("-", "--", ":", "-.")


def style(method: str) -> tuple[str, str]:
    """Colour and marker of a method; a method without its own has the colour of its family."""
    if method in STYLES:
        return STYLES[method]
    family = next((name for name in ("prime-log", "prime", "wmmse") if method.startswith(name)), "")
    return (STYLES[family][0] if family else GREY), "."


def line_style(design: Design) -> str:
    """Solid at k = 0, then dashed, dotted, dash-dotted."""
    return LINES[min(design.k, len(LINES) - 1)]


def chosen(present: Collection[Design]) -> list[Design]:
    """At most N_LINES of the main designs that are present, in the tables' order."""
    return in_order([design for design in MAIN if design in present][:N_LINES] or list(present)[:N_LINES])


def save(figure: Figure, file: Path) -> None:
    """Write a figure and close it."""
    figure.savefig(file, dpi=130)
    plt.close(figure)


def octave_axis(axes: Axes) -> None:
    """A logarithmic frequency axis with labels as in the tables."""
    axes.set_xscale("log")
    axes.set_xlim(20, 22400)
    axes.set_xticks([31.5, 63, 125, 250, 500, 1000, 2000, 4000, 8000, 16000])
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(FuncFormatter(lambda hz, _: f"{hz / 1000:g}k" if hz >= 1000 else f"{hz:g}"))


def plain_log_axis(axes: Axes) -> None:
    """A logarithmic axis with plain numbers: 1, 2, 5, 10 over few decades, else powers of ten only."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1000 * low else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def shade_counted_bands(axes: Axes) -> None:
    """Shade the bands that NR is averaged over."""
    axes.axvspan(44.7, 5620, color="0.95", zorder=0)
    axes.axhline(0, color="0.6", lw=0.8, zorder=1)


def band_columns() -> list[str]:
    """Columns of the reduction per band."""
    return [f"band_{nominal_hz(n):g}_db" for n in SCORED_BANDS]


def plot_bands(groups: Sequence[Section], weighted: pd.DataFrame | None, file: Path) -> None:
    """NR per one-third octave of the main designs, split SD shaded, a panel per group of conditions."""
    figure, grid = plt.subplots(
        len(groups), 1, figsize=(9, 0.9 + 4.1 * len(groups)), squeeze=False, sharex=True, layout="constrained"
    )
    frequencies = [nominal_hz(n) for n in SCORED_BANDS]
    names = band_columns()
    handles: dict[str, Any] = {}
    for axes, section in zip(grid[:, 0], groups, strict=True):
        means, deviations = mean_and_deviation(section.rows, names)
        shade_counted_bands(axes)
        if weighted is not None:
            same = weighted.condition.isin(section.rows.condition.unique())
            if same.any():
                reference = mean_and_deviation(weighted[same], names)[0][Design("weighted_fxlms")]
                (handle,) = axes.plot(frequencies, reference, color=GREY, lw=2.5)
                handles["weighted_fxlms (true paths)"] = handle
        for design in chosen(section.designs):
            mean, deviation = means[design], deviations[design].fillna(0)
            colour, _ = style(design.method)
            label = marked_name(design, section.designs[design])
            (handles[label],) = axes.plot(frequencies, mean, color=colour, ls=line_style(design), lw=1.5)
            axes.fill_between(frequencies, mean - deviation, mean + deviation, color=colour, alpha=0.18, lw=0)
        axes.set_title(section.title("Held-out listeners"), fontsize=10)
        axes.set_ylabel("noise reduction (dB)\npositive is quieter")
        octave_axis(axes)
    grid[-1, 0].set_xlabel("one-third octave (Hz); grey ground: the bands that NR counts")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8)
    save(figure, file)


def plot_prediction(section: Section, file: Path) -> None:
    """Predicted against scored NR, one dot per ear; with and without a coherence."""
    panels = {
        "predicted_noise_reduction_db": "with the calibration's coherence",
        "predicted_blind_noise_reduction_db": "without a coherence",
    }
    shown = {column: title for column, title in panels.items() if section.rows[column].notna().any()}
    shown = shown or {"predicted_noise_reduction_db": "no predictions in these rows"}
    figure, grid = plt.subplots(
        len(shown), 1, figsize=(9, 1.2 + 3.4 * len(shown)), squeeze=False, sharex=True, layout="constrained"
    )
    handles: dict[str, Any] = {}
    for axes, (column, title) in zip(grid[:, 0], shown.items(), strict=True):
        axes.axhline(0, color="0.4", lw=0.8, zorder=1)
        axes.grid(color="0.92")
        for design in chosen(section.designs):
            own = section.designs[design].dropna(subset=[column])
            if own.empty:
                continue
            colour, marker = style(design.method)
            look: dict[str, Any] = {"mfc": colour if design.k == 0 else "none", "mec": colour, "mew": 0.7}
            (handles[marked_name(design, own)],) = axes.plot(
                own.noise_reduction_db, own[column] - own.noise_reduction_db, marker, ms=4, **look
            )
        axes.set(ylabel="predicted - scored NR (dB)", title=title)
    grid[-1, 0].set_xlabel("scored NR (dB)")
    figure.suptitle(section.title("Prediction against score, an ear a dot"), fontsize=10)
    if handles:
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8)
    save(figure, file)


def plot_starts(section: Section, file: Path) -> None:
    """NR against the number of Gauss-Newton updates, one line per starting method, one panel per profile."""
    profiles = sorted({design.profile for design in section.designs if design.k})
    if not profiles:
        return
    means, deviations = mean_and_deviation(section.rows, ["noise_reduction_db"])
    figure, grid = _panels(len(profiles))
    handles: dict[str, Any] = {}
    for axes, profile in zip(grid[0], profiles, strict=True):
        methods = {design.method for design in section.designs if design.profile == profile}
        for method in _shown_starts(methods):
            line = [d for d in section.designs if d.method == method and d.profile in ("", profile)]
            mean = np.array([means[design].iloc[0] for design in line])
            deviation = np.nan_to_num([deviations[design].iloc[0] for design in line])
            colour, marker = style(method)
            k = [design.k for design in line]
            (handles[method],) = axes.plot(k, mean, marker=marker, color=colour, ms=5, lw=1.4)
            axes.fill_between(k, mean - deviation, mean + deviation, color=colour, alpha=0.18, lw=0)
        axes.set(xlabel="Gauss-Newton updates K", title=f"profile {profile}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(color="0.92")
    grid[0, 0].set_ylabel("NR (dB), mean and SD over splits")
    figure.suptitle(section.title("Common starts"), fontsize=10)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8)
    save(figure, file)


def _panels(n: int) -> tuple[Figure, np.ndarray]:
    """A row of panels that share their vertical axis."""
    size = (max(9, 1.5 + 4.4 * n), 5.6)
    return plt.subplots(1, n, figsize=size, squeeze=False, sharey=True, layout="constrained")


def _shown_starts(methods: Iterable[str]) -> list[str]:
    """At most 8 methods, preferably those with their own style, in the tables' order."""
    ordered = [design.method for design in in_order(Design(method) for method in methods)]
    return sorted(sorted(ordered, key=lambda m: m not in STYLES)[:8], key=ordered.index)


def plot_core_time(section: Section, times: pd.DataFrame, file: Path) -> None:
    """NR against core time, with the updates of a method connected, one panel per device."""
    means, _ = mean_and_deviation(section.rows, ["noise_reduction_db"])
    timed = times[["method", "k", "profile"]].itertuples(index=False, name=None)
    known = times[[Design(*key) in means for key in timed]]
    devices = sorted(known.device.unique())
    if not devices:
        return
    figure, grid = _panels(len(devices))
    handles: dict[str, Any] = {}
    for axes, device in zip(grid[0], devices, strict=True):
        own = known[known.device == device]
        core_ms = {as_design(key): ms for key, ms in own.set_index(["method", "k", "profile"]).core_ms.items()}
        for line in trails(core_ms):
            points = [(core_ms[design], means[design].iloc[0]) for design in line]
            handles |= draw_trail(axes, line, points)
        axes.set(xlabel="core time (ms)", title=str(device))
        plain_log_axis(axes)
        axes.grid(color="0.92")
    grid[0, 0].set_ylabel("NR (dB), mean over splits")
    figure.suptitle(section.title("Quality against core time; numbers: last K"), fontsize=10)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, fontsize=8)
    save(figure, file)


def plot_pareto(section: Section, file: Path) -> None:
    """NR against AMP and against control RMS, updates of a method joined, the Pareto front in grey."""
    panels = {"amplification_db": "AMP (dB), 50 Hz-8 kHz", "control_rms": "control RMS (reference: 0.05)"}
    means, _ = mean_and_deviation(section.rows, ["noise_reduction_db", *panels])
    least = {"amplification_db": LEAST_AMP_DB, "control_rms": 0.0}
    fair = [design for design, own in section.designs.items() if not on_true_paths(design, own)]
    lines = trails(section.designs)
    figure, grid = plt.subplots(1, 2, figsize=(11, 6), sharey=True, layout="constrained")
    handles: dict[str, Any] = {}
    for axes, (column, title) in zip(grid, panels.items(), strict=True):
        points = {d: (max(mean[column], least[column]), mean["noise_reduction_db"]) for d, mean in means.items()}
        front = pareto_front([points[design] for design in fair])
        axes.step(*zip(*front, strict=True), where="post", color="0.8", lw=4, zorder=0)
        for line in lines:
            handles |= draw_trail(axes, line, [points[design] for design in line], true_paths=line[0] not in fair)
        axes.set_xlabel(title)
        axes.grid(color="0.92")
    plain_log_axis(grid[0])
    grid[0].set_ylabel("NR (dB), mean over splits")
    figure.suptitle(section.title("Numbers: last K; grey: front of all designs without true paths"), fontsize=10)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8)
    save(figure, file)


LEAST_AMP_DB = 1e-3
"""What a logarithmic axis shows in place of less."""


def pareto_front(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The (cost, gain) points that no other point beats in both, by rising cost."""
    front: list[tuple[float, float]] = []
    for cost, gain in sorted(points, key=lambda point: (point[0], -point[1])):
        if not front or gain > front[-1][1]:
            front.append((cost, gain))
    return front


def trails(designs: Iterable[Design]) -> list[list[Design]]:
    """The most wanted methods' designs, each from k = 0 upwards in one profile; N_TRAILS lines at most.

    A method's own filter begins both of its lines; it is a line by itself where no updates were made.
    """
    ordered = in_order(designs)
    updated = {(design.method, design.profile) for design in ordered if design.k}
    plain = [design.method for design in ordered if not design.k]
    single = {(method, "") for method in plain if not {(method, "fast"), (method, "paper")} & updated}
    present = updated | single
    wanted = [each for each in TRAILS if each in present or (each[0], "") in single] or sorted(present)
    chosen = list(dict.fromkeys((method, "" if (method, "") in single else profile) for method, profile in wanted))
    lines = [
        [design for design in ordered if design.method == method and design.profile in ("", profile)]
        for method, profile in chosen[:N_TRAILS]
    ]
    return sorted(lines, key=lambda line: in_order([other[-1] for other in lines]).index(line[-1]))


def draw_trail(
    axes: Axes, line: list[Design], points: list[tuple[float, float]], *, true_paths: bool = False
) -> dict[str, Any]:
    """One method's points joined, the last one's K beside it; returns the legend's entry."""
    method, last = line[0].method, line[-1]
    colour, marker = style(method)
    dashes = "--" if last.profile == "paper" else "-"
    (handle,) = axes.plot(*zip(*points, strict=True), marker=marker, color=colour, ms=6, lw=1, ls=dashes)
    if last.k:
        axes.annotate(str(last.k), points[-1], (5, 3), textcoords="offset points", fontsize=8, color=colour)
    label = method + (f" + GN, {last.profile}" if last.k else "") + (" (true paths)" if true_paths else "")
    return {label: handle}

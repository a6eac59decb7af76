"""Pictures of the study, from its rows alone."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas as pd

from training.calibration_study.settings import ALL_PROBES, GROUPS, REGULARISATIONS, WINDOWS, Setting, setting_label
from training.calibration_study.tables import PAPER_FIGURES, PAPER_ORIGINAL_BASE, design_title, paper_distance

mpl.use("Agg")
import matplotlib.pyplot as plt

SHOWN = (
    ("ratio_base_full_band", 0),
    ("ratio_base_held_band", 0),
    ("projected_ratio", 0),
    ("wmmse", 0),
    ("wmmse", 3),
    ("prime", 0),
    ("prime-log", 0),
    ("prime-log", 1),
    ("prime-log_minimum_phase", 0),
    ("prime-log_minimum_phase", 1),
)


def plot_paper(rows: pd.DataFrame, file: Path) -> None:
    """NR of the paper's three untrained methods over the regularisation, a line a window, and the paper's."""
    figures = {**PAPER_FIGURES, "ratio_base_full_band": PAPER_ORIGINAL_BASE}
    found = paper_distance(rows[rows.condition == "original"], figures)
    figure, panels = plt.subplots(1, len(figures), figsize=(11, 3.8), layout="constrained")
    for axes, (method, aim) in zip(panels, figures.items(), strict=True):
        for window in WINDOWS:
            names = {r: Setting(window, r).name for r in REGULARISATIONS}
            points = {r: found.loc[name, method] for r, name in names.items() if name in found.index}
            axes.semilogx(list(points), list(points.values()), "o-", ms=3, label=str(window))
        axes.axhline(aim, color="k", ls="--", lw=0.8)
        axes.set(title=f"{method.replace('_', ' ')} (paper {aim:g})", xlabel="regularisation")
    panels[0].set_ylabel("NR on originals (dB)")
    panels[0].legend(title="window", fontsize=7)
    figure.savefig(file, dpi=130)
    plt.close(figure)


def plot_sensitivity(means: pd.DataFrame, file: Path) -> None:
    """NR of the methods along each group of settings; a gap where the window changes."""
    groups = {title: group for title, group in GROUPS.items() if title != "Regularisation, window 4096"}
    figure, panels = plt.subplots(2, 3, figsize=(13, 8), layout="constrained")
    for axes, (title, group) in zip(panels.flat, groups.items(), strict=False):
        settings = [each for each in group if each.name in set(means.setting)]
        blocks = [settings] if title == "Window" else _blocks(settings)
        for number, (method, k) in enumerate(SHOWN):
            own = means[(means.method == method) & (means.k == k) & (means.profile != "paper")]
            values = own.set_index("setting").noise_reduction_db
            place = 0
            for block in blocks if len(own) else ():
                places, place = range(place, place + len(block)), place + len(block)
                label = design_title(method, k, "fast") if block is blocks[0] else None
                block_values = values.reindex([each.name for each in block])
                axes.plot(places, block_values, "o-", ms=3, lw=1.2, color=f"C{number}", label=label)
        axes.set(title=title, xticks=range(len(settings)), ylabel="NR (dB)")
        axes.set_xticklabels([_tick(each, title) for each in settings], rotation=60, ha="right", fontsize=7)
    handles, names = panels.flat[0].get_legend_handles_labels()
    panels.flat[-1].axis("off")
    panels.flat[-1].legend(handles, names, loc="center")
    figure.savefig(file, dpi=130)
    plt.close(figure)


def _blocks(settings: list[Setting]) -> list[list[Setting]]:
    """Settings of one window after those of another."""
    windows = dict.fromkeys(each.window for each in settings)
    return [[each for each in settings if each.window == window] for window in windows]


def _tick(setting: Setting, title: str) -> str:
    """What sets a setting apart from its neighbours in a group."""
    if title.startswith("Regularisation"):
        return f"{setting.regularisation:.0e}"
    if title == "Probe noises":
        return "all" if setting.probes == ALL_PROBES else " ".join(map(str, setting.probes))
    if title == "Probe noises of another kind":
        return f"{setting.window}, {setting.probe_noise}"
    if title == "Measurement noise":
        return f"{setting.window}, " + ("none" if setting.snr_db is None else f"{setting.snr_db:g} dB")
    return str(setting.window)


def plot_generators(over: pd.DataFrame, file: Path) -> None:
    """The change of NR over WMMSE from the standard setting at k = 0: a panel a generator, a bar a setting."""
    means = over[over.k == 0].groupby(["method", "setting"], sort=False).change.mean()
    settings = list(dict.fromkeys(each for group in GROUPS.values() for each in group))
    settings = [each for each in settings if each.name in set(over.setting)]
    methods = list(dict.fromkeys(over.method))
    figure, panels = plt.subplots(
        1,
        len(methods),
        figsize=(2 + 4 * len(methods), 0.21 * len(settings) + 1.2),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for axes, method in zip(panels[0], methods, strict=True):
        axes.barh(range(len(settings)), means[method].reindex([each.name for each in settings]), 0.7)
        axes.axvline(-0.3, color="k", ls="--", lw=0.8)
        axes.axvline(0, color="k", lw=0.8)
        axes.set(title=method.replace("_", " "), yticks=range(len(settings)), ylim=(len(settings) - 0.4, -0.6))
        axes.set_yticklabels([setting_label(each) for each in settings], fontsize=7)
    figure.supxlabel("change of NR(k = 0) - NR(WMMSE) from the model's own standard setting (dB)", fontsize=9)
    figure.savefig(file, dpi=130)
    plt.close(figure)

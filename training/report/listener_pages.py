"""A page for each listener: the measured paths, the filters designed for them, and their noise reduction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from numpy.typing import NDArray

from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from synthesis.octave_bands import nominal_hz
from training.report.designs import Design, by_design, design_name, in_order
from training.report.figures import (
    N_LINES,
    band_columns,
    chosen,
    line_style,
    octave_axis,
    save,
    shade_counted_bands,
    style,
)
from training.report.inputs import EarPaths, Listeners
from training.report.rows import Section, mean_and_deviation
from training.scoring import SCORED_BANDS

SHOWN_TAPS_MS = 3.0


def draw_pages(section: Section, listeners: Listeners, folder: Path) -> None:
    """One PNG for each listener of `paths.npz`, named for the listener."""
    folder.mkdir(exist_ok=True)
    for listener, ears in listeners.items():
        draw_page(section, listener, ears, folder / f"{listener}.png")


def draw_page(section: Section, listener: str, ears: dict[str, EarPaths], file: Path) -> None:
    """|P| and |S|, |W|, taps, and NR per band where the listener was held out; ears side by side, axes shared."""
    figure, grid = plt.subplots(
        4, len(ears), figsize=(1 + 5.5 * len(ears), 13), squeeze=False, sharey="row", layout="constrained"
    )
    handles: dict[str, Any] = {}
    own = section.rows[section.rows.listener == listener]
    for column, (ear, paths) in zip(grid.T, ears.items(), strict=True):
        column[0].set_title(f"{ear} ear", fontsize=11)
        draw_paths(column[0], paths)
        for design in in_order(paths.taps)[:N_LINES]:
            handles |= draw_filter(column[1], column[2], design, paths.taps[design])
        scored = own[own.ear == ear]
        if scored.empty:
            column[3].text(0.5, 0.5, "held out in no split", transform=column[3].transAxes, ha="center")
        else:
            means, _ = mean_and_deviation(scored, band_columns())
            for design in [d for d in in_order(paths.taps)[:N_LINES] if d in means] or chosen(by_design(scored)):
                handles |= draw_bands(column[3], design, means[design].to_numpy())
        shade_counted_bands(column[3])
        column[1].set_xlabel("frequency (Hz)")
        column[2].set(xlabel="time (ms)", xlim=(0, SHOWN_TAPS_MS))
        column[3].set_xlabel("one-third octave (Hz)")
        for axes in (column[0], column[1], column[3]):
            octave_axis(axes)
    names = (
        "true paths (dB), 1/24 octave",
        "control filter |W| (dB), 1/24 octave",
        f"taps, first {SHOWN_TAPS_MS:g} ms",
        "noise reduction (dB)",
    )
    for axes, name in zip(grid[:, 0], names, strict=True):
        axes.set_ylabel(name)
    fits = ", ".join(sorted(own.fit.unique())) or "unknown"
    figure.suptitle(section.title(f"{listener}, fit {fits}, {own['split'].nunique()} splits held out"), fontsize=11)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8)
    save(figure, file)


def smoothed_level_db(response: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Frequencies in Hz and level in dB of an impulse response, its power averaged over 1/24 octave.

    Without averaging, the spectrum of a measured path is unreadable above 2 kHz.
    """
    power = np.abs(np.fft.rfft(response.astype(np.float64), DESIGN_N_FFT)) ** 2
    spacing_hz = SAMPLE_RATE_HZ / DESIGN_N_FFT
    centre_hz = 20 * 2 ** (np.arange(0, 242) / 24)
    low = np.floor(centre_hz * 2 ** (-1 / 48) / spacing_hz).astype(int)
    high = np.maximum(np.ceil(centre_hz * 2 ** (1 / 48) / spacing_hz).astype(int), low + 1)
    total = np.concatenate([[0.0], np.cumsum(power)])
    mean = (total[high] - total[low]) / (high - low)
    return centre_hz, 10 * np.log10(np.maximum(mean, 1e-24))


def draw_paths(axes: Axes, paths: EarPaths) -> None:
    """Magnitudes of both paths, with a legend."""
    for name, response, look in (("|P|", paths.primary, "k-"), ("|S|", paths.secondary, "k:")):
        if response is not None:
            frequency, level = smoothed_level_db(response)
            axes.plot(frequency, level, look, lw=1.2, label=name)
    axes.legend(loc="lower center", fontsize=8)


def draw_filter(magnitude: Axes, time: Axes, design: Design, taps: NDArray[np.floating]) -> dict[str, Any]:
    """|W| and the first taps of one design."""
    colour, _ = style(design.method)
    look: dict[str, Any] = {"color": colour, "ls": line_style(design), "lw": 1.2}
    (handle,) = magnitude.plot(*smoothed_level_db(taps), **look)
    n_shown = int(SHOWN_TAPS_MS * SAMPLE_RATE_HZ / 1000)
    time.plot(np.arange(n_shown) / SAMPLE_RATE_HZ * 1000, taps[:n_shown], **look)
    return {design_name(*design): handle}


def draw_bands(axes: Axes, design: Design, bands_db: NDArray[np.floating]) -> dict[str, Any]:
    """Reduction per one-third octave of one design."""
    colour, _ = style(design.method)
    frequencies = [nominal_hz(n) for n in SCORED_BANDS]
    (handle,) = axes.plot(frequencies, bands_db, color=colour, ls=line_style(design), lw=1.4)
    return {design_name(*design): handle}

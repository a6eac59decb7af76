"""Plots of answers, with matplotlib (of the extra `training`, or `pip install matplotlib`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.conventions import SAMPLE_RATE_HZ

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TICKS_HZ = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000)


def bands(curves: Mapping[str, NDArray[np.floating]], centre_hz: Sequence[float], axes: Axes | None = None) -> Axes:
    """Draw the noise reduction per one-third octave, dB; [n_bands] by label."""
    axes = _axes(axes)
    for label, values in curves.items():
        axes.semilogx(centre_hz, values, marker="o", label=label)
    axes.axhline(0, color="grey", linewidth=0.5)
    return _named(axes, "noise reduction, dB")


def responses(paths: Mapping[str, NDArray[np.floating]], axes: Axes | None = None) -> Axes:
    """Draw the magnitude of impulse responses at 48 kHz, dB; [n] by label."""
    axes = _axes(axes)
    for label, response in paths.items():
        spectrum = np.abs(np.fft.rfft(response))[1:]
        hz = np.arange(1, len(spectrum) + 1) * (SAMPLE_RATE_HZ / len(response))
        axes.semilogx(hz, 20 * np.log10(np.maximum(spectrum, 1e-10)), label=label)
    axes.set_ylim(bottom=max(axes.get_ylim()[0], axes.get_ylim()[1] - 80))
    return _named(axes, "level, dB")


def _axes(axes: Axes | None) -> Axes:
    if axes is not None:
        return axes
    from matplotlib import pyplot

    return pyplot.figure().add_subplot()


def _named(axes: Axes, quantity: str) -> Axes:
    """Name both axes, and label frequencies as bands are."""
    axes.set(xlabel="frequency, Hz", ylabel=quantity, xlim=(20, 20_000))
    axes.set_xticks(TICKS_HZ, [f"{hz:g}" if hz < 1000 else f"{hz / 1000:g} k" for hz in TICKS_HZ])
    axes.minorticks_off()
    axes.legend()
    return axes

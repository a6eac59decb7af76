"""A ceiling on |W|: a number for all frequencies, or a curve over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from synthesis.conventions import SAMPLE_RATE_HZ
from synthesis.errors import InvalidOption

MAX_POINTS = 1024

# Tolerance of a ceiling at bins of the design grid. Between two bins |W| is at most 0.04 dB above the larger of both
# (Ehlich & Zeller 1964).
TOLERANCE_DB = 0.02


@dataclass(frozen=True)
class GainCurve:
    """Largest |W| over frequency: linear in log frequency between its points, held beyond its ends."""

    # Above 0, rising.
    frequency_hz: Sequence[float]
    # Equally many values.
    gain_db: Sequence[float]

    def __post_init__(self) -> None:
        """Raise InvalidOption for an invalid curve."""
        f, g = np.asarray(self.frequency_hz, float), np.asarray(self.gain_db, float)
        if f.ndim != 1 or g.ndim != 1 or not 1 <= len(f) <= MAX_POINTS or len(f) != len(g):
            raise InvalidOption(
                f"max_gain_db: a curve of {f.size} frequencies and {g.size} gains; send 1 to {MAX_POINTS} of each, "
                "as many gains as frequencies",
                "max_gain_db",
            )
        if not (np.isfinite(f).all() and np.isfinite(g).all()):
            raise InvalidOption(
                "max_gain_db: a number of the curve is NaN or infinite; send finite numbers", "max_gain_db"
            )
        if not (f[0] > 0 and (np.diff(f) > 0).all()):
            raise InvalidOption(
                "max_gain_db: the curve's frequencies must be above 0 Hz and rise; sort them and send each once",
                "max_gain_db",
            )

    def least_db(self, n_fft: int) -> NDArray[np.float64]:
        """Return the lowest value within half a bin of the bins of an n_fft-point grid: [n_fft // 2 + 1]."""
        points_hz, gain_db = np.asarray(self.frequency_hz, float), np.asarray(self.gain_db, float)
        spacing_hz = SAMPLE_RATE_HZ / n_fft
        n_bins = n_fft // 2 + 1
        edges_hz = np.maximum((np.arange(n_bins + 1) - 0.5) * spacing_hz, points_hz[0])
        at_edges = np.interp(np.log(edges_hz), np.log(points_hz), gain_db)
        found = np.minimum(at_edges[:-1], at_edges[1:])
        # Between two points the curve is monotone, so that what is lowest within a bin is at its edges or a point.
        inside = points_hz <= SAMPLE_RATE_HZ / 2
        np.minimum.at(found, np.rint(points_hz[inside] / spacing_hz).astype(int), gain_db[inside])
        return found


def ceiling_at(max_gain_db: float | GainCurve, frequency_hz: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the largest |W|, linear, at frequencies: same shape. 0 Hz counts as the curve's first point."""
    if not isinstance(max_gain_db, GainCurve):
        return np.full(np.shape(frequency_hz), 10 ** (max_gain_db / 20))
    points_hz = np.asarray(max_gain_db.frequency_hz, float)
    at = np.log(np.maximum(frequency_hz, points_hz[0]))
    gain: NDArray[np.float64] = 10 ** (np.interp(at, np.log(points_hz), max_gain_db.gain_db) / 20)
    return gain


def ceiling_db(max_gain_db: float | GainCurve, n_fft: int) -> NDArray[np.float64]:
    """Return the ceiling on the bins of an n_fft-point grid: [n_fft // 2 + 1]."""
    if isinstance(max_gain_db, GainCurve):
        return max_gain_db.least_db(n_fft)
    return np.full(n_fft // 2 + 1, float(max_gain_db))


def lowest_db(max_gain_db: float | GainCurve) -> float:
    """The ceiling where it is lowest."""
    return float(min(max_gain_db.gain_db)) if isinstance(max_gain_db, GainCurve) else float(max_gain_db)


def highest_db(max_gain_db: float | GainCurve) -> float:
    """The ceiling where it is highest."""
    return float(max(max_gain_db.gain_db)) if isinstance(max_gain_db, GainCurve) else float(max_gain_db)


def excess_db(taps: NDArray[np.floating], limit_db: NDArray[np.float64]) -> float:
    """The most by which |W| exceeds a ceiling, on the ceiling's grid; negative where it stays below everywhere."""
    response = np.abs(np.fft.rfft(taps, 2 * (len(limit_db) - 1)))
    return float((20 * np.log10(np.maximum(response, 1e-30)) - limit_db).max())

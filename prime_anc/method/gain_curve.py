"""A ceiling on |W|: a number for all frequencies, or a curve over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.curve import Curve

# Tolerance of a ceiling at bins of the design grid. Between two bins |W| is at most 0.04 dB above the larger of both
# (Ehlich & Zeller 1964).
TOLERANCE_DB = 0.02


@dataclass(frozen=True)
class GainCurve(Curve):
    """Largest |W| over frequency."""

    OPTION: ClassVar[str] = "max_gain_db"
    VALUES: ClassVar[str] = "gain_db"
    UNIT: ClassVar[str] = "dB"

    gain_db: Sequence[float]

    def least_db(self, n_fft: int) -> NDArray[np.float64]:
        """Return the lowest value within half a bin of the bins of an n_fft-point grid: [n_fft // 2 + 1]."""
        points_hz = np.asarray(self.frequency_hz, float)
        spacing_hz = SAMPLE_RATE_HZ / n_fft
        n_bins = n_fft // 2 + 1
        at_edges = self.at((np.arange(n_bins + 1) - 0.5) * spacing_hz)
        found = np.minimum(at_edges[:-1], at_edges[1:])
        # Between two points the curve is monotone, so that what is lowest within a bin is at its edges or a point.
        inside = points_hz <= SAMPLE_RATE_HZ / 2
        np.minimum.at(found, np.rint(points_hz[inside] / spacing_hz).astype(int), self.points[inside])
        return found


def ceiling_at(max_gain_db: float | GainCurve, frequency_hz: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return the largest |W|, linear, at frequencies: same shape. 0 Hz counts as the curve's first point."""
    if not isinstance(max_gain_db, GainCurve):
        return np.full(np.shape(frequency_hz), 10 ** (max_gain_db / 20))
    gain: NDArray[np.float64] = 10 ** (max_gain_db.at(frequency_hz) / 20)
    return gain

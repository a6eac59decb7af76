"""The frequencies, equally spaced in log f, on which `prime-log` looks at the paths."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from synthesis.conventions import SAMPLE_RATE_HZ

Float64 = NDArray[np.float64]


class LogGrid(NamedTuple):
    """Points in log f, and the ways between them and the bins of a Fourier grid."""

    # [n_points], Hz.
    points_hz: Float64
    # Weight of each bin in each point's mean, [n_points, n_bins].
    pooling: Float64
    # Of each bin: the point below it, and the fraction of the way to the next, [n_bins].
    lower: NDArray[np.intp]
    fraction: Float64

    def spread(self, values: Float64) -> Float64:
        """Interpolate linearly in log f, constant beyond both ends: [..., n_points] -> [..., n_bins]."""
        below, above = values[..., self.lower], values[..., self.lower + 1]
        return below + self.fraction * (above - below)


@cache
def log_grid(n_fft: int, n: int, low_hz: float, high_hz: float) -> LogGrid:
    """Lay out n points from low_hz to high_hz over the bins of an n_fft-point transform; callers share the result.

    Acoustic paths and the scored bands have about as much detail in every octave, but a linear grid has half of its
    bins in the topmost one.
    """
    frequency = np.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE_HZ)
    step = np.log(high_hz / low_hz) / (n - 1)
    inside = np.clip(np.log(np.maximum(frequency, frequency[1] / 2) / low_hz) / step, 0, n - 1)
    lower = np.minimum(np.floor(inside), n - 2)
    points = low_hz * np.exp(step * np.arange(n))
    # A hat of one point's half-width on either side; where that is narrower than the bin spacing (below about 27 Hz)
    # it may meet no bin, so it is never narrower than the bins are apart.
    half_width = np.maximum(points * np.expm1(step), frequency[1])
    hats = np.maximum(1 - np.abs(frequency - points[:, None]) / half_width[:, None], 0)
    return LogGrid(points, hats / hats.sum(1, keepdims=True), lower.astype(np.intp), inside - lower)

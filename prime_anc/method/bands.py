"""One-third-octave bands of IEC 61260-1, base 10, and grids: Fourier bins, coarser ones, points in log f.

Band n has the exact mid-band frequency f_m = 10**(n / 10) Hz and the edges f_m * 10**(+-1/20); a Fourier bin
belongs to it if low <= f < high, so that adjacent bands neither overlap nor leave gaps.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.arrays import Array, array_namespace, shared
from prime_anc.method.conventions import BIN_HZ, DESIGN_N_FFT, N_BINS, SAMPLE_RATE_HZ

Float64 = NDArray[np.float64]
Kind = TypeVar("Kind", bound=np.floating)

# Frequencies of the design grid.
BINS_HZ = np.arange(N_BINS) * BIN_HZ

# Bands of noise reduction: 50 Hz to 5 kHz, 21 bands.
NR_BANDS = tuple(range(17, 38))

# Bands of amplification: 50 Hz to 8 kHz, 23 bands.
AMP_BANDS = tuple(range(17, 40))

# The audible range: 20 Hz to 20 kHz, 31 bands.
WIDE_BANDS = tuple(range(13, 44))
# Values of an uncertainty: those of the primary path, then of the secondary path.
N_UNCERTAINTY = 2 * len(WIDE_BANDS)

# IEC 61260-1 labels: the decade of nominal values for the exact frequencies.
_NOMINAL_DECADE = (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0)


def centre_hz(n: int) -> float:
    """Return the exact mid-band frequency of band n (Hz), 10**(n / 10)."""
    return float(10 ** (n / 10))


def edges_hz(n: int) -> tuple[float, float]:
    """Return the edges of band n (Hz), f_m * 10**(-+1/20); the upper edge is the next band's lower one."""
    return float(10 ** ((2 * n - 1) / 20)), float(10 ** ((2 * n + 1) / 20))


@cache
def nominal_hz(n: int) -> float:
    """Return the label of band n (Hz): 50, 63, 80, ..."""
    return round(_NOMINAL_DECADE[n % 10] * 10.0 ** (n // 10), 6)


# Labels of the bands of a prediction.
BAND_CENTRE_HZ = [nominal_hz(n) for n in AMP_BANDS]


def columns(bands: tuple[int, ...]) -> slice:
    """Return the columns of adjacent bands among the 31 of WIDE_BANDS."""
    return slice(bands[0] - WIDE_BANDS[0], bands[-1] - WIDE_BANDS[0] + 1)


@cache
def band_membership(bands: tuple[int, ...], n_fft: int) -> NDArray[np.float64]:
    """Return the membership of the bins of an n_fft-point grid in bands: 0 or 1, [n_fft // 2 + 1, n_bands].

    `power @ band_membership(...)` sums over bands. The result is shared between callers and read-only.
    """
    frequency = np.arange(n_fft // 2 + 1) * (SAMPLE_RATE_HZ / n_fft)
    edges = [edges_hz(n) for n in bands]
    membership = np.stack([(frequency >= low) & (frequency < high) for low, high in edges], axis=-1).astype(float)
    membership.flags.writeable = False
    return membership


def band_matrix(bands: Sequence[int], n_fft: int, like: Array) -> Array:
    """Return `band_membership` as an array of the kind, precision and device of the real `like`.

    The result is shared between callers and must not be written to.
    """
    return shared(band_membership, (tuple(bands), n_fft), like)


def mean_weights(chosen: tuple[int, ...], bands: tuple[int, ...], like: Array) -> Array:
    """Return the weights of `bands` in the mean over those `chosen`, [n_bands], as `band_matrix` does."""
    return shared(_mean_weights, (chosen, bands), like)


def _mean_weights(chosen: tuple[int, ...], bands: tuple[int, ...]) -> NDArray[np.float64]:
    return np.isin(bands, chosen) / len(chosen)


def frequencies_hz(n_fft: int = DESIGN_N_FFT) -> Float64:
    """Return the bin frequencies in Hz of the one-sided spectrum of an `n_fft`-point transform, [n_fft // 2 + 1]."""
    frequency: Float64 = np.arange(n_fft // 2 + 1, dtype=np.float64) * (SAMPLE_RATE_HZ / n_fft)
    return frequency


def collected(power: Array, stride: int) -> Array:
    """Sum power per bin onto a grid that is coarser by an even number.

    A bin's power goes to the nearest coarse bin, in halves if two are equally near.

    Parameters
    ----------
    power
        [..., n_bins].
    stride
        Bins for one of the coarser grid.

    Returns
    -------
    Array
        [..., (n_bins - 1) / stride + 1].
    """
    xp = array_namespace(power)
    spans = xp.reshape(power[..., 1:], (*power.shape[:-1], -1, stride)) @ shared(_halves, (stride,), power)
    below, above = spans[..., 0], spans[..., 1]
    return xp.concat((power[..., :1] + below[..., :1], below[..., 1:] + above[..., :-1], above[..., -1:]), axis=-1)


def _halves(stride: int) -> Float64:
    """Return the shares of the coarse bins below and above in the `stride` bins up to the latter: [stride, 2]."""
    offset = 2 * np.arange(1, stride + 1)
    above = np.where(offset == stride, 0.5, offset > stride)
    return np.stack((1 - above, above), axis=-1)


class LogGrid(NamedTuple):
    """Points in log f, and the ways between them and the bins of a Fourier grid."""

    # [n_points], Hz.
    points_hz: Float64
    # Weights of the bins in the points' means, [n_points, n_bins].
    pooling: Float64
    # Per bin, the point below it, and the fraction of the way to the next, [n_bins].
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
    frequency = frequencies_hz(n_fft)
    step = np.log(high_hz / low_hz) / (n - 1)
    inside = np.clip(np.log(np.maximum(frequency, frequency[1] / 2) / low_hz) / step, 0, n - 1)
    lower = np.minimum(np.floor(inside), n - 2)
    points = low_hz * np.exp(step * np.arange(n))
    # A hat of one point's half-width on either side; where that is narrower than the bin spacing (below about 27 Hz)
    # it may meet no bin, so it is never narrower than the bins are apart.
    half_width = np.maximum(points * np.expm1(step), frequency[1])
    hats = np.maximum(1 - np.abs(frequency - points[:, None]) / half_width[:, None], 0)
    return LogGrid(points, hats / hats.sum(1, keepdims=True), lower.astype(np.intp), inside - lower)


# First bins of the bands from 20 Hz to 20 kHz on the design grid, and the bin after the last.
BAND_BINS = np.searchsorted(BINS_HZ, [*(edges_hz(n)[0] for n in WIDE_BANDS), edges_hz(WIDE_BANDS[-1])[1]])


def sum_over_bands(values: NDArray[Kind]) -> NDArray[Kind]:
    """Sum over the bins of the bands: [..., 16385] -> [..., 31]."""
    sums: NDArray[Kind] = np.add.reduceat(values[..., : BAND_BINS[-1]], BAND_BINS[:-1], axis=-1)
    return sums

"""One-third-octave bands of IEC 61260-1, base 10.

Band n has the exact mid-band frequency f_m = 10**(n / 10) Hz and the edges f_m * 10**(+-1/20); a Fourier bin
belongs to it if low <= f < high, so that adjacent bands neither overlap nor leave gaps.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from synthesis.arrays import Array, shared
from synthesis.conventions import SAMPLE_RATE_HZ

# Bands of noise reduction: 50 Hz to 5 kHz, 21 bands.
NR_BANDS = tuple(range(17, 38))

# Bands of amplification: 50 Hz to 8 kHz, 23 bands.
AMP_BANDS = tuple(range(17, 40))

# The audible range: 20 Hz to 20 kHz, 31 bands.
WIDE_BANDS = tuple(range(13, 44))

# What is known of a band of a path that is not known: UNKNOWN ones count in J only by what makes them louder; ABSENT
# ones, in which nothing is heard or played, have E = D whatever the filter.
UNKNOWN, ABSENT = 1, 2

# IEC 61260-1 labels: the decade of nominal values for the exact frequencies.
_NOMINAL_DECADE = (1.0, 1.25, 1.6, 2.0, 2.5, 3.15, 4.0, 5.0, 6.3, 8.0)


def centre_hz(n: int) -> float:
    """Return the exact mid-band frequency of band n (Hz), 10**(n / 10)."""
    return float(10 ** (n / 10))


def edges_hz(n: int) -> tuple[float, float]:
    """Return the edges of band n (Hz), f_m * 10**(-+1/20); the upper edge is the next band's lower one."""
    return float(10 ** ((2 * n - 1) / 20)), float(10 ** ((2 * n + 1) / 20))


def nominal_hz(n: int) -> float:
    """Return the label of band n (Hz): 50, 63, 80, ..."""
    return round(_NOMINAL_DECADE[n % 10] * 10.0 ** (n // 10), 6)


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

"""Noise and missing tail of an impulse response, judged by its own end: theory (24).

Where a response has decayed into noise, the power of its last quarter is as large as that of the quarter before, and
every lag holds as much noise. Where it still decays, what was cut off follows from the decay. A filter of 2048 taps can
match the noise of as many lags only: what lies beyond makes a prediction too low rather than too high.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synthesis.bands import WIDE_BANDS, edges_hz
from synthesis.conventions import N_TAPS, SAMPLE_RATE_HZ
from synthesis.predict import END_OF_RESPONSE

Float64 = NDArray[np.float64]

# From here on more lags hold noise that no filter matches than noise that one matches.
LONG_SAMPLES = 8192

# Fewer samples do not show what is noise and what is the response.
LEAST_SAMPLES = 64

# Power of the last quarter over that of the one before, above which the end is noise: 3 dB less.
STATIONARY = 0.5

_EDGES_HZ = np.array([edges_hz(n)[0] for n in WIDE_BANDS] + [edges_hz(WIDE_BANDS[-1])[1]])
_TINY = float(np.finfo(np.float64).tiny)


def response_uncertainty(
    primary: NDArray[np.floating], secondary: NDArray[np.floating], largest: float
) -> NDArray[np.float32]:
    """Estimate what two impulse responses leave unknown.

    Parameters
    ----------
    primary, secondary
        Causal responses, real [n]; zeros appended change nothing.
    largest
        Bound on the result.

    Returns
    -------
    NDArray[np.float32]
        Per band from 20 Hz to 20 kHz, unknown over known power of the primary (row 0) and the secondary path (row 1),
        [2, 31]. Zero for responses of LONG_SAMPLES and more, and of less than LEAST_SAMPLES.
    """
    shares = np.stack((_unknown_share(primary, N_TAPS), _unknown_share(secondary, LONG_SAMPLES)))
    return shares.clip(0, largest).astype(np.float32)


def _unknown_share(response: NDArray[np.floating], n_matched: int) -> Float64:
    """Unknown over known power per band, [31]; n_matched: lags whose noise a filter can match, or plays."""
    n = length_of(response)
    if not LEAST_SAMPLES <= n < LONG_SAMPLES:
        return np.zeros(len(WIDE_BANDS))
    whole = response[:n].astype(float)
    before, last = (whole[n // 4 * k : n // 4 * (k + 1)] for k in (2, 3))
    powers = [_band_powers(item * np.hanning(len(item)), 2 * LONG_SAMPLES) for item in (before, last)]
    ratio = powers[1] / np.maximum(powers[0], _TINY)
    end = powers[1] / np.mean(np.hanning(len(last)) ** 2)
    noise = end / len(last) * (min(n, n_matched) - max(n - n_matched, 0))
    tail = end * ratio / np.maximum(1 - ratio, STATIONARY)
    known = _band_powers(whole, 2 * LONG_SAMPLES)
    share: Float64 = np.where(ratio > STATIONARY, noise, tail) / np.maximum(known, _TINY)
    return share


def length_of(response: NDArray[np.floating]) -> int:
    """Return the number of samples up to the last above END_OF_RESPONSE of the largest."""
    magnitude = np.abs(response)
    above = np.flatnonzero(magnitude > END_OF_RESPONSE * magnitude.max())
    return int(above[-1]) + 1 if above.size else 0


def _band_powers(response: Float64, n_fft: int) -> Float64:
    """Power of a response per band, from the bins next to its edges, [31]."""
    power = np.abs(np.fft.rfft(response, n_fft)) ** 2
    first = np.searchsorted(np.arange(len(power)) * (SAMPLE_RATE_HZ / n_fft), _EDGES_HZ)
    sums: Float64 = np.add.reduceat(power[: first[-1]], first[:-1])
    return sums

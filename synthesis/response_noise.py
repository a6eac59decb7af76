"""Noise and missing tail of an impulse response, estimated from its end.

If a response has decayed into noise, its last quarter has the power of the quarter before, and all lags hold that much
noise. If it still decays, the decay shows what was cut off. A filter of 2048 taps can match the noise of 2048 lags;
noise beyond them makes a prediction too low, not too high.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synthesis.bands import WIDE_BANDS, edges_hz
from synthesis.conventions import DESIGN_N_FFT, N_TAPS, SAMPLE_RATE_HZ
from synthesis.methods import Path
from synthesis.predict import END_OF_RESPONSE, RESPONSE_LENGTHS

Float64 = NDArray[np.float64]

# Length from which a filter matches the noise of less than half of the lags, and little tail is missing.
LONG_SAMPLES = 6144

_N_FFT = 8192

# Length below which noise cannot be told from the response.
LEAST_SAMPLES = 64

# Power of the last quarter over that of the quarter before, above which the end is noise: -3 dB.
STATIONARY = 0.5

# Half-widths of nine-in-ten intervals of the mean noise reduction, for responses of RESPONSE_LENGTHS samples: of 60
# simulated ducts, rooms, windows, headrests and headsets that were cut to each length.
INTERVAL_DB = (12.0, 10.0, 9.0, 10.0, 6.0, 2.5, 2.5)

# The same ratio, above which a response rises towards its end: a division of spectra with too short windows leaves a
# factor of 2 to 4 on 30 measured ears. Predictions are then 6 to 11 dB too high, which the end does not show.
RISING = 1.5
RISING_INTERVAL_DB = 12.0

_EDGES_HZ = [edges_hz(n)[0] for n in WIDE_BANDS] + [edges_hz(WIDE_BANDS[-1])[1]]
_FIRST = np.searchsorted(np.arange(_N_FFT // 2 + 1) * (SAMPLE_RATE_HZ / _N_FFT), _EDGES_HZ)
_TINY = float(np.finfo(np.float64).tiny)


def response_uncertainty(primary: Path, secondary: Path, largest: float) -> tuple[NDArray[np.float32], float]:
    """Estimate what two paths leave unknown, by the ends of their impulse responses.

    Parameters
    ----------
    primary, secondary
        Causal responses, real [n], or their spectra on the design grid; zeros appended change nothing.
    largest
        Bound on the uncertainty.

    Returns
    -------
    NDArray[np.float32]
        Per band from 20 Hz to 20 kHz, unknown over known power of the primary (row 0) and the secondary path (row 1),
        [2, 31]. Zero for responses of LONG_SAMPLES and more, and of less than LEAST_SAMPLES.
    float
        Half-width of the nine-in-ten interval of a prediction from a primary response of this length, dB.
    """
    first, second = _response(primary), _response(secondary)
    shares = np.stack((_unknown_share(first, N_TAPS), _unknown_share(second, LONG_SAMPLES)))
    interval_db = float(np.interp(np.log2(max(length_of(first), 1)), np.log2(RESPONSE_LENGTHS), INTERVAL_DB))
    if _rises(first):
        interval_db = max(interval_db, RISING_INTERVAL_DB)
    return shares.clip(0, largest).astype(np.float32), interval_db


def _response(path: Path) -> Float64:
    real: Float64 = np.fft.irfft(path, DESIGN_N_FFT) if np.iscomplexobj(path) else np.asarray(path, float)
    return real


def _unknown_share(response: Float64, n_matched: int) -> Float64:
    """Compute unknown over known power per band, [31]; a filter matches, or plays, the noise of n_matched lags."""
    n = length_of(response)
    if not LEAST_SAMPLES <= n < LONG_SAMPLES:
        return np.zeros(len(WIDE_BANDS))
    whole = response[:n]
    before, last = (whole[n // 4 * k : n // 4 * (k + 1)] for k in (2, 3))
    powers = [_band_powers(part * np.hanning(len(part))) for part in (before, last)]
    ratio = _smooth(np.maximum(powers[1], _TINY) / np.maximum(powers[0], _TINY))
    end = powers[1] / np.mean(np.hanning(len(last)) ** 2)
    noise = end / len(last) * (min(n, n_matched) - max(n - n_matched, 0))
    tail = end * ratio / np.maximum(1 - ratio, STATIONARY)
    known = _band_powers(whole)
    share: Float64 = np.where(ratio > STATIONARY, noise, tail) / np.maximum(known, _TINY)
    return share


def _rises(response: Float64) -> bool:
    """Return whether a long response is louder in its last quarter than in the quarter before."""
    n = length_of(response)
    before, last = (response[n // 4 * k : n // 4 * (k + 1)] for k in (2, 3))
    return n >= LONG_SAMPLES and bool(np.vdot(last, last) > RISING * np.vdot(before, before))


def _smooth(ratio: Float64) -> Float64:
    """Return geometric means over five adjacent bands, since one has few independent bins."""
    padded = np.pad(np.log(ratio), 2, mode="edge")
    smooth: Float64 = np.exp(np.convolve(padded, np.full(5, 0.2), mode="valid"))
    return smooth


def length_of(response: NDArray[np.floating]) -> int:
    """Return the number of samples up to the last above END_OF_RESPONSE of the largest."""
    magnitude = np.abs(response)
    above = np.flatnonzero(magnitude > END_OF_RESPONSE * magnitude.max())
    return int(above[-1]) + 1 if above.size else 0


def _band_powers(response: Float64) -> Float64:
    """Compute the power of a response per band, of the next bin where a band has none: [31]."""
    power = np.abs(np.fft.rfft(response, _N_FFT)) ** 2
    sums: Float64 = np.add.reduceat(power[: _FIRST[-1]], _FIRST[:-1])
    return sums

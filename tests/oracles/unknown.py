"""What the ends of impulse responses do not show, in float64 NumPy: the core's twin for tests (`synthesis.unknown`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synthesis.arrays import SMALLEST
from synthesis.bands import WIDE_BANDS, band_membership, edges_hz
from synthesis.conventions import DESIGN_N_FFT, N_TAPS, SAMPLE_RATE_HZ
from synthesis.methods import Path
from synthesis.unknown import (
    END_OF_RESPONSE,
    INTERVAL_DB,
    LACKED,
    LEAST_SAMPLES,
    LONG_SAMPLES,
    RESPONSE_LENGTHS,
    RISING_BANDS,
    RISING_DB,
    RISING_INTERVAL_DB,
    SMALLEST_SHARE,
    STATIONARY,
)

Float64 = NDArray[np.float64]

_N_FFT = 8192
_EDGES_HZ = [edges_hz(n)[0] for n in WIDE_BANDS] + [edges_hz(WIDE_BANDS[-1])[1]]
_FIRST = np.searchsorted(np.arange(_N_FFT // 2 + 1) * (SAMPLE_RATE_HZ / _N_FFT), _EDGES_HZ)


def ends_uncertainty(primary: Path, secondary: Path, largest: float) -> tuple[NDArray[np.float32], float]:
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
        [2, 31]. Zero below SMALLEST_SHARE, for long responses that do not rise, and for short ones.
    float
        Half-width of the nine-in-ten interval of a prediction from a primary response of this length, dB.
    """
    first, second = _response(primary), _response(secondary)
    shares = np.stack((_unknown_share(first, N_TAPS), _unknown_share(second, LONG_SAMPLES)))
    interval_db = float(np.interp(np.log2(max(length_of(first), 1)), np.log2(RESPONSE_LENGTHS), INTERVAL_DB))
    if _rises(first):
        shares[0] = LACKED * _late_share(first)
        interval_db = max(interval_db, RISING_INTERVAL_DB)
    return np.where(shares < SMALLEST_SHARE, 0, shares.clip(max=largest)).astype(np.float32), interval_db


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
    ratio = smoothed(np.maximum(powers[1], SMALLEST) / np.maximum(powers[0], SMALLEST))
    end = powers[1] / np.mean(np.hanning(len(last)) ** 2)
    noise = end / len(last) * (min(n, n_matched) - max(n - n_matched, 0))
    tail = end * ratio / np.maximum(1 - ratio, STATIONARY)
    known = _band_powers(whole)
    share: Float64 = np.where(ratio > STATIONARY, noise, tail) / np.maximum(known, SMALLEST)
    return share


def _rises(response: Float64) -> bool:
    """Judge whether a long response is louder in its last quarter than in its middle."""
    n = length_of(response) // 8
    if 8 * n < LONG_SAMPLES:
        return False
    n_fft = _N_FFT // 8 if n <= _N_FFT // 8 else _N_FFT
    parts = np.fft.rfft(response[3 * n : 8 * n].reshape(5, n) * np.hanning(n), n_fft)
    bands = (parts.real**2 + parts.imag**2) @ band_membership(RISING_BANDS, n_fft)
    level_db = 10 * np.log10(np.maximum(bands, 1e-12 * bands.max(0) + SMALLEST)).mean(1)
    return bool(level_db[3:].mean() - level_db[:3].min() > RISING_DB)


def _late_share(response: Float64) -> Float64:
    """Power after N_TAPS over the whole, per band, [31], without noise: the same in circular lags from either end."""
    n = length_of(response) // 8
    eighths = [_band_powers(response[k * n : (k + 1) * n] * np.hanning(n)) for k in range(2, 8)]
    early, middle, all_late = (np.sum(eighths[part], 0) for part in (slice(2), slice(2, 4), slice(6)))
    signal = np.maximum(early - middle, 0) / np.maximum(all_late, SMALLEST)
    signal = np.convolve(np.pad(signal, 2, mode="edge"), np.full(5, 0.2), mode="valid")
    late = _band_powers(np.pad(response[N_TAPS:], (N_TAPS, 0)))
    share: Float64 = signal * late / np.maximum(_band_powers(response), SMALLEST)
    return share


def smoothed(ratio: Float64) -> Float64:
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

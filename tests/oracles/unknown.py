"""What the ends of impulse responses do not show, in float64 NumPy: the core's twin for tests (`method.unknown`)."""

import numpy as np

from prime_anc.method import unknown as constants
from prime_anc.method.bands import WIDE_BANDS, band_membership, edges_hz
from prime_anc.method.conventions import DESIGN_N_FFT, N_TAPS

TINY = 1e-300
_N_FFT = 8192
_EDGES_HZ = [edges_hz(n)[0] for n in WIDE_BANDS] + [edges_hz(WIDE_BANDS[-1])[1]]
_FIRST = np.searchsorted(np.fft.rfftfreq(_N_FFT, 1 / 48_000), _EDGES_HZ)


def ends_uncertainty(primary: np.ndarray, secondary: np.ndarray) -> tuple[np.ndarray, float]:
    """Uncertainty [2, 31] of responses, or of their spectra on the design grid, and the half-width of the interval."""
    first, second = (
        np.fft.irfft(item, DESIGN_N_FFT) if np.iscomplexobj(item) else np.float64(item)
        for item in (primary, secondary)
    )
    shares = np.stack((_unknown_share(first, N_TAPS), _unknown_share(second, constants.LONG_SAMPLES)))
    octaves = np.log2(constants.RESPONSE_LENGTHS)
    interval_db = float(np.interp(np.log2(_length_of(first)), octaves, constants.RESPONSE_INTERVAL_DB))
    if _rises(first):
        shares[0], interval_db = _late_share(first), max(interval_db, constants.RISING_INTERVAL_DB)
    return np.where(shares < constants.SMALLEST_SHARE, 0, shares.clip(max=constants.MOST_UNCERTAIN)), interval_db


def _unknown_share(response: np.ndarray, n_matched: int) -> np.ndarray:
    """Unknown over known power per band; a filter matches, or plays, the noise of n_matched lags."""
    n = _length_of(response)
    if not constants.LEAST_SAMPLES <= n < constants.LONG_SAMPLES:
        return np.zeros(len(WIDE_BANDS))
    hann = np.hanning(n // 4)
    before, last = (_band_powers(hann * response[n // 4 * k : n // 4 * (k + 1)]) for k in (2, 3))
    ratio = np.exp(_over_five(np.log(np.maximum(last, TINY) / np.maximum(before, TINY))))
    end = last / np.mean(hann**2)
    noise = end / len(hann) * (min(n, n_matched) - max(n - n_matched, 0))
    tail = end * ratio / np.maximum(1 - ratio, constants.STATIONARY)
    return np.where(ratio > constants.STATIONARY, noise, tail) / np.maximum(_band_powers(response[:n]), TINY)


def _rises(response: np.ndarray) -> bool:
    """Whether a long response is louder in its last quarter than in its middle."""
    n = _length_of(response) // 8
    if 8 * n < constants.LONG_SAMPLES:
        return False
    n_fft = _N_FFT // 8 if n <= _N_FFT // 8 else _N_FFT
    parts = np.fft.rfft(response[3 * n : 8 * n].reshape(5, n) * np.hanning(n), n_fft)
    bands = np.abs(parts) ** 2 @ band_membership(WIDE_BANDS[constants.RISING_FIRST : WIDE_BANDS.index(38)], n_fft)
    level_db = 10 * np.log10(np.maximum(bands, 1e-12 * bands.max(0) + TINY)).mean(1)
    return bool(level_db[3:].mean() - level_db[:3].min() > constants.RISING_DB)


def _late_share(response: np.ndarray) -> np.ndarray:
    """LACKED times the power after N_TAPS over the whole, without noise: the same in circular lags from either end."""
    n = _length_of(response) // 8
    eighths = [_band_powers(response[k * n : (k + 1) * n] * np.hanning(n)) for k in range(2, 8)]
    early, middle, whole = (np.sum(eighths[part], 0) for part in (slice(2), slice(2, 4), slice(6)))
    signal = _over_five(np.maximum(early - middle, 0) / np.maximum(whole, TINY))
    late = _band_powers(np.pad(response[N_TAPS:], (N_TAPS, 0)))
    return constants.LACKED * signal * late / np.maximum(_band_powers(response), TINY)


def _over_five(values: np.ndarray) -> np.ndarray:
    """Means over five adjacent bands, since one has few independent bins."""
    return np.convolve(np.pad(values, 2, mode="edge"), np.full(5, 0.2), mode="valid")


def _length_of(response: np.ndarray) -> int:
    """Number of samples up to the last above END_OF_RESPONSE of the largest."""
    magnitude = np.abs(response)
    return int(np.flatnonzero(magnitude > constants.END_OF_RESPONSE * magnitude.max())[-1]) + 1


def _band_powers(response: np.ndarray) -> np.ndarray:
    """Power of a response per band, of the next bin where a band has none: [31]."""
    power = np.abs(np.fft.rfft(response, _N_FFT)) ** 2
    return np.add.reduceat(power[: _FIRST[-1]], _FIRST[:-1])

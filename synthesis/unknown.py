"""What is unknown of paths: bands without measured data or sound, and what the ends of impulse responses do not show.

If a response has decayed into noise, its last quarter has the power of the quarter before, and all lags hold that much
noise. If it still decays, the decay shows what was cut off. A filter of 2048 taps can match the noise of 2048 lags;
noise beyond them makes a prediction too low, not too high.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from synthesis.arrays import SMALLEST
from synthesis.bands import NR_BANDS, WIDE_BANDS, band_membership, edges_hz
from synthesis.conventions import DESIGN_N_FFT, N_TAPS, SAMPLE_RATE_HZ
from synthesis.methods import Path
from synthesis.predict import END_OF_RESPONSE, RESPONSE_LENGTHS
from synthesis.support_statistics import first_bins

Kind = TypeVar("Kind", bound=np.floating)
Float64 = NDArray[np.float64]

# Mean coherence of a band below which its estimate is noise. Of 73 bands that single recordings at 20 to 40 dB SNR
# leave 3 dB louder all are below; of white noise at these SNRs none is.
UNHEARD = 0.06

# Mean |P|^2 of a band over that of the loudest below which the system is silent: 60 dB, as above half the rate of a
# converter. The quietest bands of 30 measured ears are at -38 dB.
SILENT = 1e-6

# First bins of the bands from 20 Hz to 20 kHz on the design grid, and the bin after the last.
BAND_BINS = first_bins((*(edges_hz(n)[0] for n in WIDE_BANDS), edges_hz(WIDE_BANDS[-1])[1]))
LEAST_COHERENCE_SUM = UNHEARD * np.diff(BAND_BINS)

# BAND_BINS on the grid of responses of up to this many samples; a band without a bin has that above it.
SHORT = 8192
SHORT_BINS = BAND_BINS * SHORT // DESIGN_N_FFT

# Length from which a filter matches the noise of less than half of the lags, and little tail is missing.
LONG_SAMPLES = 6144

_N_FFT = 8192

# Length below which noise cannot be told from the response.
LEAST_SAMPLES = 64

# Power of the last quarter over that of the quarter before, above which the end is noise: -3 dB.
STATIONARY = 0.5

# Half-widths of nine-in-ten intervals of the mean noise reduction, for responses of RESPONSE_LENGTHS samples: of 60
# simulated ducts, rooms, windows, headrests and headsets that were cut to each length; the longest's are those of
# estimates by windows of 8192 samples, which need not rise.
INTERVAL_DB = (12.0, 10.0, 9.0, 10.0, 6.0, 5.0, 5.0)

# Level of the last two eighths over the quietest of the middle, mean over bands, above which a response rises towards
# its end, as division of spectra leaves it: circular lags make its noise loud at both ends. Exact responses of 200
# simulated systems reach 2 dB, estimates of measured ears have 3 to 9.
RISING_DB = 3.0
# Such an estimate lacks what its windows did not hold: of measured ears 25 times the sound after N_TAPS.
LACKED = 25.0
RISING_INTERVAL_DB = 8.0

# Smaller shares are rounding errors of single precision.
SMALLEST_SHARE = 1e-7

# Bands of many bins.
RISING_BANDS = tuple(n for n in NR_BANDS if n >= 26)

_EDGES_HZ = [edges_hz(n)[0] for n in WIDE_BANDS] + [edges_hz(WIDE_BANDS[-1])[1]]
_FIRST = np.searchsorted(np.arange(_N_FFT // 2 + 1) * (SAMPLE_RATE_HZ / _N_FFT), _EDGES_HZ)


def sum_over_bands(values: NDArray[Kind]) -> NDArray[Kind]:
    """Sum over the bins of the bands: [16385] -> [31]."""
    sums: NDArray[Kind] = np.add.reduceat(values[: BAND_BINS[-1]], BAND_BINS[:-1])
    return sums


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

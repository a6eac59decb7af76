"""Twin of the one-third-octave bands (IEC 61260-1, base 10): band n is centred at 10^(n/10) Hz."""

from collections.abc import Iterable

import numpy as np

SAMPLE_RATE_HZ = 48_000
NR_BANDS = range(17, 38)  # 50 Hz to 5 kHz, 21 bands
AMP_BANDS = range(17, 40)  # 50 Hz to 8 kHz, 23 bands
WIDE_BANDS = range(13, 44)  # 20 Hz to 20 kHz, 31 bands


def frequencies(n_fft: int) -> np.ndarray:
    """Frequencies of the one-sided bins in Hz."""
    return np.arange(n_fft // 2 + 1) * (SAMPLE_RATE_HZ / n_fft)


def band_bins(n: int, n_fft: int) -> np.ndarray:
    """Bins k of band n: low <= f_k < high."""
    f = frequencies(n_fft)
    low, high = 10.0 ** (n / 10 - 0.05), 10.0 ** (n / 10 + 0.05)
    return np.flatnonzero((f >= low) & (f < high))


def band_sums(bands: Iterable[int], values: np.ndarray) -> np.ndarray:
    """Sum of a one-sided per-bin quantity over each band, by a plain loop: [n_bands]."""
    n_fft = 2 * (len(values) - 1)
    return np.array([values[band_bins(n, n_fft)].sum() for n in bands])


def reduction_db(
    primary: np.ndarray,
    secondary: np.ndarray,
    response: np.ndarray,
    psd: np.ndarray,
    bands: Iterable[int] = NR_BANDS,
) -> float:
    """Mean noise reduction over bands of a filter with that response."""
    before, after = (
        band_sums(bands, psd * np.abs(item) ** 2) for item in (primary, primary - secondary * response)
    )
    return float(10 * np.log10(before / after).mean())

"""Dense matrices of the normal equations, sums over bins of weight f_k f_k^H, and their approximate inverses."""

import numpy as np
from scipy.linalg import toeplitz


def fourier_rows(n_bins: int, n_taps: int) -> np.ndarray:
    """F[k, n] = exp(-j 2 pi k n / n_fft), so that W = F w: [n_bins, n_taps] (small sizes only)."""
    k, n = np.arange(n_bins)[:, None], np.arange(n_taps)[None, :]
    return np.exp(-2j * np.pi * k * n / (2 * (n_bins - 1)))


def normal_column(weights: np.ndarray, n_taps: int) -> np.ndarray:
    """First column of the normal matrix, 2 sum_k weights_k cos(2 pi k m / n_fft).

    The inverse transform counts every bin but DC and Nyquist twice; those two are added once more.
    """
    n_fft = 2 * (len(weights) - 1)
    nyquist_sign = (-1.0) ** np.arange(n_taps)
    return n_fft * np.fft.irfft(weights)[:n_taps] + weights[0] + weights[-1] * nyquist_sign


def dense(first_column: np.ndarray) -> np.ndarray:
    """The symmetric Toeplitz matrix of a first column."""
    return toeplitz(first_column)

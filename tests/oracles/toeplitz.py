"""Dense matrices of the normal equations, sums over bins of weight f_k f_k^H, and their approximate inverses."""

import numpy as np
from scipy.linalg import toeplitz

from tests.oracles import minimum_phase


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


def gohberg_semencul(symbol: np.ndarray, n: int, taper: float) -> np.ndarray:
    """(L(a) L(a)^T - L(b) L(b)^T) / a[0], a the impulse response of 1 / F over its first sample, a[k] damped.

    F is the minimum-phase factor of the symbol, here by a Hilbert transform; L(a) is lower triangular Toeplitz.
    """
    polynomial = minimum_phase.fir(-0.5 * np.log(symbol), n)
    scale = polynomial[0]
    a = polynomial / scale * np.exp(-taper * np.arange(n) / n)
    b = np.concatenate([[0.0], a[:0:-1]])
    lower_a, lower_b = (toeplitz(first, np.zeros(n)) for first in (a, b))
    # T a = e_0 / T^-1[0, 0]: the first column of the inverse is a times the square of 1 / F's first sample.
    return scale**2 * (lower_a @ lower_a.T - lower_b @ lower_b.T)

"""Twin of the causal Wiener filter: the normal equations themselves, a dense least-squares problem over taps.

The package factorises the spectrum. Here the same quadratic form over the grid,

    sum_k v_k |P_k - S_k W_k|^2 + l_k |W_k|^2,

is minimised over the first half of the circle by Levinson's recursion on its Toeplitz matrix; on a grid that is
long against all responses the two agree, and the first taps of the long filter are those of the infinite one.
"""

import numpy as np
from scipy.linalg import solve_toeplitz


def long_filter(
    primary: np.ndarray, secondary: np.ndarray, weight: np.ndarray, penalty: np.ndarray, n_long: int
) -> np.ndarray:
    """The best filter of n_long taps."""
    column = np.fft.irfft(weight * np.abs(secondary) ** 2 + penalty)[:n_long]
    rhs = np.fft.irfft(weight * np.conj(secondary) * primary)[:n_long]
    return solve_toeplitz(column, rhs)


def fir(
    primary: np.ndarray, secondary: np.ndarray, weight: np.ndarray, penalty: np.ndarray, n_taps: int
) -> np.ndarray:
    """The definition by whole-circle transforms: Hilbert phase for the factor, the causal half by hand."""
    power = weight * np.abs(secondary) ** 2 + penalty
    circle = np.concatenate([power, power[-2:0:-1]])
    n = len(circle)
    cepstrum = np.fft.ifft(np.log(circle)).real / 2
    cepstrum[1 : n // 2] *= 2
    cepstrum[n // 2 + 1 :] = 0
    factor = np.exp(np.fft.fft(cepstrum))
    signal = weight * np.conj(secondary) * primary
    matched = np.fft.ifft(np.concatenate([signal, np.conj(signal[-2:0:-1])]) / np.conj(factor)).real
    matched[n // 2 :] = 0
    return np.fft.ifft(np.fft.fft(matched) / factor).real[:n_taps]

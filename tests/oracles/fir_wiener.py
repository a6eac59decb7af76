"""Twin of the finite Wiener filter: the least-squares problem over taps, solved directly.

The package reaches its taps by four preconditioned iterations on transforms. Here the same quadratic form,

    sum over the whole circle of v_k |P_k - S_k W_k|^2 + l_k |W_k|^2,

is minimised by Levinson's recursion on its normal matrix.
"""

import numpy as np
from scipy.linalg import solve_toeplitz

DAMPING = 1e-4


def system(
    primary: np.ndarray, secondary: np.ndarray, weight: np.ndarray, penalty: np.ndarray, n_taps: int
) -> tuple[np.ndarray, np.ndarray]:
    """First column and right-hand side of the normal equations, with 1e-4 of the symbol's mean as damping."""
    symbol = weight * np.abs(secondary) ** 2 + penalty
    column = np.fft.irfft(symbol)[:n_taps]
    column[0] += DAMPING * symbol.mean()
    return column, np.fft.irfft(weight * np.conj(secondary) * primary)[:n_taps]


def fir(primary: np.ndarray, secondary: np.ndarray, weight: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Solve for the best 2048 taps, before the ceiling."""
    return solve_toeplitz(*system(primary, secondary, weight, penalty, 2048))

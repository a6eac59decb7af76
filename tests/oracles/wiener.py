"""Twin of the weighted minimum mean-square error design (paper, Eq. 7)."""

import numpy as np

from tests.oracles import toeplitz
from tests.oracles.octave_bands import NR_BANDS, band_bins


def weights(reference_psd: np.ndarray) -> np.ndarray:
    """Reference power over the band's bin count in each of 21 target bands; unit mean over active bins."""
    n_fft = 2 * (len(reference_psd) - 1)
    w = np.zeros(len(reference_psd))
    for n in NR_BANDS:
        bins = band_bins(n, n_fft)
        w[bins] = reference_psd[bins] / max(len(bins), 1)
    return w / w[w > 0].mean()


def _system(secondary: np.ndarray, omega: np.ndarray) -> tuple[np.ndarray, float]:
    """Weights |S|^2 omega of the normal matrix and lambda = 1e-4 of their sum."""
    power = omega * np.abs(secondary) ** 2
    return power, 1e-4 * power.sum()


def design_dense(primary: np.ndarray, secondary: np.ndarray, reference_psd: np.ndarray, n_taps: int) -> np.ndarray:
    """Least squares of [sqrt(omega) S F; sqrt(lambda) I] w = [sqrt(omega) P; 0] (small sizes)."""
    omega = weights(reference_psd)
    _, ridge = _system(secondary, omega)
    rows = np.sqrt(omega)[:, None] * secondary[:, None] * toeplitz.fourier_rows(len(primary), n_taps)
    target = np.sqrt(omega) * primary
    matrix = np.vstack([rows.real, rows.imag, np.sqrt(ridge) * np.eye(n_taps)])
    stacked = np.concatenate([target.real, target.imag, np.zeros(n_taps)])
    return np.linalg.lstsq(matrix, stacked, rcond=None)[0]

"""Weighted minimum mean-square-error (WMMSE) design, the direct least-squares reference: theory (11)."""

import numpy as np
import torch
from scipy.linalg import solve_toeplitz
from torch import Tensor

from prime_anc.method.arrays import squared_magnitude
from prime_anc.method.bands import NR_BANDS, band_matrix
from prime_anc.method.conventions import N_TAPS
from prime_anc.method.methods import WMMSE_REGULARISATION
from prime_anc.method.paths import AcousticPaths


def wmmse_weights(reference_psd: Tensor) -> Tensor:
    """Compute the weights of the bins, real [n_bins], from the reference power spectrum [n_bins].

    Within a target band the power is divided by the band's number of bins; then the weights are scaled to
    unit mean over the bins in use, and are zero elsewhere.
    """
    n_fft = 2 * (reference_psd.shape[-1] - 1)
    membership = band_matrix(NR_BANDS, n_fft, reference_psd)
    per_bin = membership / membership.sum(0)
    weights = reference_psd * per_bin.sum(-1)
    active = membership.sum(-1) > 0
    mean = weights[..., active].mean(-1, keepdim=True)
    # A reference without power in the bands leaves all weights at zero.
    return weights / mean.clamp_min(torch.finfo(weights.dtype).tiny)


def toeplitz_system(paths: AcousticPaths, weights: Tensor, n_taps: int = N_TAPS) -> tuple[Tensor, Tensor]:
    """Compute first column [batch, n_taps] and right-hand side [batch, n_taps] of the regularised normal equations.

    Setting the gradient of sum_k w_k |P_k - S_k f_k^T w|^2 + lambda |w|^2 to zero over real taps gives
    sum_k w_k |S_k|^2 cos(2 pi k (m - n) / N) on the left and Re sum_k w_k S_k* P_k e^(2 pi i k n / N) on the
    right; both are inverse transforms, since the weights vanish at 0 Hz and at Nyquist.
    """
    n_fft = paths.n_fft
    power = weights * squared_magnitude(paths.secondary)
    column = torch.fft.irfft(power)[..., :n_taps] * (n_fft / 2)
    rhs = torch.fft.irfft(weights * paths.secondary.conj() * paths.primary)[..., :n_taps] * (n_fft / 2)
    diagonal = column[..., 0] + WMMSE_REGULARISATION * power.sum(-1)
    # Without secondary path in the bands the right-hand side is zero too, and so is the filter.
    column[..., 0] = torch.where(diagonal > 0, diagonal, 1.0)
    return column, rhs


def solve_direct(column: Tensor, rhs: Tensor) -> Tensor:
    """Solve symmetric Toeplitz systems by Levinson's recursion on the CPU: float64 [batch, n_taps], from float64."""
    taps = [solve_toeplitz(c, r) for c, r in zip(column.cpu().numpy(), rhs.cpu().numpy(), strict=True)]
    return torch.from_numpy(np.stack(taps))


def design_wmmse(
    paths: AcousticPaths, reference_psd: Tensor, n_taps: int = N_TAPS, shares: Tensor | None = None
) -> Tensor:
    """Solve (11) directly in double precision, every ear by itself: taps [batch, n_taps] in the paths' real type.

    shares: weights of the paths in one filter for all of them (Eq. 7 of the paper), [n_paths]. Its normal equations
    are the weighted sums, the regularisation included, and its taps [1, n_taps].
    """
    weights = wmmse_weights(reference_psd.to(torch.float64))
    system = toeplitz_system(paths.to(torch.float64), weights, n_taps)
    if shares is not None:
        column, rhs = ((shares.to(item)[:, None] * item).sum(0, keepdim=True) for item in system)
    else:
        column, rhs = system
    return solve_direct(column, rhs).to(paths.primary.real)


def design_shared_wmmse(paths: AcousticPaths, reference_psd: Tensor, n_taps: int = N_TAPS) -> Tensor:
    """Design one filter for all ears of `paths`, with weight one: taps [1, n_taps] in the paths' real type."""
    return design_wmmse(paths, reference_psd, n_taps, torch.ones(paths.batch_size, dtype=torch.float64))

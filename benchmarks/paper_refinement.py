"""The refinement as the paper describes it (Section 3.2), at its own sizes: what the service's is measured against.

Every product with the normal matrix goes through two transforms of all points of the design grid, and conjugate
gradients are preconditioned by the diagonal, which for a Toeplitz matrix is a scalar. Of what the paper leaves open
the cheaper reading is taken: no transform for a trial of the line search, and one for a step's response. The values
are those of `synthesis.gauss_newton`'s `paper` profile, written down a second time: this file stays as it is when
that one becomes faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from synthesis.conjugate_gradients import conjugate_gradients
from synthesis.octave_bands import AMP_BANDS, NR_BANDS, band_matrix
from synthesis.path_ratio import regularised_ratio
from synthesis.paths import AcousticPaths
from synthesis.spectra import squared_magnitude

STEP_SCALES = (1.0, 0.5, 0.25)
SUFFICIENT_DECREASE = 1e-5
TOLERANCE = 1e-6
SILENCE = 1e-12
"""Smallest power of a band over the whole disturbance: rounding may leave a trial with less than nothing."""
STEP_CAP = 10 ** (1 / 20) - 1


@dataclass(frozen=True)
class Settings:
    """Of the refinement; the defaults are the paper's. step_cap None: steps of any length."""

    risk_bands: Sequence[int] = AMP_BANDS
    risk_weight: float = 0.05
    n_iterations: int = 16
    step_cap: float | None = STEP_CAP


PAPER = Settings()


class GridOperator:
    """2 Re sum_k q_k f_k f_k^H + damping: two transforms of the whole grid a product."""

    def __init__(self, bin_weight: Tensor, damping: Tensor, n_taps: int) -> None:
        """bin_weight: q, real [batch, n_bins], zero at 0 Hz and Nyquist; damping: [batch, 1]."""
        self._n_fft, self._n_taps = 2 * (bin_weight.shape[-1] - 1), n_taps
        self._symbol, self._damping = bin_weight * self._n_fft, damping

    def __matmul__(self, vector: Tensor) -> Tensor:
        """The product with real vectors [batch, n_taps]."""
        spectrum = self._symbol * torch.fft.rfft(vector, n=self._n_fft)
        return torch.fft.irfft(spectrum, n=self._n_fft)[..., : self._n_taps] + self._damping * vector


class Diagonal:
    """Division by the matrix's diagonal, one number an item."""

    def __init__(self, diagonal: Tensor) -> None:
        """diagonal: [batch, 1], positive."""
        self._inverse = 1 / diagonal

    def __matmul__(self, vector: Tensor) -> Tensor:
        """The quotient with real vectors [batch, n_taps]."""
        return self._inverse * vector


def refine(
    paths: AcousticPaths, taps: Tensor, reference_psd: Tensor, n_updates: int, settings: Settings = PAPER
) -> tuple[Tensor, Tensor]:
    """Up to n_updates damped Gauss-Newton updates of taps [batch, n_taps] on the paths' own grid.

    reference_psd: mean square per bin, [n_bins]. Returns the taps and each update's relative residual of the
    conjugate gradients, [batch, n_updates]. The schedule is fixed, so that a graph can be captured of it: where no
    scale lowers the objective enough, an item takes steps of length zero from there on.
    """
    n_fft, n_taps = paths.n_fft, taps.shape[-1]
    dtype, device = reference_psd.dtype, reference_psd.device
    membership = band_matrix(tuple(settings.risk_bands), n_fft, dtype, device)
    target = _in_target(tuple(settings.risk_bands), dtype, str(device))
    power = reference_psd * squared_magnitude(paths.primary)
    total = (power @ membership).sum(-1, keepdim=True)
    weight, disturbance = reference_psd / total, (power / total) @ membership

    def objective(residual_power: Tensor) -> Tensor:
        ratios = torch.log(residual_power.clamp_min(SILENCE) / disturbance)
        return ratios @ target + settings.risk_weight * (torch.logsumexp(ratios, -1) - math.log(ratios.shape[-1]))

    limit = None
    scored = band_matrix(AMP_BANDS, n_fft, dtype, device).sum(-1)
    if settings.step_cap is not None:
        limit = settings.step_cap * _root_mean_square(regularised_ratio(paths), scored)
    residual = paths.primary - paths.secondary * torch.fft.rfft(taps, n=n_fft)
    residual_power = (weight * squared_magnitude(residual)) @ membership
    value = objective(residual_power)
    active = torch.ones_like(value, dtype=torch.bool)
    pcg_residuals = []
    for _ in range(n_updates):
        residual_power = residual_power.clamp_min(SILENCE)
        ratios = torch.log(residual_power / disturbance)
        slope = (target + settings.risk_weight * torch.softmax(ratios, -1)) / residual_power
        bins = weight * (slope @ membership.T)
        symbol = bins * squared_magnitude(paths.secondary)
        descent = torch.fft.irfft(bins * paths.secondary.conj() * residual, n=n_fft)[..., :n_taps] * n_fft
        diagonal = 2 * symbol.sum(-1, keepdim=True)
        damping = 2e-3 * diagonal.clamp_min(1e-6) + 1e-6
        solution = conjugate_gradients(
            GridOperator(symbol, damping, n_taps),
            descent,
            Diagonal(diagonal + damping),
            n_iterations=settings.n_iterations,
            tolerance=TOLERANCE,
        )
        pcg_residuals.append(solution.residual)
        step = solution.value
        step_response = torch.fft.rfft(step, n=n_fft)
        if limit is not None:
            shrink = (limit / _root_mean_square(step_response, scored)).clamp_max(1.0)
            step, step_response = step * shrink, step_response * shrink
        change = paths.secondary * step_response
        cross = (weight * (residual.conj() * change).real) @ membership
        square = (weight * squared_magnitude(change)) @ membership
        trials = [objective(residual_power - 2 * scale * cross + scale**2 * square) for scale in STEP_SCALES]
        decrease = value.unsqueeze(-1) - torch.stack(trials, -1)
        enough = decrease >= SUFFICIENT_DECREASE * value.abs().clamp_min(1.0).unsqueeze(-1)
        active = active & enough.any(-1)
        # The first scale that is good enough; the i-th is a half to the power i.
        scale = torch.where(active, torch.pow(0.5, enough.to(torch.uint8).argmax(-1)), 0.0).unsqueeze(-1)
        taps = taps + scale * step
        residual = residual - scale * change
        residual_power = (weight * squared_magnitude(residual)) @ membership
        value = objective(residual_power)
    shape = (*taps.shape[:-1], 0)
    return taps, torch.stack(pcg_residuals, -1) if pcg_residuals else taps.new_zeros(shape)


@cache  # a graph that was captured reads it where it lies, and a copy from the host cannot be captured
def _in_target(bands: tuple[int, ...], dtype: torch.dtype, device: str) -> Tensor:
    """Shares of the bands in the mean log residual, [n_bands]."""
    with torch.inference_mode(False):
        shares = [1 / len(NR_BANDS) if n in NR_BANDS else 0.0 for n in bands]
        return torch.tensor(shares, dtype=torch.float64).to(device, dtype)


def _root_mean_square(spectrum: Tensor, active: Tensor) -> Tensor:
    return ((squared_magnitude(spectrum) @ active) / active.sum()).sqrt().unsqueeze(-1)

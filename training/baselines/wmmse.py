"""Weighted least squares (Eq. 7): for each query or shared, solved directly or by conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from synthesis.conjugate_gradients import conjugate_gradients
from synthesis.paths import AcousticPaths, ControlFilter
from synthesis.toeplitz import GohbergSemencul, SymmetricToeplitz
from synthesis.wiener import design_shared_wmmse, design_wmmse, toeplitz_symbol, toeplitz_system, wmmse_weights
from training.training_set import TrainingSet

FAST_ITERATIONS = 72
FAST_TAPER = 16.0
"""The weights end at the edges of the scored bands like a brick wall, 60 dB high; see `GohbergSemencul`. With 72
iterations 30 measured ears come within 0.012 dB of the direct solution's noise reduction in the mean."""


@dataclass(frozen=True)
class Wmmse:
    """Direct double-precision Toeplitz solve. reference_psd: mean square per bin, [n_bins], in the paths' type."""

    reference_psd: Tensor
    name: str = "wmmse"

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Taps [batch, 2048] from estimated paths."""
        return ControlFilter(design_wmmse(paths, self.reference_psd))


@dataclass(frozen=True)
class WmmsePcg:
    """Single-precision conjugate gradients from zero, to a relative residual of 1e-6 or `budget` iterations.

    The paper's diagonal preconditioner is a scalar for a Toeplitz matrix and leaves every iterate unchanged, so it
    is applied as none. reference_psd: mean square per bin, [n_bins].
    """

    reference_psd: Tensor
    budget: int

    @property
    def name(self) -> str:
        """`wmmse_pcg_32` and so on."""
        return f"wmmse_pcg_{self.budget}"

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Taps [batch, 2048] from estimated paths."""
        column, rhs = _single_precision_system(paths, self.reference_psd)
        solution = conjugate_gradients(SymmetricToeplitz(column), rhs, n_iterations=self.budget)
        return ControlFilter(solution.value.to(paths.primary.real))


@dataclass(frozen=True)
class WmmseFast:
    """Single-precision conjugate gradients as the `fast` refinement runs them, behind the approximate inverse of
    Gohberg and Semencul. reference_psd: mean square per bin, [n_bins].
    """

    reference_psd: Tensor
    n_iterations: int = FAST_ITERATIONS
    name: str = "wmmse_fast"

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Taps [batch, 2048] from estimated paths."""
        column, rhs = _single_precision_system(paths, self.reference_psd)
        preconditioner = GohbergSemencul(
            toeplitz_symbol(paths.to(torch.float32), wmmse_weights(self.reference_psd.to(torch.float32))),
            column.shape[-1],
            FAST_TAPER,
        )
        solution = conjugate_gradients(
            SymmetricToeplitz(column), rhs, preconditioner, n_iterations=self.n_iterations
        )
        return ControlFilter(solution.value.to(paths.primary.real))


@dataclass(frozen=True)
class SupportSharedWmmse:
    """One filter for every query: the weighted least-squares solution over all estimates of the support.

    taps: [1, 2048].
    """

    taps: Tensor
    name: str = "wmmse_shared"

    @classmethod
    def fit(cls, training_set: TrainingSet, reference_psd: Tensor) -> Self:
        """One direct solve on the support's own calibration. reference_psd: mean square per bin, [n_bins]."""
        return cls(design_shared_wmmse(support_estimates(training_set), reference_psd))

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """The same taps for each of the paths: [batch, 2048]."""
        return ControlFilter(self.taps.to(paths.primary.real).expand(paths.batch_size, -1))


def support_estimates(training_set: TrainingSet) -> AcousticPaths:
    """Estimates of the support cases from the run's own calibration."""
    return AcousticPaths.from_impulse_responses(
        training_set.primary_estimates[0], training_set.secondary_estimates[0]
    )


def _single_precision_system(paths: AcousticPaths, reference_psd: Tensor) -> tuple[Tensor, Tensor]:
    return toeplitz_system(paths.to(torch.float32), wmmse_weights(reference_psd.to(torch.float32)))

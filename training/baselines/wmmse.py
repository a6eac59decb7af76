"""Weighted least squares (Eq. 7) beside the service's direct solve: by conjugate gradients, and shared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from prime_anc.method.paths import AcousticPaths, ControlFilter
from prime_anc.method.start.wiener import design_shared_wmmse, toeplitz_system, wmmse_weights
from prime_anc.method.updates.toeplitz import SymmetricToeplitz, conjugate_gradients
from training.training_set import TrainingSet


@dataclass(frozen=True)
class WmmsePcg:
    """Single-precision conjugate gradients from zero, to a relative residual of 1e-6 or `budget` iterations.

    The paper's diagonal preconditioner is a scalar for a Toeplitz matrix, leaves the iterates unchanged, and is
    omitted.
    """

    # Mean square per bin, [n_bins].
    reference_psd: Tensor
    budget: int

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Design taps [batch, 2048] from estimated paths."""
        weights = wmmse_weights(self.reference_psd.to(torch.float32))
        column, rhs = toeplitz_system(paths.to(torch.float32), weights)
        solution = conjugate_gradients(SymmetricToeplitz(column), rhs, n_iterations=self.budget)
        return ControlFilter(solution.value.to(paths.primary.real))


@dataclass(frozen=True)
class SharedFilter:
    """One filter for all queries."""

    # [1, n_taps].
    taps: Tensor

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Return the same taps for all paths, [batch, n_taps]."""
        return ControlFilter(self.taps.to(paths.primary.real).expand(paths.batch_size, -1))


class SupportSharedWmmse(SharedFilter):
    """The weighted least-squares solution over all estimates of the support."""

    @classmethod
    def fit(cls, training_set: TrainingSet, reference_psd: Tensor) -> Self:
        """Solve once, directly, on the support's calibration; reference_psd is the mean square per bin, [n_bins]."""
        return cls(design_shared_wmmse(support_estimates(training_set), reference_psd))


def support_estimates(training_set: TrainingSet) -> AcousticPaths:
    """Return the estimates of the support cases from the run's calibration."""
    return AcousticPaths.from_impulse_responses(
        training_set.primary_estimates[0], training_set.secondary_estimates[0]
    )

"""Iterative FIR: Adam on a query's taps, with the reference-spectrum version of Eq. 6.

The paper's iterative reference: 8192 steps of 5e-4 from the full-band ratio base, on the estimated paths. Without a
generator, the penalty on its correction Delta is absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prime_anc.method.arrays import minimum_phase_fir
from prime_anc.method.paths import AcousticPaths, ControlFilter
from prime_anc.method.start.features import log_base_magnitude, regularised_ratio
from training.config import ObjectiveConfig, load_config
from training.objective import FrequencyDomainObjective, Rng

# The paper's weights of Eq. 6 and its 23 bands.
PAPER_OBJECTIVE = load_config("prime").objective
N_STEPS = 8192
LEARNING_RATE = 5e-4


class TapLoss(FrequencyDomainObjective):
    """Eq. 6 without the Delta term, and its gradient, per ear."""

    def __init__(self, config: ObjectiveConfig, paths: AcousticPaths, reference_psd: Tensor) -> None:
        """paths: [batch, n_bins], estimated or true. reference_psd: mean square per bin, [n_bins]."""
        super().__init__(config, reference_psd.to(paths.primary.real))
        self._paths = paths
        self.n_ears = paths.batch_size

    def band_powers(self, true: Any, taps: Tensor, response: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
        """Compute the powers on the ears' estimated paths."""
        return self.powers(self._paths, response)

    def value_and_gradient(self, taps: Tensor) -> tuple[Tensor, Tensor]:
        """Compute L and its gradient, [batch] and [batch, n_taps], for taps [batch, n_taps]."""
        with torch.enable_grad():
            taps = taps.detach().requires_grad_()
            loss = self.of_items(None, taps, taps.new_zeros(len(taps), 1))
            (gradient,) = torch.autograd.grad(loss.sum(), taps)
        return loss.detach(), gradient


@dataclass(frozen=True)
class IterativeFir:
    """N_STEPS Adam steps on the taps from the ratio base, independently per ear."""

    # Mean square per bin, [n_bins].
    reference_psd: Tensor

    @torch.no_grad()
    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Design taps [batch, 2048] from estimated paths."""
        loss, taps = TapLoss(PAPER_OBJECTIVE, paths, self.reference_psd), ratio_base(paths)
        # Adam treats taps separately, so that ears are independent.
        optimiser = torch.optim.Adam([taps], lr=LEARNING_RATE)
        for _ in range(N_STEPS):
            _, taps.grad = loss.value_and_gradient(taps)
            optimiser.step()
        return ControlFilter(taps)


def ratio_base(paths: AcousticPaths) -> Tensor:
    """Compute the minimum-phase FIR of the full-band |W_reg|, [batch, 2048], the start of `prime` and the descent."""
    return minimum_phase_fir(log_base_magnitude(regularised_ratio(paths.primary, paths.secondary), "full_band"))

"""First-order meta-learning of an initial FIR (FOMAML: Finn et al. 2017; Shi et al. 2021 for noise control).

800 pooled updates minimise the mean loss of one filter over support cases; 400 meta updates then minimise the loss
of the cases after an inner step, with the gradient taken at the adapted filter. The result is scored
as it is, before any inner step, for every query alike. Supervision is by true support paths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from torch import Tensor

from prime_anc.method.conventions import N_TAPS
from prime_anc.method.paths import AcousticPaths
from training.baselines.iterative_fir import PAPER_OBJECTIVE, TapLoss
from training.baselines.wmmse import SharedFilter
from training.training_set import TrainingSet

N_POOLED_UPDATES, N_META_UPDATES = 800, 400
POOLED_LEARNING_RATE = 5e-4
META_LEARNING_RATE = 1e-4
# Step size of the inner gradient step. The gradient's norm is about 200 dB per unit of the taps, whose norm is 0.4.
# From 3e-7 to 1e-5, steps of 1e-6 to 3e-6 gain the most noise reduction; larger ones lose.
INNER_STEP = 1e-6


class Fomaml(SharedFilter):
    """One initial filter for all queries."""

    @classmethod
    @torch.no_grad()
    def fit(
        cls,
        training_set: TrainingSet,
        reference_psd: Tensor,
        *,
        n_pooled_updates: int = N_POOLED_UPDATES,
        n_meta_updates: int = N_META_UPDATES,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> Self:
        """Start from zero taps; Adam in the outer loop, one gradient step in the inner loop, over all cases.

        reference_psd: mean square per bin, [n_bins]. progress: called after each update with updates done, updates in
        all, and the mean loss (in the meta phase after the inner step).
        """
        true = training_set.true
        support = AcousticPaths.from_impulse_responses(true.primary, true.secondary)
        loss = TapLoss(PAPER_OBJECTIVE, support, reference_psd)
        taps = torch.zeros(1, N_TAPS, dtype=true.primary.dtype, device=true.primary.device)
        n_updates = n_pooled_updates + n_meta_updates
        optimiser = torch.optim.Adam([taps], lr=POOLED_LEARNING_RATE)
        for update in range(n_updates):
            if update == n_pooled_updates:
                optimiser = torch.optim.Adam([taps], lr=META_LEARNING_RATE)
            adapted = taps.expand(loss.n_ears, -1)
            if update >= n_pooled_updates:
                adapted = adapted - INNER_STEP * loss.value_and_gradient(adapted)[1]
            values, gradient = loss.value_and_gradient(adapted)
            taps.grad = gradient.mean(0, keepdim=True)
            optimiser.step()
            if progress is not None:
                progress(update + 1, n_updates, values.mean().item())
        return cls(taps.detach())

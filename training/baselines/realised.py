"""Filters as hardware runs them, under the service's default ceiling: taps or sections, for one ear or for all.

The designs for all are those of an optimiser on a database of persons: one filter that minimises the updates' objective
over all ears of the support together, as `/export` does with `conditions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from scipy.signal import sosfilt
from torch import Tensor

from prime_anc.hardware.realise import Target, realise
from prime_anc.hardware.residual_power import PathSpectra
from prime_anc.method.paths import AcousticPaths, ControlFilter
from prime_anc.options import DEFAULT_MAX_GAIN_DB
from training.baselines.wmmse import SharedFilter, support_estimates
from training.training_set import TrainingSet

# Length of a cascade's impulse response: 0.34 s, in which a pole at 3 Hz decays by 50 dB.
N_RESPONSE = 16_384


@dataclass(frozen=True)
class IndividualRealisation:
    """The target's filter per ear."""

    # Mean square per bin, [n_bins].
    reference_psd: Tensor
    target: Target

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Design impulse responses [batch, n] from estimated paths."""
        responses = [_response([condition], self.reference_psd, self.target) for condition in _conditions(paths)]
        return ControlFilter(torch.stack(responses).to(paths.primary.real))


class SupportSharedRealisation(SharedFilter):
    """The target's filter for all estimates of the support together, as its impulse response."""

    @classmethod
    def fit(cls, training_set: TrainingSet, reference_psd: Tensor, target: Target) -> Self:
        """Design one filter on the support's calibration."""
        ears = _conditions(support_estimates(training_set))
        return cls(_response(ears, reference_psd, target)[None])


def _conditions(paths: AcousticPaths) -> list[PathSpectra]:
    both = (item.cpu().numpy().astype(np.complex128) for item in (paths.primary, paths.secondary))
    return [PathSpectra(*pair) for pair in zip(*both, strict=True)]


def _response(ears: Sequence[PathSpectra], reference_psd: Tensor, target: Target) -> Tensor:
    """Design one filter for all ears, and return its impulse response [n]."""
    made = realise(ears, reference_psd.cpu().double().numpy(), target, max_gain_db=DEFAULT_MAX_GAIN_DB)
    if made.sections is None:
        return torch.from_numpy(made.taps)
    pulse = np.zeros(N_RESPONSE)
    pulse[0] = 1
    return torch.from_numpy(sosfilt(made.sections.rows, pulse))

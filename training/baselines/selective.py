"""Selective fixed filter: the best of a library of ready filters, after Shi et al. 2022 (SFANC).

SFANC classifies the incoming noise; here it is the acoustic path that differs, so the filter is selected by what
the query's estimated paths predict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from synthesis.noise_reduction import predict
from synthesis.octave_bands import WIDE_BANDS
from synthesis.paths import AcousticPaths, ControlFilter
from synthesis.wiener import design_wmmse
from training.baselines.wmmse import support_estimates
from training.training_set import TrainingSet


@dataclass(frozen=True)
class SelectiveFixedFilter:
    """The support case's WMMSE filter of which the query's estimates predict the most noise reduction.

    library: one filter for each support case, [n_cases, 2048]. reference_psd: mean square per bin, [n_bins].
    """

    library: Tensor
    reference_psd: Tensor

    @classmethod
    def fit(cls, training_set: TrainingSet, reference_psd: Tensor) -> Self:
        """Design the library from the support's own calibration."""
        return cls(design_wmmse(support_estimates(training_set), reference_psd), reference_psd)

    def select(self, paths: AcousticPaths) -> Tensor:
        """Place in the library for each of the estimated paths: [batch]."""
        library = self.library.to(paths.primary.real)
        # The same for every filter, so it changes no order: the estimates are taken as they are.
        certain = library.new_zeros(len(WIDE_BANDS))
        places = []
        for item in range(paths.batch_size):
            one = paths[item : item + 1]
            figures = predict(one, library, self.reference_psd.to(library), uncertainty=certain)
            places.append(figures.mean_noise_reduction_db.argmax())
        return torch.stack(places)

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Taps [batch, 2048] from estimated paths."""
        return ControlFilter(self.library.to(paths.primary.real)[self.select(paths)])

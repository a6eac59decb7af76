"""Selective fixed filter: the best of a library of ready filters, after Shi et al. 2022 (SFANC).

SFANC classifies the incoming noise; here the acoustic path differs, so the filter is selected by the prediction on the
query's estimated paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from prime_anc.method.bands import WIDE_BANDS
from prime_anc.method.paths import AcousticPaths, ControlFilter
from prime_anc.method.predict import band_sums, predict
from prime_anc.method.start.wiener import design_wmmse
from prime_anc.method.types import NOT_JUDGED, Prediction
from training.baselines.wmmse import support_estimates
from training.training_set import TrainingSet


@dataclass(frozen=True)
class SelectiveFixedFilter:
    """The support case's WMMSE filter with the most noise reduction predicted on the query's estimates."""

    # One filter per support case, [n_cases, 2048].
    library: Tensor
    # Mean square per bin, [n_bins].
    reference_psd: Tensor

    @classmethod
    def fit(cls, training_set: TrainingSet, reference_psd: Tensor) -> Self:
        """Design the library from the support's calibration."""
        return cls(design_wmmse(support_estimates(training_set), reference_psd), reference_psd)

    def select(self, paths: AcousticPaths) -> Tensor:
        """Return the library index per estimated path, [batch]."""
        library = self.library.to(paths.primary.real)
        psd, unused = self.reference_psd.to(library), np.zeros((2, len(WIDE_BANDS)))
        places = []
        for item in range(paths.batch_size):
            one = paths[item : item + 1]
            # Their uncertainty is the same for every filter and does not affect the order.
            sums = band_sums(one.primary, one.secondary, library, psd).double().cpu().numpy()
            figures = [predict(value, unused, NOT_JUDGED) for value in sums]
            usable = [
                figure.mean_noise_reduction_db if isinstance(figure, Prediction) else -np.inf for figure in figures
            ]
            places.append(np.argmax(usable))
        return torch.tensor(np.array(places), device=library.device)

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Design taps [batch, 2048] from estimated paths."""
        return ControlFilter(self.library.to(paths.primary.real)[self.select(paths)])

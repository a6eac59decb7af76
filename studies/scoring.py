"""Figures of filters on the true paths, from the reference spectrum: no clips, no convolutions.

In the mean over ears they agree with the time-domain score of `training.scoring` within 0.1 dB.
"""

from __future__ import annotations

import torch
from torch import Tensor

from synthesis.noise_reduction import predict
from synthesis.octave_bands import WIDE_BANDS
from synthesis.paths import AcousticPaths

FIGURES = {
    "noise_reduction_db": "mean_noise_reduction_db",
    "amplification_db": "amplification_db",
    "wide_amplification_db": "wide_amplification_db",
    "control_rms": "control_rms",
    "reached_gain_db": "max_gain_db",
}
"""Column -> attribute of `synthesis.noise_reduction.Prediction`."""


@torch.no_grad()
def spectral_scores(true_paths: AcousticPaths, taps: Tensor, reference_psd: Tensor) -> list[dict[str, float]]:
    """A row of FIGURES for each ear. taps: [batch, 2048]; everything is computed in reference_psd's precision."""
    known = torch.zeros(len(WIDE_BANDS), dtype=reference_psd.dtype)  # true paths have no uncertainty
    found = predict(
        true_paths.to(reference_psd.dtype), taps.to(reference_psd.dtype), reference_psd, uncertainty=known
    )
    columns = {column: getattr(found, name).tolist() for column, name in FIGURES.items()}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]

"""What a model knows of the uncertainty of estimated paths, for requests that say nothing of it.

The coherence of a calibration states how much of the error microphone's power an estimate leaves unexplained.
Without it two things remain: how much that was for the support listeners, and the estimate's own late part. What
arrives 2048 samples after the reference is hardly the ear's response but estimation error, and from ear to ear it
varies with the unexplained power. `synthesis.prediction` combines the two.
"""

import numpy as np
import torch
from torch import Tensor

from synthesis import prediction
from synthesis.arrays import squared_magnitude
from synthesis.noise_reduction import band_sums, band_uncertainty
from synthesis.octave_bands import WIDE_BANDS
from synthesis.paths import AcousticPaths
from synthesis.prediction import LATE_FROM_SAMPLES, POWERS
from synthesis.spectra import band_matrix

SMALLEST_SHARE = 1e-6
"""-60 dB: a response with a smaller late share was cut, and a smaller uncertainty is not credible."""


def late_share(paths: AcousticPaths, reference_psd: Tensor) -> Tensor:
    """Power of the primary estimate from sample 2048 on over all of it, per band of the 31: [batch, 31]."""
    membership = band_matrix(WIDE_BANDS, paths.n_fft, reference_psd.dtype, reference_psd.device)
    response = torch.fft.irfft(paths.primary, n=paths.n_fft)
    late = torch.fft.rfft(torch.nn.functional.pad(response[..., LATE_FROM_SAMPLES:], (LATE_FROM_SAMPLES, 0)))
    late_power = (reference_psd * squared_magnitude(late)) @ membership
    power = (reference_psd * squared_magnitude(paths.primary)) @ membership
    return late_power / power.clamp_min(torch.finfo(power.dtype).tiny)


def learn_uncertainty(paths: AcousticPaths, coherence: Tensor, reference_psd: Tensor) -> Tensor:
    """From support listeners, [2, 31]: the typical uncertainty, and the typical uncertainty per late share.

    Both are geometric means over the batch: the shares of single ears span 10 dB and more.
    """
    uncertainty = band_uncertainty(paths, coherence, reference_psd).clamp_min(SMALLEST_SHARE)
    share = late_share(paths, reference_psd).clamp_min(SMALLEST_SHARE)
    return torch.stack((uncertainty.log().mean(0).exp(), (uncertainty / share).log().mean(0).exp()))


def expected_uncertainty(paths: AcousticPaths, learned: Tensor, reference_psd: Tensor) -> Tensor:
    """What `synthesis.prediction.expected_uncertainty` says of a batch, [batch, 31]; learned: [2, 31]."""
    silent = torch.zeros_like(paths.primary.real[:, :1])
    sums = band_sums(paths, silent, reference_psd, None).double().cpu().numpy()
    powers = sums[:, :-3].reshape(len(sums), len(POWERS), -1)
    expected = [
        prediction.expected_uncertainty(own[0], own[-1], each[-1], learned.double().cpu().numpy())
        for own, each in zip(powers, sums, strict=True)
    ]
    return torch.from_numpy(np.stack(expected)).to(reference_psd)


def uncertainty_given(
    paths: AcousticPaths, coherence: Tensor | None, learned: Tensor, reference_psd: Tensor
) -> Tensor:
    """Unknown over known power as `synthesis.prediction` counts it, with a coherence or without, [batch, 31]."""
    expected = expected_uncertainty(paths, learned, reference_psd)
    if coherence is None:
        return expected
    unexplained = band_uncertainty(paths, coherence, reference_psd)
    return torch.minimum(prediction.COHERENCE_SHARE * unexplained, prediction.MODEL_BOUND * expected)

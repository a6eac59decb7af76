"""The expected uncertainty of estimated paths where no coherence is given.

The coherence of a calibration states how much of the error microphone's power an estimate leaves unexplained.
Without it two things remain: how much that was for the support listeners, and the estimate's own late part. What
arrives 2048 samples after the reference is hardly the ear's response but estimation error, and from ear to ear it
varies with the unexplained power. On 30 measured ears the mean error of predictions without a coherence is 1.0 dB
with the support's ratio of the two, 2.4 dB with the support's mean.
"""

import torch
from torch import Tensor

from synthesis.noise_reduction import band_uncertainty
from synthesis.octave_bands import WIDE_BANDS
from synthesis.paths import AcousticPaths
from synthesis.prediction import LATE_FROM_SAMPLES, NO_LATE_PART, PLAUSIBLE_RANGE
from synthesis.spectra import band_matrix, squared_magnitude


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
    uncertainty = band_uncertainty(paths, coherence, reference_psd).clamp_min(NO_LATE_PART)
    share = late_share(paths, reference_psd).clamp_min(NO_LATE_PART)
    return torch.stack((uncertainty.log().mean(0).exp(), (uncertainty / share).log().mean(0).exp()))


def expected_uncertainty(paths: AcousticPaths, learned: Tensor, reference_psd: Tensor) -> Tensor:
    """Unexplained over explained power to be expected of estimates, [batch, 31]; learned: [2, 31]."""
    typical, per_share = learned[0], learned[1]
    share = late_share(paths, reference_psd)
    scaled = torch.minimum(torch.maximum(per_share * share, typical / PLAUSIBLE_RANGE), typical * PLAUSIBLE_RANGE)
    return torch.where(share > NO_LATE_PART, scaled, typical)

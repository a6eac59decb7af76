"""A secondary estimate freed from measurement noise, by what its own window tells of that noise.

A secondary path is short, and the shorter the higher the frequency, but an estimate's noise is spread evenly over
all of its lags. So the estimate is split into bands that add up to it, and each lag of each band is multiplied by

    g_b[n] = max(0, 1 - OVERESTIMATE s_b / v_b[n]),

v_b[n] the band's mean square about that lag and s_b that of the noise, from lags where no ear rings any more.
Where there is no noise the gain is one. A gain over lags alone would cost what it should save: late lags hold
little in all, yet at low frequencies far more than the noise.
"""

from __future__ import annotations

import torch
from torch import Tensor

from synthesis.conventions import SAMPLE_RATE_HZ

N_BANDS = 5
LOWEST_CENTRE_HZ = 62.5
BAND_OCTAVES = 2.0
"""Narrower bands recover no more, and from half octaves on less: their filters smear over the lags."""
OVERESTIMATE = 4.0
"""A mean over a few lags of noise exceeds the noise's mean by up to this. Six recover no more, two 0.15 dB less."""
SMOOTHING = 0.2
MIN_SMOOTHING_SAMPLES = 16


def denoised(response: Tensor, noise: Tensor) -> Tensor:
    """Responses real [..., n_taps] with every lag of every band shrunk as the noise demands.

    noise: what the same estimate holds at lags without a response, real [..., n] (`silent_lags`).
    """
    bands = split_into_bands(response)
    noise_power = split_into_bands(noise).square().sum(-1, keepdim=True) / noise.shape[-1]
    power = smoothed(bands.square(), SMOOTHING)
    tiny = torch.finfo(power.dtype).tiny
    gain = (1 - OVERESTIMATE * noise_power / power.clamp_min(tiny)).clamp_min(0)
    return (gain * bands).sum(-2)[..., : response.shape[-1]]


def silent_lags(whole: Tensor) -> Tensor:
    """Of a response with all lags of its window, real [..., window], what holds nothing of a secondary path: from
    half of the window to seven eighths, later than an ear rings and earlier than what precedes sample 0."""
    window = whole.shape[-1]
    return whole[..., window // 2 : window * 7 // 8]


def split_into_bands(responses: Tensor) -> Tensor:
    """Zero-phase bands of real [..., n_taps], two octaves wide, that add up to them: [..., 5, 4 * n_taps].

    Raised cosines over log frequency; the lowest reaches down to 0 Hz, the highest up to Nyquist. Lags are
    circular, because a band's filter has no delay and reaches before its input.
    """
    n_fft = 4 * responses.shape[-1]
    frequency_hz = torch.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE_HZ, dtype=responses.dtype, device=responses.device)
    octaves = torch.log2(frequency_hz.clamp_min(1.0) / LOWEST_CENTRE_HZ)
    place = (octaves / BAND_OCTAVES).clamp(0, N_BANDS - 1)
    centres = torch.arange(N_BANDS, dtype=responses.dtype, device=responses.device).unsqueeze(-1)
    masks = torch.cos((place - centres).clamp(-1, 1) * torch.pi / 2).square()
    return torch.fft.irfft(torch.fft.rfft(responses, n=n_fft).unsqueeze(-2) * masks, n=n_fft)


def smoothed(power: Tensor, share: float) -> Tensor:
    """Circular [..., 2 * m] averaged over the lags within `share` of a lag's distance from 0, and at least 16."""
    half = power.shape[-1] // 2
    before = _smoothed(power[..., half:].flip(-1), share).flip(-1)
    return torch.cat([_smoothed(power[..., :half], share), before], dim=-1)


def _smoothed(power: Tensor, share: float) -> Tensor:
    n_lags = power.shape[-1]
    lags = torch.arange(n_lags, device=power.device)
    half = (share * lags).long().clamp_min(MIN_SMOOTHING_SAMPLES)
    first, last = (lags - half).clamp_min(0), (lags + half + 1).clamp_max(n_lags)
    sums = torch.nn.functional.pad(power.cumsum(-1), (1, 0))
    return (sums[..., last] - sums[..., first]).clamp_min(0) / (last - first)

"""Secondary-path estimates freed from measurement noise, by what the support's true responses teach.

A secondary path is short, and the shorter the higher the frequency, but an estimate's noise is spread evenly over
all of its lags. So the estimate is split into bands that add up to it, and each lag of each band is multiplied by
the Wiener gain

    g_b[n] = v_b[n] / (v_b[n] + s_b),

v_b[n] the mean square of the support's true responses at that band and lag, s_b the noise: the mean square of
the estimate's own late part less what the support's responses hold there. Without noise the gain is one.

A gain over lags alone would cost what it should save: late lags hold little in all, yet at low frequencies far
more than the noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from synthesis.conventions import SAMPLE_RATE_HZ
from training.datasets.path_pairs import DatasetError

N_BANDS = 5
LOWEST_CENTRE_HZ = 62.5
BAND_OCTAVES = 2.0
"""Narrower bands recover no more, and from half octaves on less: their filters smear over the lags."""
LATE_SHARE = 0.25
"""The last quarter of an estimate is late: on measured ears it lies 60 dB below the first millisecond."""
SMOOTHING = 0.1
"""Powers are averaged over lags within this share of the lag itself, so that a few persons are enough."""
MIN_SMOOTHING_SAMPLES = 16


@dataclass(frozen=True)
class DecayPrior:
    """How a support's secondary paths decay.

    power: mean square per band and lag, float64 [5, 4 * n_taps]; lags are circular, because a band's filter has
    no delay and reaches before its input.
    """

    power: Tensor

    @classmethod
    def fit(cls, responses: Tensor) -> DecayPrior:
        """From true secondary responses, real [n, n_taps], n >= 1.

        Raises DatasetError for anything else.
        """
        _check(responses)
        power = split_into_bands(responses.to(torch.float64)).square().mean(0)
        half = power.shape[-1] // 2
        before = _smoothed(power[:, half:].flip(-1)).flip(-1)
        return cls(torch.cat([_smoothed(power[:, :half]), before], dim=-1))

    @property
    def n_taps(self) -> int:
        """Length of the responses."""
        return self.power.shape[-1] // 4

    def denoise(self, estimates: Tensor) -> Tensor:
        """Estimates [batch, n_taps] with every lag of every band shrunk as its noise demands; same type.

        Raises DatasetError for estimates of another length than the support's responses.
        """
        _check(estimates)
        if estimates.shape[-1] != self.n_taps:
            raise DatasetError(f"denoising: found estimates of {estimates.shape[-1]} taps, expected {self.n_taps}")
        bands = split_into_bands(estimates.to(torch.float64))
        late = slice(self.n_taps - int(LATE_SHARE * self.n_taps), self.n_taps)
        found = bands[..., late].square().mean(-1)
        noise = (found - self.power[:, late].mean(-1)).clamp_min(0).unsqueeze(-1)
        # Where there is no noise the gain is one, also at a lag at which the support has no power at all.
        gain = torch.where(noise > 0, self.power / (self.power + noise).clamp_min(torch.finfo(noise.dtype).tiny), 1)
        return (gain * bands).sum(-2)[..., : self.n_taps].to(estimates.dtype)


def split_into_bands(responses: Tensor) -> Tensor:
    """Zero-phase bands of real [batch, n_taps], two octaves wide, that add up to them: [batch, 5, 4 * n_taps].

    Raised cosines over log frequency; the lowest reaches down to 0 Hz, the highest up to Nyquist.
    """
    n_fft = 4 * responses.shape[-1]
    frequency_hz = torch.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE_HZ, dtype=responses.dtype, device=responses.device)
    octaves = torch.log2(frequency_hz.clamp_min(1.0) / LOWEST_CENTRE_HZ)
    place = (octaves / BAND_OCTAVES).clamp(0, N_BANDS - 1)
    centres = torch.arange(N_BANDS, dtype=responses.dtype, device=responses.device).unsqueeze(-1)
    masks = torch.cos((place - centres).clamp(-1, 1) * torch.pi / 2).square()
    return torch.fft.irfft(torch.fft.rfft(responses, n=n_fft).unsqueeze(-2) * masks, n=n_fft)


def _smoothed(power: Tensor) -> Tensor:
    """Mean over the lags from n - h to n + h, h a tenth of n and at least 16: [..., n_lags]."""
    n_lags = power.shape[-1]
    lags = torch.arange(n_lags, device=power.device)
    half = (SMOOTHING * lags).long().clamp_min(MIN_SMOOTHING_SAMPLES)
    first, last = (lags - half).clamp_min(0), (lags + half + 1).clamp_max(n_lags)
    sums = torch.nn.functional.pad(power.cumsum(-1), (1, 0))
    return (sums[..., last] - sums[..., first]).clamp_min(0) / (last - first)


def _check(responses: Tensor) -> None:
    if responses.ndim != 2 or 0 in responses.shape or not bool(torch.isfinite(responses).all()):
        raise DatasetError(
            f"denoising: found responses of shape {tuple(responses.shape)}, expected finite [n, n_taps], n >= 1"
        )

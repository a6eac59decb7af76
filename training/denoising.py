"""Secondary-path estimates freed from measurement noise, by what the support's true responses teach.

The yardstick of `synthesis.denoising`, which does without a support: the same bands, but each lag of each band is
multiplied by the Wiener gain

    g_b[n] = v_b[n] / (v_b[n] + s_b),

v_b[n] the mean square of the support's true responses at that band and lag, s_b the noise: the mean square of
the estimate's own late part less what the support's responses hold there. Without noise the gain is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from synthesis.denoising import smoothed, split_into_bands
from training.datasets.path_pairs import DatasetError

LATE_SHARE = 0.25
"""The last quarter of an estimate is late: on measured ears it lies 60 dB below the first millisecond."""
SMOOTHING = 0.1
"""Powers are averaged over lags within this share of the lag itself, so that a few persons are enough."""


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
        return cls(smoothed(power, SMOOTHING))

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


def _check(responses: Tensor) -> None:
    if responses.ndim != 2 or 0 in responses.shape or not bool(torch.isfinite(responses).all()):
        raise DatasetError(
            f"denoising: found responses of shape {tuple(responses.shape)}, expected finite [n, n_taps], n >= 1"
        )

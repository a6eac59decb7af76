"""Iterative FIR: Adam on the taps of each query, on the reference-spectrum version of Eq. 6.

The paper's iterative reference: 8192 steps of 5e-4 from the full-band ratio base, on the estimated paths. There is
no generator, so the penalty on its correction Delta is absent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from synthesis.noise_reduction import level_db
from synthesis.octave_bands import AMP_BANDS, NR_BANDS
from synthesis.paths import AcousticPaths, ControlFilter
from synthesis.spectra import band_matrix, squared_magnitude
from training.baselines.analytic import RatioBase
from training.config import ObjectiveConfig, load_config
from training.objective import ENERGY_FLOOR, RISK_SHARE

PAPER_OBJECTIVE = load_config("prime").objective
"""The paper's weights of Eq. 6 and its 23 bands."""

LEARNING_RATE = 5e-4

DB_PER_NEPER = 10 / math.log(10)
"""Of a power ratio: d (10 log10 x) = DB_PER_NEPER dx / x."""


class TapLoss:
    """Eq. 6 of `FrequencyDomainObjective` without the Delta term, for each ear, with an explicit gradient.

    All that does not change between two steps is computed once, and a step costs one transform of the taps and
    one of the gradient: two fifths of the time that automatic differentiation takes.
    """

    def __init__(self, config: ObjectiveConfig, paths: AcousticPaths, reference_psd: Tensor) -> None:
        """paths: [batch, n_bins], estimated or true. reference_psd: mean square per bin, [n_bins].

        config: its risk is that of the scored bands; ValueError where it asks for more.
        """
        if config.risk_bands != "scored":
            raise ValueError(f"risk_bands: found {config.risk_bands!r}, expected 'scored', the paper's")
        reference_psd = reference_psd.to(paths.primary.real)
        self.n_ears = paths.batch_size
        self._config = config
        self._n_fft = paths.n_fft
        bands = AMP_BANDS
        membership = band_matrix(bands, paths.n_fft, reference_psd.dtype, reference_psd.device)
        in_bands = membership.sum(-1).nonzero()
        self._used = slice(int(in_bands[0]), int(in_bands[-1]) + 1)
        self._membership = membership[self._used]
        amplitude = reference_psd.sqrt()
        self._primary = (amplitude * paths.primary)[:, self._used]
        self._secondary = (amplitude * paths.secondary)[:, self._used]
        self._floor = ENERGY_FLOOR * (reference_psd * squared_magnitude(paths.primary)).sum(-1, keepdim=True)
        self._disturbance = self._band_power(self._primary)
        self._in_target = torch.zeros_like(self._disturbance[:1])
        first = bands.index(NR_BANDS[0])
        self._in_target[:, first : first + len(NR_BANDS)] = 1 / len(NR_BANDS)
        n_worst = RISK_SHARE * len(bands)
        self._shares = self._in_target.new_ones(math.ceil(n_worst - 1e-9))
        self._shares[-1] = n_worst - (len(self._shares) - 1)
        self._shares /= n_worst

    def _band_power(self, spectrum: Tensor) -> Tensor:
        return squared_magnitude(spectrum) @ self._membership + self._floor

    def __call__(self, taps: Tensor) -> tuple[Tensor, Tensor]:
        """L and its gradient: [batch] and [batch, n_taps], for taps [batch, n_taps]."""
        config = self._config
        response = torch.fft.rfft(taps, n=self._n_fft)
        residual = self._primary - self._secondary * response[:, self._used]
        error = self._band_power(residual)
        reduction = level_db(self._disturbance / error)
        # A band without risk adds a zero to the sum and nothing to the gradient.
        worst = (config.risk_margin_db - reduction).clamp_min(0).topk(len(self._shares), dim=-1)
        risk = (worst.values * self._shares).sum(-1)
        at_risk = torch.zeros_like(error).scatter(-1, worst.indices, self._shares * (worst.values > 0))
        # dL / dE_b: every term falls with R_b = 10 log10(D_b / E_b).
        slope = DB_PER_NEPER * (self._in_target + config.risk_weight * at_risk) / error

        power = squared_magnitude(response)
        excess = (level_db(power) - config.gain_limit_db).clamp_min(0)
        # Where the excess is not zero, |W| is far from it.
        gain_slope = 2 * DB_PER_NEPER * config.gain_weight / power.shape[-1] * excess / power.clamp_min(1.0)
        bend = taps.diff(n=2, dim=-1)
        loss = (
            -(reduction * self._in_target).sum(-1)
            + config.risk_weight * risk
            + config.gain_weight * excess.square().mean(-1)
            + config.smoothness_weight * bend.square().mean(-1)
        )

        # With G = dL / d Re W + i dL / d Im W, dL / dw_n = sum_k Re G_k e^(2 pi i k n / N) over the one-sided bins,
        # which the inverse transform counts twice but for its two ends: G / 2 goes in.
        gradient = gain_slope * response
        gradient[:, self._used] -= (slope @ self._membership.T) * (self._secondary.conj() * residual)
        gradient[:, :: gradient.shape[-1] - 1] *= 2
        by_taps = torch.fft.irfft(gradient)[:, : taps.shape[-1]] * self._n_fft
        by_taps += 2 * config.smoothness_weight / bend.shape[-1] * pad(bend, (2, 2)).diff(n=2, dim=-1)
        return loss, by_taps


@dataclass(frozen=True)
class IterativeFir:
    """`n_steps` Adam steps on the taps from the ratio base, every ear by itself.

    reference_psd: mean square per bin, [n_bins].
    """

    reference_psd: Tensor
    n_steps: int = 8192
    name: str = "iterative_fir"

    @torch.no_grad()
    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Taps [batch, 2048] from estimated paths."""
        loss = TapLoss(PAPER_OBJECTIVE, paths, self.reference_psd)
        taps = RatioBase("full_band").design(paths).taps
        return ControlFilter(descend(loss, taps, self.n_steps, LEARNING_RATE))


def descend(loss: TapLoss, taps: Tensor, n_steps: int, learning_rate: float) -> Tensor:
    """Taps after `n_steps` of Adam, [batch, n_taps]; Adam treats each tap by itself, so ears never mix."""
    taps = taps.clone()
    optimiser = torch.optim.Adam([taps], lr=learning_rate)
    for _ in range(n_steps):
        _, taps.grad = loss(taps)
        optimiser.step()
    return taps

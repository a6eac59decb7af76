"""The training objective (Eq. 6), on the realised FIR and the true support paths.

    L = -NR + 0.25 CVaR_0.1([-R_b]_+) + 0.02 mean([20 log10|W| - 24]_+^2) + 1e-3 mean(Delta^2) + 1e-3 smoothness

The band reductions R_b come from 3-s clips and Hann STFTs, as in the paper, or from the reference power spectrum
on the design grid, which needs neither clips nor long convolutions. A margin in the risk, [margin - R_b]_+, counts
bands that are quieter by less than it: what a support listener has to spare, a held-out one may need. The bands
beyond the scored ones have a separate margin, since few filters can make them quieter at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.fft import next_fast_len
from torch import Tensor

from prime_anc.method.arrays import level_db, squared_magnitude
from prime_anc.method.bands import AMP_BANDS, NR_BANDS, WIDE_BANDS, band_matrix
from prime_anc.method.conventions import DESIGN_N_FFT, N_TAPS, SAMPLE_RATE_HZ
from prime_anc.method.paths import AcousticPaths
from training.config import ObjectiveConfig
from training.datasets.noise import NoiseSet
from training.datasets.path_pairs import MAX_PATH_SAMPLES

CLIP_SAMPLES = 3 * SAMPLE_RATE_HZ
CLIPS_FROM_SAMPLES = 4 * SAMPLE_RATE_HZ
STFT_N_FFT, STFT_HOP = 8192, 2048
RISK_SHARE = 0.1
ENERGY_FLOOR = 1e-12

# Of the random part of an evaluation, if it has any.
Rng = np.random.Generator | None


@dataclass(frozen=True)
class TruePaths:
    """True support paths of a batch, real [batch, n <= 8192]."""

    primary: Tensor
    secondary: Tensor


def conditional_value_at_risk(values: Tensor) -> Tensor:
    """Average the largest tenth of values [..., n], the last one counted by its fraction: [...].

    Of 23 bands the worst tenth is (x_1 + x_2 + 0.3 x_3) / 2.3.
    """
    n_worst = RISK_SHARE * values.shape[-1]
    n_touched = int(np.ceil(n_worst - 1e-9))
    weights = torch.ones(n_touched, dtype=values.dtype, device=values.device)
    weights[-1] = n_worst - (n_touched - 1)
    return (values.topk(n_touched, dim=-1).values * weights).sum(-1) / n_worst


class Objective:
    """Eq. 6 for a batch; subclasses compute the band powers."""

    def __init__(self, config: ObjectiveConfig) -> None:
        """config: weights and the bands of the risk."""
        self.config = config
        self.bands = AMP_BANDS if config.risk_bands == "scored" else WIDE_BANDS
        margins = [config.risk_margin_db if n in AMP_BANDS else config.outer_margin_db for n in self.bands]
        self._margin_db = torch.tensor(margins)

    def band_powers(self, true: Any, taps: Tensor, response: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
        """Compute disturbance and error power per band, [batch, n_bands], floored above zero.

        Parameters
        ----------
        response
            Spectrum of the taps on the design grid, [batch, n_bins].
        rng
            Of the random part of an evaluation, if it has any.
        """
        raise NotImplementedError

    def __call__(self, true: TruePaths, taps: Tensor, correction: Tensor, rng: np.random.Generator) -> Tensor:
        """Average L over the batch; arguments as for `of_items`."""
        return self.of_items(true, taps, correction, rng).mean()

    def of_items(self, true: Any, taps: Tensor, correction: Tensor, rng: Rng = None) -> Tensor:
        """Compute L per item, [batch].

        Parameters
        ----------
        true
            `TruePaths` of the batch.
        taps
            [batch, 2048].
        correction
            Delta, [batch, any number of points].
        rng
            As for `band_powers`.
        """
        config = self.config
        response = torch.fft.rfft(taps, n=DESIGN_N_FFT)
        disturbance, error = self.band_powers(true, taps, response, rng)
        reduction = level_db(disturbance / error)
        first = self.bands.index(NR_BANDS[0])
        noise_reduction = reduction[:, first : first + len(NR_BANDS)].mean(-1)
        risk = conditional_value_at_risk((self._margin_db.to(reduction) - reduction).clamp_min(0))
        gain_db = level_db(squared_magnitude(response))
        excess = (gain_db - config.gain_limit_db).clamp_min(0).square().mean(-1)
        roughness = taps.diff(n=2, dim=-1).square().mean(-1)
        return (
            -noise_reduction
            + config.risk_weight * risk
            + config.gain_weight * excess
            + config.correction_weight * correction.square().mean(-1)
            + config.smoothness_weight * roughness
        )


class TimeDomainObjective(Objective):
    """Band powers from a random 3 s clip of a random noise per item, from its first 4 s."""

    def __init__(self, config: ObjectiveConfig, noise: NoiseSet, device: torch.device) -> None:
        """noise: signals at 48 kHz, kept in float32."""
        super().__init__(config)
        self._signals = torch.from_numpy(noise.signals[:, :CLIPS_FROM_SAMPLES]).float().to(device)
        self._window = torch.hann_window(STFT_N_FFT, device=device)
        self._membership = band_matrix(self.bands, STFT_N_FFT, self._window)
        # Bands narrower than the STFT's bins are silent in both signals and count as 0 dB.
        self._n_fft = next_fast_len(CLIP_SAMPLES + MAX_PATH_SAMPLES + N_TAPS, real=True)

    def band_powers(self, true: TruePaths, taps: Tensor, response: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
        """Draw a noise and a clip per item, convolve from rest, keep the clip's 3 s, sum the STFT's cells."""
        assert rng is not None
        highest = len(self._signals), CLIPS_FROM_SAMPLES - CLIP_SAMPLES + 1
        noise, start = torch.from_numpy(np.array([rng.integers(highest) for _ in taps])).to(taps.device).unbind(-1)
        clips = self._signals.unfold(-1, CLIP_SAMPLES, 1)[noise, start]
        n = self._n_fft
        reference = torch.fft.rfft(clips, n=n)
        primary = torch.fft.rfft(true.primary, n=n)
        remaining = primary - torch.fft.rfft(true.secondary, n=n) * torch.fft.rfft(taps, n=n)
        disturbance = torch.fft.irfft(primary * reference, n=n)[:, :CLIP_SAMPLES]
        error = torch.fft.irfft(remaining * reference, n=n)[:, :CLIP_SAMPLES]
        floor = ENERGY_FLOOR * disturbance.square().sum(-1, keepdim=True)
        return self._power(disturbance) + floor, self._power(error) + floor

    def _power(self, signal: Tensor) -> Tensor:
        cells = torch.stft(signal, STFT_N_FFT, STFT_HOP, window=self._window, center=False, return_complex=True)
        return squared_magnitude(cells).sum(-1) @ self._membership


class FrequencyDomainObjective(Objective):
    """Band powers of the mean reference spectrum on the design grid."""

    def __init__(self, config: ObjectiveConfig, reference_psd: Tensor) -> None:
        """reference_psd: mean square per bin, [n_bins]."""
        super().__init__(config)
        self._psd = reference_psd
        n_fft = 2 * (reference_psd.shape[-1] - 1)
        self._membership = band_matrix(self.bands, n_fft, reference_psd)

    def band_powers(self, true: TruePaths, taps: Tensor, response: Tensor, rng: Rng) -> tuple[Tensor, Tensor]:
        """Weight |P|^2 and |P - S W|^2 with the reference spectrum; nothing is drawn."""
        return self.powers(AcousticPaths.from_impulse_responses(true.primary, true.secondary), response)

    def powers(self, paths: AcousticPaths, response: Tensor) -> tuple[Tensor, Tensor]:
        """Compute `band_powers` from paths on the design grid."""
        disturbance = self._psd * squared_magnitude(paths.primary)
        error = self._psd * squared_magnitude(paths.primary - paths.secondary * response)
        floor = ENERGY_FLOOR * disturbance.sum(-1, keepdim=True)
        return disturbance @ self._membership + floor, error @ self._membership + floor

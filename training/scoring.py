"""Time-domain score of a filter on true paths (Section 3.1 of the paper).

Noises are convolved from 6.5 s on and scored from 7 to 10 s, in six blocks of 0.5 s. A block's band powers sum the Hann
STFT frames inside it, so that no sample counts in two blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from scipy.fft import next_fast_len
from torch import Tensor

from prime_anc.method.arrays import level_db, squared_magnitude
from prime_anc.method.bands import AMP_BANDS, NR_BANDS, WIDE_BANDS, band_matrix
from prime_anc.method.conventions import N_TAPS, SAMPLE_RATE_HZ
from prime_anc.method.predict import HIGH_BANDS, LOW_BANDS
from training.datasets.noise import BLOCK_SAMPLES, N_BLOCKS, SCORED_FROM_SAMPLES, NoiseSet
from training.datasets.path_pairs import MAX_PATH_SAMPLES, Float64, PathPair

WARM_UP_SAMPLES = SAMPLE_RATE_HZ // 2
START_SAMPLES = SCORED_FROM_SAMPLES - WARM_UP_SAMPLES
STFT_N_FFT, STFT_HOP = 8192, 2048
ENERGY_FLOOR = 1e-12
LATE_CUT_SAMPLES = 2048

# 25 Hz to 20 kHz: the 20 Hz band (17.8 to 22.4 Hz) has no bin in an 8192-point transform.
SCORED_BANDS = WIDE_BANDS[1:]


@dataclass(frozen=True)
class Score:
    """Figures of one filter on one ear, means over noises and blocks; positive NR is quieter, all others louder."""

    # Reduction per band of SCORED_BANDS, [30].
    band_db: tuple[float, ...]
    # Over 50 Hz to 5 kHz.
    noise_reduction_db: float
    # Over 50 Hz to 8 kHz, clipped per block before averaging.
    amplification_db: float
    # Over SCORED_BANDS.
    wide_amplification_db: float
    # Change of level from 22.4 to 44.7 Hz.
    out_of_band_low_db: float
    # Change of level from 8.9 to 22.4 kHz.
    out_of_band_high_db: float
    # Loudest band above 8.9 kHz.
    worst_high_band_db: float
    # Largest |W|.
    max_gain_db: float
    # RMS of the loudspeaker's signal, w * x.
    control_rms: float
    # With the primary's taps from 2048 on set to zero.
    late_cut_noise_reduction_db: float


class TimeDomainScore:
    """Scores filters on true paths with a fixed noise set.

    In float32 by default: its rounding lies 120 dB below the disturbance, and the figures differ from float64's
    by less than 0.001 dB.
    """

    def __init__(self, noise: NoiseSet, dtype: torch.dtype = torch.float32) -> None:
        """Keep the noises' spectra, about 7 MB."""
        n_samples = WARM_UP_SAMPLES + N_BLOCKS * BLOCK_SAMPLES
        segment = noise.signals[:, START_SAMPLES : START_SAMPLES + n_samples]
        if segment.shape[1] < n_samples:
            raise ValueError(
                f"noise: found {noise.signals.shape[1] / SAMPLE_RATE_HZ:.1f} s, expected at least 10 s"
            )
        self._n_samples = n_samples
        self._n_fft = next_fast_len(n_samples + MAX_PATH_SAMPLES + N_TAPS, real=True)
        self._dtype = dtype
        self._reference = torch.fft.rfft(self._ready(segment), n=self._n_fft)
        self._window = torch.hann_window(STFT_N_FFT, dtype=dtype)
        self._membership = band_matrix(SCORED_BANDS, STFT_N_FFT, self._window)

    def _ready(self, values: Float64) -> Tensor:
        return torch.from_numpy(values).to(self._dtype)

    def __call__(self, pair: PathPair, taps: Tensor) -> list[Score]:
        """Score filters on the pair's true paths.

        Parameters
        ----------
        pair
            An ear.
        taps
            [n_filters, 2048], or [n_filters, n_noises, 2048].
        """
        cut = pair.primary.copy()
        cut[LATE_CUT_SAMPLES:] = 0
        primary, shortened, secondary = (self._spectrum(item) for item in (pair.primary, cut, pair.secondary))
        disturbances = [self._disturbance(primary), self._disturbance(shortened)]
        scores = []
        for one in taps.to("cpu", self._dtype):
            response = torch.fft.rfft(one, n=self._n_fft)
            left = (path - secondary * response for path in (primary, shortened))
            measured, late = (
                (power, self._band_power(self._blocks(path)) + floor)
                for path, (power, floor) in zip(left, disturbances, strict=True)
            )
            scores.append(_figures(measured, late, response, self._blocks(response)))
        return scores

    def _spectrum(self, path: Float64) -> Tensor:
        return torch.fft.rfft(self._ready(path), n=self._n_fft)

    def _disturbance(self, primary: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the disturbance's band powers, [n_noises, n_blocks, n_bands], with their floor, and the floor."""
        blocks = self._blocks(primary)
        floor = ENERGY_FLOOR * blocks.square().sum() / N_BLOCKS
        return self._band_power(blocks) + floor, floor

    def _blocks(self, path: Tensor) -> Tensor:
        """Filter the noises by a path's spectrum, the scored part: [n_noises, 6, 24000]."""
        signal = torch.fft.irfft(path * self._reference, n=self._n_fft)[:, WARM_UP_SAMPLES : self._n_samples]
        return signal.reshape(signal.shape[0], N_BLOCKS, BLOCK_SAMPLES)

    def _band_power(self, blocks: Tensor) -> Tensor:
        """Sum STFT cells per band: [n_noises, 6, n_bands]."""
        # One noise at a time: its frames stay in the processor's cache, which is four times as fast.
        powers = []
        for block in blocks:
            frames = block.unfold(-1, STFT_N_FFT, STFT_HOP) * self._window
            powers.append(squared_magnitude(torch.fft.rfft(frames)).sum(-2))
        return torch.stack(powers) @ self._membership


def _columns(bands: tuple[int, ...]) -> slice:
    return slice(SCORED_BANDS.index(bands[0]), SCORED_BANDS.index(bands[-1]) + 1)


def _figures(
    measured: tuple[Tensor, Tensor], late_cut: tuple[Tensor, Tensor], response: Tensor, control: Tensor
) -> Score:
    """Compute figures from band powers of disturbance and error, [n_noises, n_blocks, n_bands]."""
    disturbance, error = measured
    reduction, cut_reduction = (level_db(before / after) for before, after in (measured, late_cut))
    louder = (-reduction).clamp_min(0)

    def change_db(bands: tuple[int, ...]) -> float:
        chosen = _columns(bands)
        return level_db(error[..., chosen].sum(-1) / disturbance[..., chosen].sum(-1)).mean().item()

    band_db = reduction.mean((0, 1))
    return Score(
        band_db=tuple(band_db.tolist()),
        noise_reduction_db=reduction[..., _columns(NR_BANDS)].mean().item(),
        amplification_db=louder[..., _columns(AMP_BANDS)].mean().item(),
        wide_amplification_db=louder.mean().item(),
        out_of_band_low_db=change_db(LOW_BANDS[1:]),
        out_of_band_high_db=change_db(HIGH_BANDS),
        worst_high_band_db=(-band_db[_columns(HIGH_BANDS)]).max().item(),
        max_gain_db=level_db(squared_magnitude(response).max()).item(),
        control_rms=control.square().mean((-1, -2)).sqrt().mean().item(),
        late_cut_noise_reduction_db=cut_reduction[..., _columns(NR_BANDS)].mean().item(),
    )

"""What the probe recordings of one ear tell: its paths, and the figures by which a calibration is judged.

How much noise an estimate of S holds can be read off the estimate itself: a secondary path is short, so what lies
in the middle of a long window's response is noise, and noise is spread evenly over all of its lags. The coherence
cannot say it: on measured ears most of what it leaves unexplained is the primary path's long tail, which two states
that heard the same probe have in common and which cancels in S.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from synthesis.denoising import denoised, silent_lags
from synthesis.errors import InvalidPaths
from synthesis.noise_reduction import band_uncertainty, level_db
from synthesis.octave_bands import AMP_BANDS, WIDE_BANDS, band_matrix
from synthesis.path_estimation import (
    PathEstimate,
    ProbeState,
    Take,
    onto_design_grid,
    paths_of_states,
    probe_states,
    secondary_transfer,
)
from synthesis.paths import AcousticPaths
from synthesis.spectra import squared_magnitude
from synthesis.support_statistics import delay_samples

WINDOW = 8192
N_WINDOWS = 6
"""Per take: what training simulates, so what models have learnt from. More of them find quieter paths in noise."""

MAX_N_WINDOWS = 64
MIN_SAMPLES = 3072
"""Of a take: 64 ms, three windows of the shortest kind."""

MAX_SAMPLES = 60 * SAMPLE_RATE_HZ
"""Of a take: a minute is fifteen times what training uses."""

PRIMARY_TAPS, SECONDARY_TAPS = 8192, 2048
_TAIL_FROM = SECONDARY_TAPS * 7 // 8
_EQUAL = 1e-6


class Windows(NamedTuple):
    """Where a take is cut: `n` windows of `length` samples that start equally spaced from sample `first` on."""

    length: int
    first: int
    n: int


@dataclass(frozen=True, eq=False)
class Calibration:
    """Of one ear; all tensors float64.

    estimate: paths [8192] and [2048] and the coherence per bin [16385]. secondary: that of the estimate, freed from
    measurement noise if the windows are long enough to tell it. coherence, noise_reduction_ceiling_db,
    secondary_snr_db: per band of the 23 from 50 Hz to 8 kHz; the ceiling is -10 log10(1 - coherence), the SNR is
    that of the secondary estimate itself. clipped_share: the largest share of a signal's samples that stand at its
    extremes, and clipped_in: that signal. lead_samples: delay of the primary less that of the secondary.
    tail_db: energy of the secondary's last eighth over all of it; tail_over_noise_db: over what noise puts there.
    window, n_frames: samples of a window, and windows that were pooled in the state with fewest.
    """

    estimate: PathEstimate
    secondary: Tensor
    coherence: Tensor
    noise_reduction_ceiling_db: Tensor
    secondary_snr_db: Tensor
    clipped_share: float
    clipped_in: str
    lead_samples: float
    tail_db: float
    tail_over_noise_db: float
    window: int
    n_frames: int


def plan_windows(n_samples: int, n_windows: int = N_WINDOWS) -> Windows:
    """Windows of 8192 samples after the first 8192, overlapping by half at most; shorter ones in short takes."""
    length = min(WINDOW, 1 << ((n_samples // 3).bit_length() - 1))
    room = n_samples - 2 * length
    return Windows(length, length, min(n_windows, 1 + 2 * room // length))


def calibrate(takes: Sequence[Take], n_windows: int = N_WINDOWS, windows: Windows | None = None) -> Calibration:
    """Estimate both paths of one ear and measure how good the takes were.

    takes: signals [n], at least MIN_SAMPLES each; the shortest tells how all are cut, unless `windows` does.
    Raises InvalidPaths (field `takes`) for takes too short, too long, silent or not finite, or whose states do not
    differ, or give paths that float32 cannot hold, and InvalidOption where a state is missing.
    """
    _check(takes)
    shortest = min(take.error.shape[-1] for take in takes)
    cut = windows or plan_windows(shortest, n_windows)
    wide = [Take(take.gain, take.reference.double(), take.error.double()) for take in takes]
    states = probe_states(wide, window=cut.length, n_offsets=cut.n, first_sample=cut.first, last_sample=shortest)
    estimate = paths_of_states(states, primary_taps=PRIMARY_TAPS, secondary_taps=SECONDARY_TAPS)
    for name, response in (("primary", estimate.primary), ("secondary", estimate.secondary)):
        if not bool(torch.fft.rfft(response, n=DESIGN_N_FFT).abs().max() < torch.finfo(torch.float32).max):
            raise InvalidPaths(f"takes: found a {name} path too large for float32, expected levels alike", "takes")
    if not bool(estimate.secondary.any()):
        raise InvalidPaths(
            "takes: found no difference between the states, expected a loudspeaker to be heard", "takes"
        )
    noise = _noise(states)
    uncertainty = _band_uncertainty(states, estimate)
    tail, energy = estimate.secondary[_TAIL_FROM:].square().sum(), estimate.secondary.square().sum()
    tail_noise = noise.power * (SECONDARY_TAPS - _TAIL_FROM)
    share, where = max(
        (clipped_share(signal), f"take {number}, {name}")
        for number, take in enumerate(takes)
        for name, signal in (("x", take.reference), ("e", take.error))
    )
    delays = delay_samples(torch.stack((estimate.primary, _padded(estimate.secondary))))
    return Calibration(
        estimate=estimate,
        secondary=denoised(estimate.secondary, noise.response) if cut.length == WINDOW else estimate.secondary,
        coherence=1 / (1 + uncertainty),
        noise_reduction_ceiling_db=level_db(1 + 1 / uncertainty.clamp_min(1e-12)),
        secondary_snr_db=_secondary_snr_db(estimate.secondary, noise.response),
        clipped_share=share,
        clipped_in=where,
        lead_samples=float(delays[0] - delays[1]),
        tail_db=float(level_db(tail / energy)),
        tail_over_noise_db=float(level_db(tail / tail_noise.clamp_min(torch.finfo(tail.dtype).tiny))),
        window=cut.length,
        n_frames=min(state.n_frames for state in states),
    )


def clipped_share(signal: Tensor) -> float:
    """Share of the samples of a signal [n] that stand at its largest or its smallest value, beyond one each."""
    reached = 0
    for one_way in (signal, -signal):
        top = one_way.amax()
        if float(top) > 0:
            reached += int((one_way >= top * (1 - _EQUAL)).sum()) - 1
    return reached / signal.shape[-1]


class _Noise(NamedTuple):
    """What holds nothing of a secondary path: the middle of its whole response, and the mean square there."""

    response: Tensor
    power: Tensor


def _noise(states: Sequence[ProbeState]) -> _Noise:
    silent = silent_lags(torch.fft.irfft(secondary_transfer(states)))
    return _Noise(silent, silent.square().mean())


def _secondary_snr_db(secondary: Tensor, noise: Tensor) -> Tensor:
    """Power of the estimate over that of as many lags of noise, per band [23]."""
    membership = band_matrix(AMP_BANDS, DESIGN_N_FFT)
    power, floor = (
        squared_magnitude(torch.fft.rfft(each, n=DESIGN_N_FFT)) @ membership for each in (secondary, noise)
    )
    floor = floor * (secondary.shape[-1] / noise.shape[-1])
    return level_db(power / floor.clamp_min(1e-12 * power.amax()))


def _band_uncertainty(states: Sequence[ProbeState], estimate: PathEstimate) -> Tensor:
    """Unexplained over explained power at the error microphone under the probes' own spectrum, per band [23]."""
    paths = AcousticPaths.from_impulse_responses(estimate.primary[None], estimate.secondary[None])
    probe_psd = onto_design_grid(states[0].reference_power)
    first = WIDE_BANDS.index(AMP_BANDS[0])
    return band_uncertainty(paths, estimate.coherence[None], probe_psd)[0, first : first + len(AMP_BANDS)]


def _padded(secondary: Tensor) -> Tensor:
    return torch.nn.functional.pad(secondary, (0, PRIMARY_TAPS - SECONDARY_TAPS))


def _check(takes: Sequence[Take]) -> None:
    for number, take in enumerate(takes):
        for name, signal in (("x", take.reference), ("e", take.error)):
            where = f"take {number}, {name}"
            if not MIN_SAMPLES <= signal.shape[-1] <= MAX_SAMPLES:
                expected = f"expected {MIN_SAMPLES} to {MAX_SAMPLES}"
                raise InvalidPaths(f"{where}: found {signal.shape[-1]} samples, {expected}", "takes")
            if not bool(torch.isfinite(signal).all()):
                raise InvalidPaths(f"{where}: found NaN or infinity, expected finite samples only", "takes")
            if not bool(signal.any()):
                raise InvalidPaths(f"{where}: found silence, expected a recording", "takes")

"""What the secondary paths of support listeners have in common, so that a new one can be told from a wrong one.

A loudspeaker wired the wrong way round turns the phase of S by half a turn, and a leak takes its low frequencies
away; but which phase and how much of the low frequencies are right, only other ears with the same earphone can say.
Three traits of a secondary path say it, none of which depends on the earphone's gain:

    delay       first sample at which |s|, within the scored bands, reaches half of its maximum
    direction   sum S / sum |S| over 100 to 500 Hz, complex: low enough for ears to differ little in phase
    low level   mean |S|^2 of 45 to 178 Hz over mean |S|^2 of 1.4 to 2.8 kHz, dB: where a leak acts first, over
                where ears differ least
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ, frequencies_hz
from synthesis.octave_bands import AMP_BANDS, edges_hz
from synthesis.spectra import squared_magnitude

SCORED_HZ = (edges_hz(AMP_BANDS[0])[0], edges_hz(AMP_BANDS[-1])[1])
DIRECTION_HZ = (100.0, 500.0)
LOW_HZ = (edges_hz(17)[0], edges_hz(22)[1])
MIDDLE_HZ = (edges_hz(32)[0], edges_hz(34)[1])


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation over the support's ears; the deviation of a single ear is 0."""

    mean: float
    sd: float


@dataclass(frozen=True)
class SupportStatistics:
    """A few numbers about the secondary paths of `n_ears` support ears.

    phase_rad: angle of the ears' mean direction, -pi to pi. polarity: `polarity` of the ears themselves, -1 to 1.
    low_level_db, delay_samples: of the traits of those names.
    """

    n_ears: int
    phase_rad: float
    polarity: Spread
    low_level_db: Spread
    delay_samples: Spread


class SecondaryTraits(NamedTuple):
    """Of n secondary paths: low_level_db and delay_samples, real [n]; direction, complex [n], |direction| <= 1."""

    low_level_db: Tensor
    delay_samples: Tensor
    direction: Tensor


def secondary_traits(secondary: Tensor, delayed_samples: Tensor | float = 0.0) -> SecondaryTraits:
    """Traits of causal responses, real [n, taps <= 32768], none all zero.

    delayed_samples: [n] or one number; a delay that the direction shall not show, since every delay turns a phase.
    """
    spectrum = torch.fft.rfft(secondary, n=DESIGN_N_FFT)
    frequency = frequencies_hz(dtype=secondary.dtype, device=secondary.device)
    turned = torch.as_tensor(delayed_samples, dtype=secondary.dtype, device=secondary.device).reshape(-1, 1)
    phase = turned * frequency * (2 * torch.pi / SAMPLE_RATE_HZ)
    inside = _between(frequency, DIRECTION_HZ)
    aligned = (spectrum * torch.polar(torch.ones_like(phase), phase))[:, inside]
    tiny = torch.finfo(secondary.dtype).tiny

    def level_db(edges: tuple[float, float]) -> Tensor:
        power = squared_magnitude(spectrum[:, _between(frequency, edges)]).mean(-1)
        return 10 * torch.log10(power.clamp_min(tiny))

    return SecondaryTraits(
        low_level_db=level_db(LOW_HZ) - level_db(MIDDLE_HZ),
        delay_samples=delay_samples(secondary),
        direction=aligned.sum(-1) / aligned.abs().sum(-1).clamp_min(tiny),
    )


def delay_samples(response: Tensor) -> Tensor:
    """First sample at which |h|, within the scored bands, reaches half of its maximum: real [n, taps] -> [n]."""
    spectrum = torch.fft.rfft(response, n=DESIGN_N_FFT)
    inside = _between(frequencies_hz(dtype=response.dtype, device=response.device), SCORED_HZ)
    magnitude = torch.fft.irfft(spectrum * inside, n=DESIGN_N_FFT).abs()
    return (magnitude >= magnitude.amax(-1, keepdim=True) / 2).int().argmax(-1).to(response.dtype)


def polarity(direction: Tensor, phase_rad: float) -> Tensor:
    """Part of each direction, complex [n], along the support's mean phase: [n], -1 to 1.

    Near the support's mean for a loudspeaker like theirs, near its negative for one that is wired the wrong way.
    """
    return (direction * torch.polar(torch.tensor(1.0), torch.tensor(-phase_rad)).to(direction)).real


def learn_support_statistics(secondary: Tensor) -> SupportStatistics:
    """From the secondary paths of the support's ears as a calibration estimates them, real [n_ears, taps]."""
    traits = secondary_traits(secondary.double())
    phase_rad = float(traits.direction.sum().angle())
    return SupportStatistics(
        n_ears=secondary.shape[0],
        phase_rad=phase_rad,
        polarity=_spread(polarity(traits.direction, phase_rad)),
        low_level_db=_spread(traits.low_level_db),
        delay_samples=_spread(traits.delay_samples),
    )


def _between(frequency: Tensor, edges: tuple[float, float]) -> Tensor:
    return (frequency >= edges[0]) & (frequency < edges[1])


def _spread(values: Tensor) -> Spread:
    return Spread(float(values.mean()), float(values.std(correction=0)))

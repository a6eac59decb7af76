"""What the secondary paths of support listeners have in common, so that a faulty measurement can be recognised.

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

import numpy as np
from numpy.typing import ArrayLike, NDArray

from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from synthesis.octave_bands import AMP_BANDS, edges_hz

Real = NDArray[np.floating]
Complex = NDArray[np.complexfloating]

SCORED_HZ = (edges_hz(AMP_BANDS[0])[0], edges_hz(AMP_BANDS[-1])[1])
DIRECTION_HZ = (100.0, 500.0)
LOW_HZ = (edges_hz(17)[0], edges_hz(22)[1])
MIDDLE_HZ = (edges_hz(32)[0], edges_hz(34)[1])

_FREQUENCY_HZ = np.fft.rfftfreq(DESIGN_N_FFT, 1 / SAMPLE_RATE_HZ)


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

    low_level_db: Real
    delay_samples: Real
    direction: Complex


def secondary_traits(secondary: Real, known_delay_samples: ArrayLike = 0.0) -> SecondaryTraits:
    """Traits of causal responses, real [n, taps <= 32768], none all zero.

    known_delay_samples: [n] or one number; a delay that the direction shall not show, since every delay turns a
    phase.
    """
    spectrum = np.fft.rfft(secondary, n=DESIGN_N_FFT)
    inside = _between(DIRECTION_HZ)
    turn_rad = np.reshape(known_delay_samples, (-1, 1)) * _FREQUENCY_HZ[inside] * (2 * np.pi / SAMPLE_RATE_HZ)
    aligned = spectrum[:, inside] * np.exp(1j * turn_rad)
    tiny = np.finfo(secondary.dtype).tiny

    def level_db(edges: tuple[float, float]) -> Real:
        power = (np.abs(spectrum[:, _between(edges)]) ** 2).mean(-1)
        level: Real = 10 * np.log10(np.maximum(power, tiny))
        return level

    return SecondaryTraits(
        low_level_db=level_db(LOW_HZ) - level_db(MIDDLE_HZ),
        delay_samples=delay_samples(secondary),
        direction=aligned.sum(-1) / np.maximum(np.abs(aligned).sum(-1), tiny),
    )


def delay_samples(response: Real) -> Real:
    """First sample at which |h|, within the scored bands, reaches half of its maximum: real [n, taps] -> [n]."""
    spectrum = np.fft.rfft(response, n=DESIGN_N_FFT)
    magnitude = np.abs(np.fft.irfft(spectrum * _between(SCORED_HZ), n=DESIGN_N_FFT))
    return (magnitude >= magnitude.max(-1, keepdims=True) / 2).argmax(-1).astype(float)


def polarity(direction: Complex, phase_rad: float) -> Real:
    """Part of each direction, complex [n], along the support's mean phase: [n], -1 to 1.

    Near the support's mean for a loudspeaker like theirs, near its negative for one that is wired the wrong way.
    """
    along: Real = (direction * np.exp(-1j * phase_rad)).real
    return along


def learn_support_statistics(secondary: Real) -> SupportStatistics:
    """From the secondary paths of the support's ears as a calibration estimates them, real [n_ears, taps]."""
    traits = secondary_traits(secondary.astype(np.float64))
    phase_rad = float(np.angle(traits.direction.sum()))
    return SupportStatistics(
        n_ears=secondary.shape[0],
        phase_rad=phase_rad,
        polarity=_spread(polarity(traits.direction, phase_rad)),
        low_level_db=_spread(traits.low_level_db),
        delay_samples=_spread(traits.delay_samples),
    )


def _between(edges: tuple[float, float]) -> NDArray[np.bool_]:
    """The bins of the design grid from the lower edge up to below the upper one."""
    return (edges[0] <= _FREQUENCY_HZ) & (edges[1] > _FREQUENCY_HZ)


def _spread(values: Real) -> Spread:
    return Spread(float(values.mean()), float(values.std()))

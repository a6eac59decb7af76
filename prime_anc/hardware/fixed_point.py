"""Quantise coefficients to a fixed-point format, and compute scaling, overflow bound and round-off noise.

A format qI.F is a two's-complement number of I integer bits, including the sign, and F fraction bits: q1.23 holds -1 to
1 - 2^-23 in 24 bits, q5.23 -16 to 16 in 28. Coefficients that are too large are divided by a power of two, which the
processor restores after its accumulator (`shift`).

Sections are direct form I: y = (b0 x + b1 x' + b2 x'' - a1 y' - a2 y'') in an accumulator of double width, rounded once
to the data word. Signals are fractions of full scale. Round-off noise is white, with variance 2^-2F' / 12 for a data
word of F' fraction bits, and passes 1 / A of its section and all later sections (Oppenheim & Schafer, Discrete-Time
Signal Processing, 3rd ed., section 6.9).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.hardware.residual_power import Real
from prime_anc.method.errors import InvalidOption
from prime_anc.method.loops.sections import Sections, section_responses

FLOATS = ("float32", "float64")
MAX_BITS = 64
# Length of impulse responses for norms: 2.7 s at 48 kHz, in which a pole pair at 3 Hz decays by more than 60 dB.
N_RESPONSE = 1 << 17
# Share of a format's range to which numerators are scaled: rounding moves a coefficient by up to two steps.
SPARE = 0.99


@dataclass(frozen=True)
class NumberFormat:
    """A fixed-point format."""

    # Integer bits, including the sign.
    integer_bits: int
    # Fraction bits.
    fraction_bits: int

    @property
    def n_bits(self) -> int:
        """Number of bits of a word."""
        return self.integer_bits + self.fraction_bits

    @property
    def largest_word(self) -> int:
        """Largest word, 2^(n - 1) - 1; the smallest is -2^(n - 1)."""
        return (1 << (self.n_bits - 1)) - 1

    @property
    def largest(self) -> float:
        """Largest value, rounded down to a float64, which is exact up to words of 53 bits."""
        n_lost = max(0, self.n_bits - 1 - 53)
        return float(self.largest_word >> n_lost << n_lost) * 2.0**-self.fraction_bits

    def words(self, values: NDArray[np.floating]) -> NDArray[np.int64]:
        """Round and saturate values to units of the last bit."""
        return self.saturated(np.rint(np.asarray(values, np.float64) * 2.0**self.fraction_bits))

    def saturated(self, units: NDArray[Any]) -> NDArray[np.int64]:
        """Limit integers, in units of the last bit, to the range of a word.

        Python integers are compared, since 2^63 - 1 has no float64.
        """
        top = self.largest_word
        limited = [max(-top - 1, min(int(unit), top)) for unit in units.ravel().tolist()]
        return np.array(limited, np.int64).reshape(units.shape)

    def n_beyond(self, units: NDArray[np.float64]) -> int:
        """Count the integers that `saturated` changes."""
        top = self.largest_word
        return sum(not -top - 1 <= unit <= top for unit in units.ravel().tolist())

    def __str__(self) -> str:
        return f"q{self.integer_bits}.{self.fraction_bits}"


@dataclass(frozen=True, eq=False)
class Quantised:
    """Quantised coefficients."""

    format: NumberFormat
    # Int64 in units of the last bit: b0, b1, b2, a1, a2 per row [n_sections, 5], or taps [n_taps].
    words: NDArray[np.int64]
    # Exponent of the power of two by which a row, or all taps, was divided.
    shift: NDArray[np.int64]
    # Quantised coefficients in the units of the design.
    values: NDArray[np.float64]
    # Number of words limited because rounding exceeded the format.
    n_saturated: int

    def times(self, signs: NDArray[np.int64]) -> Quantised:
        """Multiply the coefficients by signs (1 or -1); the negative of the least word saturates."""
        words = self.format.saturated(self.words.astype(object) * signs)
        return replace(self, words=words, values=self.values * signs)


@dataclass(frozen=True)
class SignalScaling:
    """Headroom and round-off noise for data words of as many bits as the coefficients."""

    # Bits by which to shift the input down so that no node can overflow.
    headroom_bits: int
    # Largest output of any node over a full-scale input, without headroom.
    overflow_db: float
    # Round-off noise at the output with that headroom, RMS over full scale.
    noise_db: float
    # The same with feedback in the accumulator's width, which poles at low frequencies need.
    wide_noise_db: float


def parse_format(name: str) -> NumberFormat | None:
    """Parse the name of a number format, such as `q1.23`.

    Returns
    -------
    NumberFormat | None
        The format; None for `float32` and `float64`.

    Raises
    ------
    InvalidOption
        The name is not a format.
    """
    if name in FLOATS:
        return None
    match = re.fullmatch(r"q(\d{1,2})\.(\d{1,2})", name)
    found = NumberFormat(int(match[1]), int(match[2])) if match else None
    if (
        found is None
        or not 1 <= found.integer_bits <= 16
        or not 8 <= found.n_bits <= MAX_BITS
        or found.fraction_bits < 1
    ):
        raise InvalidOption(
            f"number_format: {name!r} is not a format; use float32, float64 or qI.F with I integer bits (sign "
            f"included, 1 to 16) and F fraction bits, 8 to {MAX_BITS} bits in all",
            "target.number_format",
        )
    return found


def quantise_taps(taps: NDArray[np.floating], number_format: NumberFormat) -> Quantised:
    """Quantise taps [n] with one shift for all."""
    shift = _shift(np.abs(taps).max(), number_format)
    words = number_format.words(np.asarray(taps, np.float64) / 2.0**shift)
    values = words * np.float64(2.0 ** (shift - number_format.fraction_bits))
    return Quantised(number_format, words, np.array(shift), values, n_saturated=0)


def quantise_sections(sections: Sections, number_format: NumberFormat) -> tuple[Sections, Quantised]:
    """Quantise sections, one shift per section.

    Of a polynomial c0 + c1 / z + c2 / z^2, the values c0, c0 + c1 + c2 and c0 - c2 are rounded, not c1 and c2: roots at
    low frequencies lie at an angle of sqrt(sum / c0), where the sum is a few steps. Per section both sums are rounded
    up or down, whichever keeps the cascade so far nearest to the exact one. Poles stay inside the unit circle.

    Returns
    -------
    tuple[Sections, Quantised]
        The sections that the words stand for, and the words.
    """
    rows, rate = sections.rows, sections.sample_rate_hz
    shift = np.array([_shift(np.abs(row[[0, 1, 2, 4, 5]]).max(), number_format) for row in rows])
    frequency = np.geomspace(0.5, rate / 2, 1024)
    exact = np.cumprod(section_responses(rows, frequency, rate), axis=0)
    before, rounded = np.ones_like(exact[0]), np.empty_like(rows)
    for i, row in enumerate(rows):
        units = row.reshape(2, 3) * 2.0 ** (number_format.fraction_bits - shift[i])
        first, difference = np.rint(units[:, 0]), np.rint(units[:, 0] - units[:, 2])
        # A sum of 0 stays 0, as of zeros at 0 Hz.
        rounding = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
        total = np.where(rounding, np.ceil(units.sum(-1)), np.floor(units.sum(-1)))
        difference[1], total[:, 1] = max(difference[1], 1), total[:, 1].clip(1)
        choices = np.stack(np.broadcast_arrays(first, total - 2 * first + difference, first - difference), -1)
        responses = before * section_responses(choices.reshape(4, 6), frequency, rate)
        best = np.abs(responses / exact[i] - 1).max(-1).argmin()
        before, rounded[i] = responses[best], choices[best].ravel()
    units = rounded[:, [0, 1, 2, 4, 5]]
    words = number_format.saturated(units)
    values = words * 2.0 ** (shift[:, None] - number_format.fraction_bits)
    held = np.ascontiguousarray(np.concatenate((values[:, :3], np.ones((len(values), 1)), values[:, 3:]), 1))
    return Sections(held, rate), Quantised(number_format, words, shift, values, number_format.n_beyond(units))


def scale_sections(sections: Sections, number_format: NumberFormat, n_held: int = 0) -> Sections:
    """Spread a cascade's gain over its sections.

    Gain is applied as early as the format holds the coefficients, since later sections amplify the round-off of earlier
    ones, while no node's |W| exceeds 1 or that of the output.

    Parameters
    ----------
    n_held
        Number of leading sections that stay unchanged.
    """
    frequency = np.concatenate(([0.0], np.geomspace(0.5, sections.sample_rate_hz / 2, 8192)))
    partial = np.cumprod(section_responses(sections.rows, frequency, sections.sample_rate_hz), axis=0)
    peaks = np.abs(partial).max(-1)
    if not (peaks > 0).all():
        return sections
    rows = sections.rows.copy()
    largest = SPARE * number_format.largest * 2.0 ** _least_shift(number_format)
    before = 1.0
    for row, peak in zip(rows[n_held:-1], peaks[n_held:-1], strict=True):
        gain = min(max(1.0, peaks[-1]) / (before * peak), largest / np.abs(row[:3]).max())
        row[:3] *= gain
        before *= gain
    rows[-1, :3] /= before
    return Sections(rows, sections.sample_rate_hz)


def lowest_pole_hz(sample_rate_hz: float, number_format: NumberFormat, floor_hz: float) -> float:
    """Compute the lowest pole frequency (Hz) that the format resolves.

    There 1 + a1 + a2 is two steps of the format; floor_hz is returned if that is less than an octave above it.
    """
    two_steps = 2 * 2.0 ** (_least_shift(number_format) - number_format.fraction_bits)
    lowest_hz = float(sample_rate_hz / (2 * np.pi) * np.sqrt(two_steps))
    return lowest_hz if lowest_hz > 2 * floor_hz else floor_hz


def sections_scaling(sections: Sections, data_format: NumberFormat) -> SignalScaling:
    """Compute headroom and noise of a cascade; signals are fractions of full scale."""
    rows, frequency_hz = sections.rows, np.fft.rfftfreq(N_RESPONSE, 1 / sections.sample_rate_hz)
    responses = section_responses(rows, frequency_hz, sections.sample_rate_hz)
    nodes = np.fft.irfft(np.cumprod(responses, axis=0), N_RESPONSE)
    worst = float(np.abs(nodes).sum(-1).max())
    # Round-off in a section passes its poles, unless they run in double precision, and all later sections.
    recursive = section_responses(
        np.concatenate((np.tile([1.0, 0.0, 0.0], (len(rows), 1)), rows[:, 3:]), 1),
        frequency_hz,
        sections.sample_rate_hz,
    )
    after = np.concatenate((np.cumprod(responses[:0:-1], axis=0)[::-1], np.ones_like(responses[:1])))
    gain, wide_gain = (float(_power_gain(response).sum()) for response in (recursive * after, after))
    return _scaling(worst, gain, wide_gain, data_format)


def _power_gain(response: NDArray[np.complex128]) -> Real:
    """Compute the power gain of a filter for white noise from its one-sided response [..., n]."""
    power = np.abs(response) ** 2
    gain: Real = (2 * power.sum(-1) - power[..., 0] - power[..., -1]) / N_RESPONSE
    return gain


def taps_scaling(taps: NDArray[np.floating], data_format: NumberFormat) -> SignalScaling:
    """Compute headroom and noise of taps with one accumulator of double width, rounded once."""
    return _scaling(float(np.abs(taps).sum()), 1.0, 1.0, data_format)


def _scaling(worst: float, gain: float, wide_gain: float, data_format: NumberFormat) -> SignalScaling:
    headroom = max(0, int(np.ceil(np.log2(max(worst, 1e-30)))))
    # Full scale is 1 whatever the number of integer bits: n - 1 bits follow the sign.
    one_rounding_db = 20 * np.log10(2.0 ** (1 - data_format.n_bits + headroom)) - 10 * np.log10(12)
    return SignalScaling(
        headroom_bits=headroom,
        overflow_db=float(20 * np.log10(max(worst, 1e-30))),
        noise_db=float(10 * np.log10(gain) + one_rounding_db),
        wide_noise_db=float(10 * np.log10(wide_gain) + one_rounding_db),
    )


def _least_shift(number_format: NumberFormat) -> int:
    """Return the shift with which the format holds a1 of a stable section, between -2 and 2."""
    return max(0, 2 - number_format.integer_bits)


def _shift(largest: float, number_format: NumberFormat) -> int:
    """Return the least exponent of two by which to divide so that the format holds a value of either sign."""
    shift = 0
    while largest > np.ldexp(number_format.largest, shift):
        shift += 1
    return shift

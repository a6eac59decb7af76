"""Coefficients in a fixed-point format, and what that costs: scaling, overflow and round-off noise.

A format qI.F is a two's-complement number of I integer bits, the sign among them, and F fraction bits: q1.23
holds -1 to 1 - 2^-23 in 24 bits, q5.23 -16 to 16 in 28. Coefficients that are too large for it are divided by a
power of two, which the processor puts back after its accumulator (`shift`).

Sections are direct form I: y = (b0 x + b1 x' + b2 x'' - a1 y' - a2 y'') in an accumulator of double width,
rounded once to the data word. Signals are fractions of full scale. Round-off noise is white, with variance 2^-2F'
/ 12 for a data word of F' fraction bits, and passes 1 / A of its own section and all sections after it (Oppenheim
& Schafer, Discrete-Time Signal Processing, 3rd ed., section 6.9).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.second_order_sections import Real, Sections, section_responses
from synthesis.errors import InvalidOption

FLOATS = ("float32", "float64")
MAX_BITS = 64
# Samples of impulse responses for norms: 2.7 s at 48 kHz, in which a pole pair at 3 Hz falls by 60 dB and more.
N_RESPONSE = 1 << 17
# Of a format's range that numerators are scaled to: rounding moves a coefficient by up to two steps.
SPARE = 0.99


@dataclass(frozen=True)
class NumberFormat:
    """integer_bits (with the sign) and fraction_bits of a fixed-point format."""

    integer_bits: int
    fraction_bits: int

    @property
    def n_bits(self) -> int:
        """Bits of a word."""
        return self.integer_bits + self.fraction_bits

    @property
    def largest_word(self) -> int:
        """Largest word, 2^(n - 1) - 1; the smallest is -2^(n - 1)."""
        return (1 << (self.n_bits - 1)) - 1

    @property
    def largest(self) -> float:
        """Largest value, rounded down to a float64, which holds no word of more than 53 bits exactly."""
        n_lost = max(0, self.n_bits - 1 - 53)
        return float(self.largest_word >> n_lost << n_lost) * 2.0**-self.fraction_bits

    def words(self, values: NDArray[np.floating]) -> NDArray[np.int64]:
        """Values, rounded and saturated, in units of the last bit."""
        return self.saturated(np.rint(np.asarray(values, np.float64) * 2.0**self.fraction_bits))

    def saturated(self, units: NDArray[Any]) -> NDArray[np.int64]:
        """Limit whole numbers of the last bit's units to what a word holds.

        The comparison is Python's, of integers of any size: 2^63 - 1 is no float64.
        """
        top = self.largest_word
        limited = [max(-top - 1, min(int(unit), top)) for unit in units.ravel().tolist()]
        return np.array(limited, np.int64).reshape(units.shape)

    def n_beyond(self, units: NDArray[np.float64]) -> int:
        """Count the whole numbers that `saturated` changes."""
        top = self.largest_word
        return sum(not -top - 1 <= unit <= top for unit in units.ravel().tolist())

    def __str__(self) -> str:
        return f"q{self.integer_bits}.{self.fraction_bits}"


@dataclass(frozen=True, eq=False)
class Quantised:
    """Coefficients as hardware holds them.

    words: int64, in units of the format's last bit: [n_sections, 5] as b0, b1, b2, a1, a2, or [n_taps]. shift:
    power of two that each row (or all taps) was divided by. values: the coefficients that they stand for, as the
    design's own. n_saturated: words that were limited because rounding took them beyond the format.
    """

    format: NumberFormat
    words: NDArray[np.int64]
    shift: NDArray[np.int64]
    values: NDArray[np.float64]
    n_saturated: int

    def times(self, signs: NDArray[np.int64]) -> Quantised:
        """The coefficients times 1 or -1 each; the negative of the least word is limited."""
        words = self.format.saturated(self.words.astype(object) * signs)
        return replace(self, words=words, values=self.values * signs)


@dataclass(frozen=True)
class SignalScaling:
    """How a full-scale input fits data words of as many bits as the coefficients.

    headroom_bits: by which the input is to be divided (powers of two) so that no node overflows whatever the input.
    overflow_db: largest output over a full-scale input, of any node, without that. noise_db: round-off noise at the
    output, RMS over full scale, with that headroom. wide_noise_db: the same where a section's feedback keeps the
    accumulator's width, as double-precision biquads do; poles at low frequencies need it.
    """

    headroom_bits: int
    overflow_db: float
    noise_db: float
    wide_noise_db: float


def parse_format(name: str) -> NumberFormat | None:
    """A format by name, `q1.23`; None for `float32` and `float64`. Raises InvalidOption for anything else."""
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
    """Taps [n] with one shift for all."""
    shift = _shift(np.abs(taps).max(), number_format)
    words = number_format.words(np.asarray(taps, np.float64) / 2.0**shift)
    values = words * np.float64(2.0 ** (shift - number_format.fraction_bits))
    return Quantised(number_format, words, np.array(shift), values, n_saturated=0)  # with that shift all fit


def quantise_sections(sections: Sections, number_format: NumberFormat) -> tuple[Sections, Quantised]:
    """Sections with one shift for each; also as the sections that the words stand for.

    Of each polynomial c0 + c1 / z + c2 / z^2, c0, the sum and c0 - c2 are rounded, not c1 and c2: roots at low
    frequencies lie at an angle of sqrt(sum / c0), where the sum is a few steps. Each section rounds its two sums up
    or down, whichever leaves the cascade up to it nearest to the exact one. Poles stay inside the circle.
    """
    rows, rate = sections.rows, sections.sample_rate_hz
    shift = np.array([_shift(np.abs(row[[0, 1, 2, 4, 5]]).max(), number_format) for row in rows])
    frequency = np.geomspace(0.5, rate / 2, 1024)
    exact = np.cumprod(section_responses(rows, frequency, rate), axis=0)
    before, rounded = np.ones_like(exact[0]), np.empty_like(rows)
    for i, row in enumerate(rows):
        units = row.reshape(2, 3) * 2.0 ** (number_format.fraction_bits - shift[i])
        first, difference = np.rint(units[:, 0]), np.rint(units[:, 0] - units[:, 2])
        total = np.floor(units.sum(-1)) + np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
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
    """The same cascade with its gain spread: as early as the format holds the coefficients, since later sections
    amplify the round-off of earlier ones, and no node with a larger |W| than 1 or the output has. n_held: sections
    that stay as they are."""
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
    """Lowest frequency for poles, Hz: where 1 + a1 + a2 of a pair are two steps of the format, or floor_hz where
    that is less than an octave higher."""
    two_steps = 2 * 2.0 ** (_least_shift(number_format) - number_format.fraction_bits)
    lowest_hz = float(sample_rate_hz / (2 * np.pi) * np.sqrt(two_steps))
    return lowest_hz if lowest_hz > 2 * floor_hz else floor_hz


def sections_scaling(sections: Sections, data_format: NumberFormat) -> SignalScaling:
    """Of a cascade whose data words have the given format; signals are fractions of full scale."""
    rows, frequency_hz = sections.rows, np.fft.rfftfreq(N_RESPONSE, 1 / sections.sample_rate_hz)
    own = section_responses(rows, frequency_hz, sections.sample_rate_hz)
    nodes = np.fft.irfft(np.cumprod(own, axis=0), N_RESPONSE)
    worst = float(np.abs(nodes).sum(-1).max())
    # What is rounded in a section runs through its poles, unless they have it in double precision, and through
    # the sections after it.
    recursive = section_responses(
        np.concatenate((np.tile([1.0, 0.0, 0.0], (len(rows), 1)), rows[:, 3:]), 1),
        frequency_hz,
        sections.sample_rate_hz,
    )
    after = np.concatenate((np.cumprod(own[:0:-1], axis=0)[::-1], np.ones_like(own[:1])))
    gain, wide_gain = (float(_power_gain(item).sum()) for item in (recursive * after, after))
    return _scaling(worst, gain, wide_gain, data_format)


def _power_gain(response: NDArray[np.complex128]) -> Real:
    """Power of white noise behind a filter over its power before it, of one-sided responses [..., n]."""
    power = np.abs(response) ** 2
    gain: Real = (2 * power.sum(-1) - power[..., 0] - power[..., -1]) / N_RESPONSE
    return gain


def taps_scaling(taps: NDArray[np.floating], data_format: NumberFormat) -> SignalScaling:
    """Of taps with one accumulator of double width, rounded once."""
    return _scaling(float(np.abs(taps).sum()), 1.0, 1.0, data_format)


def _scaling(worst: float, gain: float, wide_gain: float, data_format: NumberFormat) -> SignalScaling:
    headroom = max(0, int(np.ceil(np.log2(max(worst, 1e-30)))))
    # Full scale is 1 whatever the integer bits: n - 1 bits lie after the sign.
    one_rounding_db = 20 * np.log10(2.0 ** (1 - data_format.n_bits + headroom)) - 10 * np.log10(12)
    return SignalScaling(
        headroom_bits=headroom,
        overflow_db=float(20 * np.log10(max(worst, 1e-30))),
        noise_db=float(10 * np.log10(gain) + one_rounding_db),
        wide_noise_db=float(10 * np.log10(wide_gain) + one_rounding_db),
    )


def _least_shift(number_format: NumberFormat) -> int:
    """Shift with which the format holds the a1 of a stable section, which is between -2 and 2."""
    return max(0, 2 - number_format.integer_bits)


def _shift(largest: float, number_format: NumberFormat) -> int:
    """Least power of two to divide by so that the format holds a value of either sign."""
    shift = 0
    while largest > np.ldexp(number_format.largest, shift):
        shift += 1
    return shift

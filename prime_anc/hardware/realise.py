"""Realise a control filter as hardware runs it: n taps or n sections, in its number format, at its rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from prime_anc.hardware import fixed_point
from prime_anc.hardware.fixed_point import (
    NumberFormat,
    Quantised,
    SignalScaling,
    lowest_pole_hz,
    parse_format,
    quantise_sections,
    scale_sections,
)
from prime_anc.hardware.residual_power import Complex, PathSpectra, ResidualPower
from prime_anc.hardware.second_order_sections import (
    LOWEST_HZ,
    MAX_SECTIONS,
    design_sections,
    largest_excess,
    largest_gain,
)
from prime_anc.hardware.short_fir import at_design_rate, design_fir
from prime_anc.method.bands import BINS_HZ
from prime_anc.method.conventions import BIN_HZ, DESIGN_N_FFT, MAX_TAPS, N_TAPS, SAMPLE_RATE_HZ
from prime_anc.method.errors import InvalidOption
from prime_anc.method.gain_curve import GainCurve, ceiling_at
from prime_anc.method.loops.sections import Sections
from prime_anc.method.profiles import FAST, RefinementProfile

SAMPLE_RATES_HZ = (8000.0, 768_000.0)
DEFAULT_SECTIONS = 8
# Points of a ceiling that follows a feedback path, evenly over log frequency and up to EVEN_HZ: ducts resonate every
# 30 to 100 Hz.
LOOP_POINTS, EVEN_POINTS, EVEN_HZ = 200, 800, 5000.0
# Values from -2 to 2 in float32: sections at high rates need coefficients that are rounded jointly.
FLOAT32_WORDS = NumberFormat(2, 23)

Denominator = Literal["subtracted", "added"]
# Signs of b0, b1, b2, a1, a2 in the hardware's memory.
HELD_SIGNS = {"subtracted": np.array([1, 1, 1, 1, 1]), "added": np.array([1, 1, 1, -1, -1])}


@dataclass(frozen=True)
class Target:
    """Form, size and number format of a filter to design."""

    # Taps or second-order sections.
    form: Literal["fir", "sos"] = "sos"
    # Number of taps, if `fir`.
    n_taps: int = N_TAPS
    # Number of sections, if `sos`.
    n_sections: int = DEFAULT_SECTIONS
    sample_rate_hz: float = float(SAMPLE_RATE_HZ)
    # Format of the coefficients: `float32`, `float64` or `qI.F` (`fixed_point`).
    number_format: str = "float32"
    # Sign convention of a1 and a2: hardware that adds them times past outputs holds -a1 and -a2.
    denominator: Denominator = "subtracted"

    def __post_init__(self) -> None:
        """Raise InvalidOption for a value out of range."""
        parse_format(self.number_format)
        if not 1 <= self.n_taps <= MAX_TAPS:
            raise InvalidOption(f"n_taps: {self.n_taps} taps were requested; use 1 to {MAX_TAPS}", "target.n_taps")
        if not 1 <= self.n_sections <= MAX_SECTIONS:
            raise InvalidOption(
                f"n_sections: {self.n_sections} sections were requested; use 1 to {MAX_SECTIONS}",
                "target.n_sections",
            )
        low, high = SAMPLE_RATES_HZ
        if not low <= self.sample_rate_hz <= high:
            raise InvalidOption(
                f"sample_rate: {self.sample_rate_hz:g} Hz was requested; use {low:g} to {high:g}",
                "target.sample_rate",
            )

    def keeps(self, n_taps: int) -> bool:
        """Return whether n taps at 48 kHz already have this form."""
        return self.form == "fir" and self.n_taps == n_taps and self.sample_rate_hz == SAMPLE_RATE_HZ

    @property
    def lasts_as_long(self) -> bool:
        """Return whether the taps span the time of a design's."""
        return self.form == "fir" and self.n_taps * SAMPLE_RATE_HZ >= N_TAPS * self.sample_rate_hz


@dataclass(frozen=True, eq=False)
class Realised:
    """A realised filter."""

    sample_rate_hz: float
    # Taps [n], if `fir`.
    taps: NDArray[np.float64] | None
    # Sections, if `sos`.
    sections: Sections | None
    # Fixed-point words with the hardware's signs; None in floating point.
    quantised: Quantised | None
    # Signal scaling; None in floating point.
    scaling: SignalScaling | None
    # W on the design grid, complex [16385].
    response: Complex
    # Largest |W|.
    max_gain_db: float
    denominator: Denominator = "subtracted"

    @property
    def held(self) -> NDArray[np.float64]:
        """Return b0, b1, b2, a1, a2 per section, with the hardware's signs."""
        assert self.sections is not None
        coefficients: NDArray[np.float64] = self.sections.rows[:, [0, 1, 2, 4, 5]] * HELD_SIGNS[self.denominator]
        return coefficients


def realise(
    conditions: Sequence[PathSpectra],
    reference_psd: NDArray[np.floating],
    target: Target,
    *,
    taps: NDArray[np.floating] | None = None,
    max_gain_db: float | GainCurve = np.inf,
    profile: RefinementProfile = FAST,
) -> Realised:
    """Design a target's filter for the given conditions, and quantise it.

    Parameters
    ----------
    conditions, reference_psd, profile
        As for `ResidualPower.of`.
    target
        Form and number format.
    taps
        Existing filter at 48 kHz; kept if the target has as many taps and that rate. Other taps are designed with first
        weights from what it leaves; sections do not use it.
    max_gain_db
        Ceiling on |W|.

    Returns
    -------
    Realised
        The filter with its response on the design grid.

    Raises
    ------
    InvalidOption
        The number format leaves the filter unstable.
    InvalidPaths
        A path has no power where the reference has any.
    """
    number_format = parse_format(target.number_format)
    if target.form == "fir":
        return _fir(conditions, reference_psd, target, number_format, taps, max_gain_db, profile)

    power, rate = ResidualPower.of(conditions, reference_psd, profile), target.sample_rate_hz
    words = FLOAT32_WORDS if number_format is None else number_format

    def held(sections: Sections, n_held: int) -> Sections:
        return quantise_sections(scale_sections(sections, words, n_held), words)[0]

    def in_single_precision(sections: Sections) -> Sections:
        return _in_single_precision(sections, max_gain_db)

    sections = design_sections(
        power,
        target.n_sections,
        sample_rate_hz=rate,
        max_gain_db=max_gain_db,
        rounded=in_single_precision if number_format is None else None,
        held=None if target.number_format == "float64" else held,
        lowest_held_hz=lowest_pole_hz(rate, words, LOWEST_HZ),
    )
    if not sections.is_stable:
        raise InvalidOption(
            f"number_format: at {target.sample_rate_hz:g} Hz the poles that {target.number_format} can hold "
            "are not stable; use more fraction bits or a lower sample rate",
            "target.number_format",
        )
    return realised_sections(sections, target.number_format, target.denominator)


def under_loop(max_gain_db: float | GainCurve, feedbacks: Sequence[Complex], largest_loop: float) -> GainCurve:
    """Lower a ceiling on |W| so that no loop |W F| exceeds a value.

    Parameters
    ----------
    max_gain_db
        Ceiling on |W|.
    feedbacks
        Feedback paths of all conditions on the design grid, complex [16385].
    largest_loop
        Largest |W F|, linear.

    Returns
    -------
    GainCurve
        Between its points, at most 6 Hz or 5 % apart, it is the lowest value of the neighbourhood.
    """
    loudest = np.abs(np.stack(feedbacks)).max(0)
    limit = np.minimum(ceiling_at(max_gain_db, BINS_HZ), largest_loop / np.maximum(loudest, 1e-9 * loudest.max()))
    even = np.linspace(1, EVEN_HZ / BIN_HZ, EVEN_POINTS)
    at = np.unique(np.concatenate((np.geomspace(1, len(limit) - 1, LOOP_POINTS), even)).astype(int))
    first, after = np.r_[0, at[:-1]], np.r_[at[1:], at[-1]] + 1
    least = [limit[low:high].min() for low, high in zip(first, after, strict=True)]
    return GainCurve(tuple(BINS_HZ[at]), tuple(20 * np.log10(least)))


def _in_single_precision(sections: Sections, max_gain_db: float | GainCurve) -> Sections:
    """Round the coefficients to float32, and keep the ceiling if the poles stay inside the unit circle."""
    single = sections.in_single_precision()
    if single.is_stable:
        excess, _ = largest_excess(single, max_gain_db)
        single.rows[-1, :3] = (single.rows[-1, :3] / max(excess, 1.0)).astype(np.float32)
    return single


def _fir(
    conditions: Sequence[PathSpectra],
    reference_psd: NDArray[np.floating],
    target: Target,
    number_format: NumberFormat | None,
    taps: NDArray[np.floating] | None,
    max_gain_db: float | GainCurve,
    profile: RefinementProfile,
) -> Realised:
    if taps is not None and target.keeps(len(taps)):
        found = np.asarray(taps, np.float64)
    else:
        found = design_fir(
            conditions,
            reference_psd,
            target.n_taps,
            sample_rate_hz=target.sample_rate_hz,
            max_gain_db=max_gain_db,
            start=None if taps is None else np.fft.rfft(taps, DESIGN_N_FFT),
            profile=profile,
        )
    quantised = scaling = None
    if target.number_format == "float32":
        found = found.astype(np.float32).astype(np.float64)
    if number_format is not None:
        quantised = fixed_point.quantise_taps(found, number_format)
        found = quantised.values
        scaling = fixed_point.taps_scaling(found, number_format)
    response = at_design_rate(found, target.sample_rate_hz)
    # Same spacing as the design grid, up to half the rate.
    largest = np.abs(np.fft.rfft(found, round(target.sample_rate_hz / BIN_HZ))).max()
    gain_db = 20 * float(np.log10(max(largest, 1e-30)))
    return Realised(target.sample_rate_hz, found, None, quantised, scaling, response, gain_db)


def realised_sections(sections: Sections, number_format: str, denominator: Denominator = "subtracted") -> Realised:
    """Return given sections, which the number format holds, as a realised filter."""
    words, quantised, scaling = parse_format(number_format), None, None
    if words is not None:
        sections, quantised = quantise_sections(sections, words)
        scaling = fixed_point.sections_scaling(sections, words)
        quantised = quantised.times(HELD_SIGNS[denominator])
    loudest_db = 20 * float(np.log10(max(largest_gain(sections), 1e-10)))
    return Realised(
        sections.sample_rate_hz,
        None,
        sections,
        quantised,
        scaling,
        sections.at_design_rate(),
        loudest_db,
        denominator,
    )

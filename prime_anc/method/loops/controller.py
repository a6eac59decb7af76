"""A feedback controller K on the error microphone, beside the filter W.

    y = W m + K e,   E = (P (1 + W F) - S W) X / (1 + L),   L = W F + S K                theory (19).

The paths P / (1 + S K) and S / (1 + S K) have the residual of both together, so that W is designed on them as on any
others. What K adds to the reduction of W in a bin is |1 + S K|^2, of W's residual as of what is unknown of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.bands import BINS_HZ
from prime_anc.method.conventions import BIN_HZ, N_BINS
from prime_anc.method.errors import InvalidOption
from prime_anc.method.loops.loop import judge_loop
from prime_anc.method.loops.sections import Sections
from prime_anc.method.types import Complex64, Loop, Problem
from prime_anc.options import CONTROLLER_RATES_HZ, MAX_CONTROLLER_LATENCY_US, MAX_CONTROLLER_SECTIONS

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

# Frequencies about a resonance at which a loop is judged, in half bandwidths.
ABOUT_RESONANCE = np.linspace(-6, 6, 25)
# Band whose largest |S| stands for the frequencies above it, where none was measured.
HIGHEST_MEASURED_HZ = (10_000.0, 20_000.0)


@dataclass(frozen=True, eq=False)
class Controller:
    """A controller as it runs on a chip, in the units of the secondary path."""

    sections: Sections
    # Delay of the chip's loop, converters and computation, that the secondary path does not contain.
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        """Raise InvalidOption for values out of range, and sections that are not stable themselves."""
        shape, rate = self.sections.rows.shape, self.sections.sample_rate_hz
        if len(shape) != 2 or shape[1] != 6 or not 1 <= shape[0] <= MAX_CONTROLLER_SECTIONS:
            raise InvalidOption(
                f"controller: its sections are numbers of shape {shape}; send 1 to {MAX_CONTROLLER_SECTIONS} rows of "
                "b0, b1, b2, 1, a1, a2",
                "controller.sos",
            )
        low, high = CONTROLLER_RATES_HZ
        if not low <= rate <= high:
            raise InvalidOption(
                f"controller: its rate is {rate:g} Hz; use {low:g} to {high:g}", "controller.sample_rate"
            )
        if not 0 <= self.latency_s <= 1e-6 * MAX_CONTROLLER_LATENCY_US:
            raise InvalidOption(
                f"controller: its latency is {1e6 * self.latency_s:g} us; use 0 to {MAX_CONTROLLER_LATENCY_US:g}",
                "controller.latency_us",
            )
        if not np.isfinite(self.sections.rows).all():
            raise InvalidOption(
                "controller: a coefficient is NaN or infinite; send finite numbers", "controller.sos"
            )
        if not self.sections.is_stable:
            raise InvalidOption(
                "controller: a pole of its sections is not inside the unit circle; check the signs of a1 and a2",
                "controller.sos",
            )

    def scaled(self, gain: float) -> Controller:
        """Multiply the controller by a gain."""
        return Controller(self.sections.scaled(gain), self.latency_s)

    def response(self, frequency_hz: Real) -> Complex:
        """Evaluate K with its delay at frequencies up to half of the chip's rate, complex [n]."""
        delay = np.exp(-2j * np.pi * self.latency_s * frequency_hz)
        response: Complex = self.sections.response(frequency_hz) * delay
        return response

    @cached_property
    def on_bins(self) -> Complex:
        """K on the design grid, [16385]."""
        if not self.latency_s:
            return self.undelayed
        return self.undelayed * np.exp(-2j * np.pi * self.latency_s * BINS_HZ)

    @cached_property
    def undelayed(self) -> Complex:
        """K without its delay on the design grid, 0 above half of the chip's rate, [16385]."""
        return self.sections.at_design_rate()

    @cached_property
    def resonances_hz(self) -> Real:
        """Frequencies between the bins at which a sharp or low resonance of K may turn a loop."""
        poles = np.concatenate([np.roots(row) for row in self.sections.rows[:, 3:]] or [np.zeros(0)])
        poles = poles[(poles.imag >= 0) & (np.abs(poles) > 0)]
        rate = self.sections.sample_rate_hz / (2 * np.pi)
        centre, half_width = np.angle(poles) * rate, -np.log(np.abs(poles)) * rate
        near = centre[:, None] + half_width[:, None] * ABOUT_RESONANCE
        found = np.concatenate((near.ravel(), np.geomspace(0.05, 120, 500)))
        return np.sort(found[(found > 0) & (found < BINS_HZ[-1])])

    @cached_property
    def at_resonances(self) -> Complex:
        """K at these frequencies."""
        return self.response(self.resonances_hz)

    @cached_property
    def judged_hz(self) -> Real:
        """Bins and resonances, by rising frequency."""
        return np.insert(BINS_HZ, self.after_bins, self.resonances_hz)

    @cached_property
    def after_bins(self) -> NDArray[np.intp]:
        """Number of bins up to the frequency of every resonance."""
        return np.searchsorted(BINS_HZ, self.resonances_hz, side="right")

    @cached_property
    def loudest_beyond(self) -> float:
        """Largest |K| from the design grid's end to half of the chip's rate; 0 if there is nothing beyond."""
        half = self.sections.sample_rate_hz / 2
        if half <= BINS_HZ[-1]:
            return 0.0
        return float(np.abs(self.response(np.geomspace(BINS_HZ[-1], half, 256))).max())


def judge(controller: Controller, plant: Complex | Complex64, before: Complex | None = None) -> Loop:
    """Compute stability and margins of the loop that a controller closes.

    Parameters
    ----------
    controller
        K.
    plant
        S on the design grid, [16385].
    before
        W F on the design grid, [16385]; None without a feedback path.

    Returns
    -------
    Loop
        Of frequencies up to 24 kHz: it says all if the loop `is_quiet_beyond`.
    """
    loop = plant * controller.on_bins
    between = _interpolated(plant, controller.resonances_hz) * controller.at_resonances
    if before is not None:
        loop, between = loop + before, between + _interpolated(before, controller.resonances_hz)
    return judge_loop(np.insert(loop, controller.after_bins, between), controller.judged_hz)


class InnerLoop(NamedTuple):
    """The loop of a controller alone in one condition."""

    # S K, without the delay of the filter's chain, [16385].
    gain: Complex
    # K without its delay, in the unit of the posed paths, [16385].
    response: Complex


def inner_loop(problem: Problem, n: int, secondary: Complex64, level: float) -> InnerLoop:
    """Compute the loop of a problem's controller in condition n, which has to be stable.

    Parameters
    ----------
    secondary
        Spectrum without the delay of the filter's chain, [16385].
    level
        Of the path as sent over `secondary`.

    Raises
    ------
    InvalidOption
        The loop is unstable, or may be so above 24 kHz.
    """
    controller = problem.controller
    assert controller is not None
    plant = level * secondary.astype(np.complex128)
    loop = judge(controller, plant)
    if not loop.stable:
        raise InvalidOption(
            f"controller: its loop through the secondary path of {problem.name_of(n)} is unstable near "
            f"{loop.nearest_hz:.0f} Hz; send a controller designed for this earphone, or a lower gain",
            "controller",
        )
    if not is_quiet_beyond(controller, plant):
        raise InvalidOption(
            f"controller: above 24 kHz, where the secondary path of {problem.name_of(n)} is not known, its loop's "
            "gain may exceed one; lower its gain there",
            "controller",
        )
    return InnerLoop(plant * controller.on_bins, level * controller.undelayed)


def is_quiet_beyond(controller: Controller, plant: Complex | Complex64) -> bool:
    """Return whether |S K| < 1 above 24 kHz, where the largest |S| from 10 to 20 kHz stands for S."""
    measured = slice(*np.searchsorted(BINS_HZ, HIGHEST_MEASURED_HZ))
    return bool(controller.loudest_beyond * np.abs(plant[measured]).max() < 1)


def _interpolated(path: Complex | Complex64, frequency_hz: Real) -> Complex:
    """Interpolate a spectrum, whose response is much shorter than its transform, between bins."""
    place = frequency_hz / BIN_HZ
    below = np.minimum(place.astype(np.intp), N_BINS - 2)
    share = place - below
    value: Complex = path[below] * (1 - share) + path[below + 1] * share
    return value

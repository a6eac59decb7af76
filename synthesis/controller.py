"""A feedback controller K on the error microphone, beside the filter W.

    y = W m + K e,   E = (P (1 + W F) - S W) X / (1 + L),   L = W F + S K                theory (19).

The paths P / (1 + S K) and S / (1 + S K) have the residual of both together, so that W is designed on them as on any
others. What K adds to the reduction of W in a bin is |1 + S K|^2, of W's residual as of what is unknown of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthesis.bands import NR_BANDS, columns
from synthesis.conventions import DESIGN_N_FFT, N_BINS, SAMPLE_RATE_HZ
from synthesis.errors import InvalidOption
from synthesis.loop import judge_loop, loop_gain
from synthesis.methods import Path, spectrum
from synthesis.options import CONTROLLER_RATES_HZ, MAX_CONTROLLER_LATENCY_US, MAX_CONTROLLER_SECTIONS
from synthesis.predict import level_changes_db, secondary_errors
from synthesis.sections import Sections
from synthesis.support_statistics import peak_of
from synthesis.types import Complex64, Float32, InnerLoop, Loop, Paths, Prediction, Problem
from synthesis.unknown import BAND_BINS

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]

NR_COLUMNS = columns(NR_BANDS)
_BINS_HZ = np.arange(N_BINS) * (SAMPLE_RATE_HZ / DESIGN_N_FFT)
# In the bands of the mean.
SECONDARY_ERRORS = secondary_errors(_BINS_HZ[BAND_BINS[NR_COLUMNS.start] : BAND_BINS[NR_COLUMNS.stop]]).astype(
    np.complex64
)
# Largest share of the disturbance that is taken for unknown where W hardly changes a band.
MOST_UNKNOWN = 10.0
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

    def response(self, frequency_hz: Real) -> Complex:
        """Evaluate K with its delay at frequencies up to half of the chip's rate, complex [n]."""
        delay = np.exp(-2j * np.pi * self.latency_s * frequency_hz)
        response: Complex = self.sections.response(frequency_hz) * delay
        return response

    @cached_property
    def on_bins(self) -> Complex:
        """K on the design grid, [16385]."""
        return self.undelayed * np.exp(-2j * np.pi * self.latency_s * _BINS_HZ)

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
        found = np.concatenate((near.ravel(), np.geomspace(0.05, 60, 200)))
        return np.sort(found[(found > 0) & (found < _BINS_HZ[-1])])

    @cached_property
    def at_resonances(self) -> Complex:
        """K at these frequencies."""
        return self.response(self.resonances_hz)

    @cached_property
    def judged_hz(self) -> Real:
        """Bins and resonances, by rising frequency."""
        return np.insert(_BINS_HZ, self.after_bins, self.resonances_hz)

    @cached_property
    def after_bins(self) -> NDArray[np.intp]:
        """Number of bins up to the frequency of every resonance."""
        return np.searchsorted(_BINS_HZ, self.resonances_hz, side="right")

    @cached_property
    def loudest_beyond(self) -> float:
        """Largest |K| from the design grid's end to half of the chip's rate; 0 if there is nothing beyond."""
        half = self.sections.sample_rate_hz / 2
        if half <= _BINS_HZ[-1]:
            return 0.0
        return float(np.abs(self.response(np.geomspace(_BINS_HZ[-1], half, 256))).max())


def judge(
    controller: Controller, plant: Complex, before: Complex | None = None, gain: Complex | None = None
) -> Loop:
    """Compute stability and margins of the loop that a controller closes.

    Parameters
    ----------
    controller
        K.
    plant
        S on the design grid, [16385].
    before
        W F on the design grid, [16385]; None without a feedback path.
    gain
        S K on the design grid, if known, [16385].

    Returns
    -------
    Loop
        Of frequencies up to 24 kHz: it says all if the loop `is_quiet_beyond`.
    """
    loop = plant * controller.on_bins if gain is None else gain
    between = _interpolated(plant, controller.resonances_hz) * controller.at_resonances
    if before is not None:
        loop, between = loop + before, between + _interpolated(before, controller.resonances_hz)
    return judge_loop(np.insert(loop, controller.after_bins, between), controller.judged_hz)


def is_quiet_beyond(controller: Controller, plant: Complex) -> bool:
    """Return whether |S K| < 1 above 24 kHz, where the largest |S| from 10 to 20 kHz stands for S."""
    measured = slice(*np.searchsorted(_BINS_HZ, HIGHEST_MEASURED_HZ))
    return bool(controller.loudest_beyond * np.abs(plant[measured]).max() < 1)


def _interpolated(path: Complex, frequency_hz: Real) -> Complex:
    """Interpolate a spectrum, whose response is much shorter than its transform, between bins."""
    place = frequency_hz / (SAMPLE_RATE_HZ / DESIGN_N_FFT)
    below = np.minimum(place.astype(np.intp), N_BINS - 2)
    share = place - below
    value: Complex = path[below] * (1 - share) + path[below + 1] * share
    return value


def controlled(problem: Problem) -> Problem:
    """Set the plant of every condition, before the paths get another level and the delay of the filter's chain.

    Raises
    ------
    InvalidOption
        A loop is unstable, or may be so above 24 kHz.
    """
    controller = problem.controller
    assert controller is not None
    conditions = []
    for n, paths in enumerate(problem.conditions):
        plant = spectrum(paths.secondary)
        gain = plant * controller.on_bins
        loop = judge(controller, plant, gain=gain)
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
        conditions.append(replace(paths, inner=InnerLoop(plant, gain, loop)))
    return replace(problem, conditions=tuple(conditions))


def with_spectra(problem: Problem, sent: Sequence[Paths]) -> Problem:
    """Transform the paths once, of which the controller's computations need the spectra several times.

    The secondary paths are those sent, whose spectra are the plants, at another level.
    """
    conditions = []
    for paths, before in zip(problem.conditions, sent, strict=True):
        scaled = _inner(paths).plant * (peak_of(paths.secondary) / peak_of(before.secondary))
        conditions.append(replace(paths, primary=_single(paths.primary), secondary=scaled.astype(np.complex64)))
    return replace(problem, conditions=tuple(conditions))


def loops_of(problem: Problem, taps: Float32) -> list[Loop]:
    """Compute the loops of a filter through all feedback paths, or of filter and controller in all conditions.

    The paths have the filter's delay, and their plant, if there is a controller.
    """
    controller, conditions = problem.controller, problem.conditions
    if controller is None:
        return [judge_loop(loop_gain(taps, paths.feedback)) for paths in conditions if paths.feedback is not None]
    found = []
    for paths in conditions:
        plant, gain, loop = _inner(paths)
        if paths.feedback is not None:
            loop = judge(controller, plant, spectrum(taps) * spectrum(paths.feedback), gain)
        found.append(loop)
    return found


def in_closed_loop(problem: Problem) -> Problem:
    """Close the controller's loops: a problem whose paths are P, S and F over 1 + S K."""
    controller = problem.controller
    if controller is None:
        return problem

    def closed(paths: Paths) -> Paths:
        if paths.inner is None:  # which the backend refuses
            return paths
        left = 1 / (1 + paths.inner.gain.astype(np.complex64))
        feedback = None if paths.feedback is None else _single(paths.feedback) * left
        primary, secondary = _single(paths.primary) * left, _single(paths.secondary) * left
        return replace(paths, primary=primary, secondary=secondary, feedback=feedback)

    return replace(problem, controller=None, conditions=tuple(map(closed, problem.conditions)))


def predict_both(
    found: Prediction, problem: Problem, n: int, taps: Float32 | Complex64, *, is_true: bool
) -> Prediction:
    """Add the controller's effect to the prediction of a filter alone: theory (19), (20).

    Parameters
    ----------
    found
        Prediction of the filter in condition n, with what is unknown.
    problem
        Its paths have the filter's delay, and their plant. Without a controller, `found` is returned. Filter and
        controller are taken to be equally late where they drive the loudspeaker together.
    taps
        Filter, taps [2048] or response [16385].
    is_true
        Whether nothing is unknown.

    Returns
    -------
    Prediction
        Of both together, with the shares of both and what happens to music.
    """
    controller, paths = problem.controller, problem.conditions[n]
    if controller is None:
        return found
    primary, secondary, response = map(_single, (paths.primary, paths.secondary, taps))
    plant, gain, _ = _inner(paths)
    loop, psd = gain.astype(np.complex64), np.asarray(problem.reference_psd, np.float64)
    played, passed, both, of_alone = secondary * response, primary, 1 + loop, np.ones(1, np.float32)
    if paths.feedback is not None:
        alone = 1 + response * _single(paths.feedback)
        passed, both, of_alone = primary * alone, alone + loop, _square(alone)
    of_both = _square(both)
    # What is left by the loop of both, over what is left by that of the filter alone.
    left = of_alone / of_both
    power = psd * _square(primary)
    residual = psd * (_square(passed - played) / of_alone)
    before, after = _in_bands(power), _in_bands(residual)
    before = before + max(1e-12 * before.max(), 1e-300)
    # What is unknown of P follows from the prediction, and has the spectrum of P within a band.
    ratio = 10 ** (np.asarray(found.band_reduction_db, np.float64) / 10)
    unknown = np.zeros_like(before)
    if not is_true:
        unknown = (before - ratio * after) / np.where(np.abs(ratio - 1) > 1e-3, ratio - 1, np.inf)
        unknown = unknown.clip(0, MOST_UNKNOWN * before)
    of_unknown = unknown / before * _in_bands(power * left)
    remaining = _in_bands(residual * left)
    reduction = 10 * np.log10((before + unknown) / np.maximum(remaining + of_unknown, 1e-300))

    # The secondary path off in level or delay, in the bands of the mean alone.
    inside = slice(BAND_BINS[NR_COLUMNS.start], BAND_BINS[NR_COLUMNS.stop])
    changed = _square(passed[inside] - SECONDARY_ERRORS * played[inside])
    changed /= _square(both[inside] + (SECONDARY_ERRORS - 1) * loop[inside])
    starts = BAND_BINS[NR_COLUMNS] - inside.start
    off = np.add.reduceat(psd[inside] * changed, starts, axis=-1) + of_unknown[NR_COLUMNS]
    off_db = (10 * np.log10((before + unknown)[NR_COLUMNS] / np.maximum(off, 1e-300))).mean(-1)
    louder, quieter, later, earlier = off_db.tolist()
    mean = float(reduction[NR_COLUMNS].mean())
    is_measured = is_true or found.basis != "model"
    level = np.linalg.norm(plant) / np.linalg.norm(secondary)  # the paths have another than the controller's
    drive = _square(response + primary * (level * controller.undelayed).astype(np.complex64)) / of_both
    changes: dict[str, Any] = level_changes_db(reduction, before)
    return replace(
        found,
        **changes,
        band_reduction_db=reduction.astype(np.float32),
        mean_noise_reduction_db=mean,
        gain_sensitivity_db=mean - min(louder, quieter),
        delay_sensitivity_db=mean - min(later, earlier),
        control_rms=float(np.sqrt(psd @ drive)),
        nominal_noise_reduction_db=mean if is_measured else _mean_db(before, remaining),
        feedforward_noise_reduction_db=found.band_reduction_db,
        feedback_noise_reduction_db=(reduction - found.band_reduction_db).astype(np.float32),
        playback_change_db=(10 * np.log10(_in_bands(1 / of_both) / np.diff(BAND_BINS))).astype(np.float32),
    )


def _inner(paths: Paths) -> InnerLoop:
    assert paths.inner is not None  # set by `controlled`
    return paths.inner


def _single(path: Path) -> Complex64:
    """Return a path on the design grid in single precision, [16385]."""
    found: Complex64 = np.asarray(path if np.iscomplexobj(path) else spectrum(path), np.complex64)
    return found


def _square(values: Complex64) -> Float32:
    found: Float32 = values.real**2 + values.imag**2
    return found


def _in_bands(power: Real | Float32) -> Real:
    """Sum over the 31 bands."""
    return np.add.reduceat(power[: BAND_BINS[-1]], BAND_BINS[:-1])


def _mean_db(before: Real, after: Real) -> float:
    """Mean noise reduction from 50 Hz to 5 kHz."""
    ratio = before / np.maximum(after, 1e-300)
    return float(10 * np.log10(ratio[NR_COLUMNS]).mean())

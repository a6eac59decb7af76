"""Design a feedback controller and the control filter beside it.

The controller's sections are fitted to what the filter leaves, the filter is designed in the loop that the controller
closes, and both once more. The loop is stable on all plants: the conditions' secondary paths, those that only have to
be stable, and lent changes by wearing, each at GAINS_DB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hardware.cascade import HIGHEST_SHARE
from hardware.controller_fit import LoopProblem, fit_bins, fit_controller, frequencies_beyond_hz
from hardware.residual_power import Complex, Real, sub_bands
from synthesis.controller import HIGHEST_MEASURED_HZ, Controller, judge
from synthesis.conventions import DESIGN_N_FFT, N_BINS, SAMPLE_RATE_HZ
from synthesis.design import Model, design
from synthesis.errors import InvalidPaths, check_interruption
from synthesis.loop import worst_loop
from synthesis.methods import spectrum
from synthesis.options import ControllerFields
from synthesis.posing import level_db
from synthesis.profiles import FAST
from synthesis.sections import Sections
from synthesis.types import Design, DesignOptions, Fallback, Loop, Paths, Problem
from synthesis.unknown import BAND_BINS

# Levels at which every plant has to be stable, and where only one seating is known.
GAINS_DB, WIDE_GAINS_DB = (-3.0, 0.0, 3.0), (-6.0, 0.0, 6.0)
# Above this frequency |S K| is below the limit on all plants.
QUIET_FROM_HZ, QUIETEST_LOOP = 6000.0, 0.5
# Default ceiling on |K| over the inverse of the secondary path's level.
DEFAULT_CEILING_DB = 40.0
ROUNDS = 2
# Largest least distance of L from -1 that a fit is given; L = 0 has one.
MOST_DISTANCE, SPARE = 0.9, 1.02
# First factor by which a controller is turned down whose margins do not hold, then its square, and so on.
FIRST_STEP = 0.98

_BIN_HZ = SAMPLE_RATE_HZ / DESIGN_N_FFT
_BINS_HZ = np.arange(N_BINS) * _BIN_HZ


@dataclass(frozen=True, eq=False)
class Plant:
    """A loop that has to be stable: S, and F if it is known."""

    label: str
    # Loudspeaker to error microphone, complex [16385].
    secondary: Complex
    # Loudspeaker to outer microphone with the delay of the filter's chain, complex [16385].
    feedback: Complex | None = None


@dataclass(frozen=True, eq=False)
class HybridDesign:
    """A filter and a controller for the same earphone."""

    # The filter, designed around the controller; its prediction is of both, its loop the worst of all plants.
    design: Design
    controller: Controller
    # Loop of every plant, at the level at which it is worst.
    loops: tuple[tuple[str, Loop], ...]
    # Whether margins hold for this seating alone: no change by wearing was measured or lent.
    is_plant_unknown: bool


def design_hybrid(
    problem: Problem,
    options: DesignOptions,
    model: Model,
    wanted: ControllerFields | None = None,
    *,
    stability_only: Sequence[Paths] = (),
    lend_wearing: bool = True,
    fallback: Fallback | None = None,
) -> HybridDesign:
    """Design controller and filter.

    Parameters
    ----------
    problem
        Conditions of the filter. Its controller is ignored.
    options, model, fallback
        As of `design`.
    wanted
        Options of the controller.
    stability_only
        Paths in which the loop has to be stable, which count for nothing else; their primary paths are ignored.
    lend_wearing
        Whether the model's changes by wearing apply to an ear that was measured once.

    Returns
    -------
    HybridDesign
        Both.

    Raises
    ------
    SynthesisError
        As of `design`.
    """
    wanted = ControllerFields() if wanted is None else wanted
    problem = replace(problem, controller=None)
    made = design(problem, options, model)
    plants = [_plant(problem, paths, problem.name_of(n)) for n, paths in enumerate(problem.conditions)]
    plants += [
        _plant(problem, paths, paths.label or f"stability_only.{n}") for n, paths in enumerate(stability_only)
    ]
    n_measured = len({plant.secondary.tobytes() for plant in plants})
    lent = _lent(problem, model) if lend_wearing and n_measured == 1 else []
    plants += lent
    is_unknown = n_measured == 1 and not lent
    gains_db = WIDE_GAINS_DB if is_unknown else GAINS_DB
    rows: Real | None = None
    controller, extra = None, np.zeros(0, np.intp)
    for n in range(ROUNDS):
        check_interruption()
        posed = loop_problem(problem, made, plants, gains_db, wanted, model, extra)
        fit, rows = fit_controller(posed, wanted.n_sections, rows)
        controller = Controller(fit.realise(rows[0]), 1e-6 * wanted.latency_us)
        extra = np.union1d(extra, narrow_bins(controller, made, plants, gains_db, distance(wanted)))
        controller = kept(controller, plants, gains_db, wanted)
        last = n == ROUNDS - 1
        made = design(replace(problem, controller=controller), options, model, fallback if last else None)
    assert controller is not None
    loops = tuple((plant.label, _worst(controller, plant, gains_db, made)) for plant in plants)
    worst = worst_loop([loop for _, loop in loops], made.loop.loss_db if made.loop else 0.0)
    return HybridDesign(replace(made, loop=worst), controller, loops, is_unknown)


def _lent(problem: Problem, model: Model) -> list[Plant]:
    """Return the plants of the model's device worn otherwise, if the first condition's paths are such a device's."""
    paths, support = problem.conditions[0], model.parameters.support
    if support is None or not paths.is_usable or not support.resembles(paths.primary, paths.secondary):
        return []
    feedback = _plant(problem, paths, "").feedback
    secondary = spectrum(paths.secondary)
    return [Plant(change.name, change.applied(secondary), feedback) for change in model.parameters.wearing]


def distance(wanted: ControllerFields) -> float:
    """Return the least distance of L from the real axis below -1 that keeps sensitivity and both margins."""
    needed = (
        10 ** (-wanted.max_sensitivity_db / 20),
        1 - 10 ** (-wanted.min_gain_margin_db / 20),
        2 * np.sin(np.radians(wanted.min_phase_margin_deg) / 2),
    )
    return min(SPARE * max(needed), MOST_DISTANCE)


def loop_problem(
    problem: Problem,
    made: Design,
    plants: Sequence[Plant],
    gains_db: Sequence[float],
    wanted: ControllerFields,
    model: Model,
    extra: NDArray[np.intp],
) -> LoopProblem:
    """Pose the fit of a controller to what a filter leaves."""
    psd = model.parameters.reference_psd if problem.reference_psd is None else problem.reference_psd
    psd, response, late = np.asarray(psd, np.float64), spectrum(made.taps), _late(problem)
    bins, beyond_hz = fit_bins(extra), frequencies_beyond_hz(wanted.sample_rate)
    frequency_hz = np.concatenate((bins * _BIN_HZ, beyond_hz)).clip(max=HIGHEST_SHARE * wanted.sample_rate)
    delay = np.exp(-2j * np.pi * 1e-6 * wanted.latency_us * frequency_hz)
    first, _ = sub_bands()
    n_scored = len(first) - 1
    factors = 10 ** (np.array(gains_db) / 20)
    secondary, own = np.zeros((2, len(plants), len(frequency_hz)), complex)
    for n, plant in enumerate(plants):
        secondary[n, : len(bins)] = plant.secondary[bins]
        if plant.feedback is not None:
            own[n, : len(bins)] = (response * plant.feedback)[bins]
    n_conditions = len(problem.conditions)
    residual, disturbance = [], []
    for paths, plant in zip(problem.conditions, plants, strict=False):
        primary = spectrum(paths.primary)
        passed = primary if plant.feedback is None else primary * (1 + response * plant.feedback)
        left = psd * np.abs(passed - plant.secondary * late * response) ** 2
        power = psd * np.abs(primary) ** 2
        disturbance.append(np.add.reduceat(power[: BAND_BINS[-1]], BAND_BINS[:-1]))
        residual.append(np.add.reduceat(left, first)[:-1])
    total = np.mean(np.sum(disturbance, -1))
    if not total > 0:
        raise InvalidPaths("primary: it has no power where the reference has any; measure it again", "primary")
    loudest = np.abs(secondary).max(0) * factors.max()
    measured = (frequency_hz > HIGHEST_MEASURED_HZ[0]) & (frequency_hz < HIGHEST_MEASURED_HZ[1])
    loudest = np.where(frequency_hz > HIGHEST_MEASURED_HZ[1], loudest[measured].max(), loudest)
    ceiling_db = wanted.max_gain_db
    if ceiling_db is None:
        ceiling_db = DEFAULT_CEILING_DB - level_db(problem.conditions[0].secondary)
    ceiling = np.full(len(frequency_hz), 10 ** (ceiling_db / 20))
    quiet = frequency_hz > QUIET_FROM_HZ
    ceiling[quiet] = np.minimum(ceiling[quiet], QUIETEST_LOOP / loudest[quiet])
    return LoopProblem(
        frequency_hz=frequency_hz,
        scored=(secondary * delay)[:n_conditions, :n_scored],
        scored_before=own[:n_conditions, :n_scored],
        plants=np.concatenate(factors[:, None, None] * (secondary * delay)),
        plants_before=np.tile(own, (len(factors), 1)),
        residual=np.stack(residual) / total,
        disturbance=np.stack(disturbance) / total,
        share=problem.shares,
        ceiling=ceiling,
        distance=distance(wanted),
        sample_rate_hz=wanted.sample_rate,
        profile=problem.weighted(FAST),
    )


def narrow_bins(
    controller: Controller, made: Design, plants: Sequence[Plant], gains_db: Sequence[float], least: float
) -> NDArray[np.intp]:
    """Return bins where a loop comes closest to -1 between the frequencies of a fit."""
    found = []
    for plant in plants:
        before = 0 if plant.feedback is None else spectrum(made.taps) * plant.feedback
        part = plant.secondary * controller.on_bins
        for gain_db in gains_db:
            size = np.abs(1 + before + 10 ** (gain_db / 20) * part)
            found.append(
                1 + np.flatnonzero((size[1:-1] < least) & (size[1:-1] <= size[:-2]) & (size[1:-1] < size[2:]))
            )
    return np.unique(np.concatenate(found))


def kept(
    controller: Controller, plants: Sequence[Plant], gains_db: Sequence[float], wanted: ControllerFields
) -> Controller:
    """Turn a controller down until its loops keep all margins between the frequencies of the fit as well."""
    loops = [10 ** (gain_db / 20) * plant.secondary for plant in plants for gain_db in gains_db]
    step = FIRST_STEP
    while (
        n := next((n for n, loop in enumerate(loops) if not _keeps(judge(controller, loop), wanted)), None)
    ) is not None:
        check_interruption()
        loops.insert(0, loops.pop(n))  # the likeliest to fail again
        controller = turned_down(controller, step)
        step *= step
    return controller


def turned_down(controller: Controller, gain: float) -> Controller:
    """Multiply a controller by a gain."""
    rows = controller.sections.rows.copy()
    rows[0, :3] *= gain
    return replace(controller, sections=Sections(rows, controller.sections.sample_rate_hz))


def _keeps(loop: Loop, wanted: ControllerFields) -> bool:
    return (
        loop.stable
        and loop.max_sensitivity_db <= wanted.max_sensitivity_db
        and loop.gain_margin_db >= wanted.min_gain_margin_db
        and loop.phase_margin_deg >= wanted.min_phase_margin_deg
    )


def _worst(controller: Controller, plant: Plant, gains_db: Sequence[float], made: Design) -> Loop:
    """Judge the joint loop of a plant at all levels."""
    before = None if plant.feedback is None else spectrum(made.taps) * plant.feedback
    return worst_loop([judge(controller, 10 ** (gain_db / 20) * plant.secondary, before) for gain_db in gains_db])


def _late(problem: Problem) -> Complex:
    """Return the delay of the filter's chain on the design grid."""
    delay: Complex = np.exp(-2j * np.pi * problem.latency_samples / DESIGN_N_FFT * np.arange(N_BINS))
    return delay


def _plant(problem: Problem, paths: Paths, label: str) -> Plant:
    feedback = None
    if paths.feedback is not None:
        feedback = spectrum(paths.feedback) * _late(problem)
    return Plant(label, spectrum(paths.secondary), feedback)

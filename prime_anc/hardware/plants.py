"""Plants of a controller: loops that have to be stable, the fit's problem, and controllers that keep all margins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prime_anc.hardware.cascade import HIGHEST_SHARE
from prime_anc.hardware.controller_fit import LoopProblem, fit_bins, frequencies_beyond_hz
from prime_anc.hardware.residual_power import Complex, Real, on_bins, sub_bands
from prime_anc.method.bands import BINS_HZ, sum_over_bands
from prime_anc.method.conventions import BIN_HZ, N_BINS
from prime_anc.method.errors import InvalidPaths, check_interruption
from prime_anc.method.loops.controller import HIGHEST_MEASURED_HZ, Controller, is_quiet_beyond, judge
from prime_anc.method.loops.loop import lines_cross_below, worst_loop
from prime_anc.method.methods import spectrum
from prime_anc.method.posing import delay_of, is_usable, level_db
from prime_anc.method.profiles import FAST
from prime_anc.method.types import Design, Known, Loop, ModelParameters, Paths, Problem
from prime_anc.options import ControllerFields

# Levels at which every plant has to be stable, and where only one seating is known.
GAINS_DB, WIDE_GAINS_DB = (-3.0, 0.0, 3.0), (-6.0, 0.0, 6.0)
# Below the lowest band, and from this frequency on, |S K| is below the limit on all plants.
QUIET_BELOW_HZ, QUIET_FROM_HZ, QUIETEST_LOOP = 17.8, 6000.0, 0.5
# Default ceiling on |K| over the inverse of the secondary path's level.
DEFAULT_CEILING_DB = 40.0
# Largest least distance of L from -1 that a fit is given, since L = 0 has one.
MOST_DISTANCE = 0.9


@dataclass(frozen=True, eq=False)
class Plant:
    """A loop that has to be stable: S, and F if it is known."""

    label: str
    # Loudspeaker to error microphone, complex [16385].
    secondary: Complex
    # Loudspeaker to outer microphone with the delay of the filter's chain, complex [16385].
    feedback: Complex | None = None
    # Whether S is that of the earphone taken off, to which the ear's first plant changes along a straight line.
    is_taken_off: bool = False
    # By how much more its level varies than that of the ear's others.
    spread_db: float = 0.0

    def before(self, made: Design) -> Complex | None:
        """Compute W F of a filter, complex [16385]; None without a feedback path."""
        return None if self.feedback is None else spectrum(made.taps) * self.feedback


@dataclass(frozen=True, eq=False)
class Ear:
    """An ear for which a controller is designed, with its filter so far; the plants begin with the conditions'."""

    problem: Problem
    made: Design
    plants: Sequence[Plant]
    gains_db: tuple[float, ...] = GAINS_DB

    @property
    def loops(self) -> list[tuple[Complex, Complex | None]]:
        """Return S at all levels, and W F, of all plants."""
        return [loop for plant in self.plants for loop in self.at_levels(plant)]

    def levels(self, plant: Plant) -> Real:
        """Return the factors on a plant's S: least, middle, largest."""
        gains_db = np.array(self.gains_db) + plant.spread_db * np.array([-1, 0, 1])
        levels: Real = 10 ** (gains_db / 20)
        return levels

    def at_levels(self, plant: Plant) -> list[tuple[Complex, Complex | None]]:
        """Return S at all levels, and W F, of a plant."""
        before = plant.before(self.made)
        return [(level * plant.secondary, before) for level in self.levels(plant)]


def plant_of(problem: Problem, paths: Paths, label: str) -> Plant:
    """Return the plant of a condition."""
    feedback = None if paths.feedback is None else spectrum(paths.feedback) * delay_of(problem)
    return Plant(label, spectrum(paths.secondary), feedback)


def lent_plants(problem: Problem, parameters: ModelParameters) -> list[Plant]:
    """Return the first condition's plant worn otherwise, if its paths are of the model's device or any earphone."""
    paths, support = problem.conditions[0], parameters.support
    if not is_usable(paths) or (support and not support.resembles(paths.primary, paths.secondary)):
        return []
    own = plant_of(problem, paths, "")
    if not all(change.suits(own.secondary) for change in parameters.wearing):
        return []
    return [
        replace(
            own,
            label=change.name,
            secondary=change.applied(own.secondary),
            is_taken_off=change.level_db is not None,
            spread_db=change.level_spread_db,
        )
        for change in parameters.wearing
    ]


def distance(wanted: ControllerFields) -> float:
    """Return the least distance of L from the real axis below -1 that keeps sensitivity and both margins."""
    needed = (
        10 ** (-wanted.max_sensitivity_db / 20),
        1 - 10 ** (-wanted.min_gain_margin_db / 20),
        2 * np.sin(np.radians(wanted.min_phase_margin_deg) / 2),
    )
    return float(min(max(needed), MOST_DISTANCE))


def loop_problem(
    ears: Sequence[Ear], wanted: ControllerFields, reference_psd: NDArray[np.floating], extra: NDArray[np.intp]
) -> LoopProblem:
    """Pose the fit of a controller to what the ears' filters leave.

    Parameters
    ----------
    ears
        One or several, with equal weights; the first one's weights in J.
    wanted
        Options of the controller.
    reference_psd
        Of problems without one, [16385].
    extra
        Bins at which the loops are judged besides.
    """
    bins, beyond_hz = fit_bins(extra), frequencies_beyond_hz(wanted.sample_rate)
    frequency_hz = np.concatenate((bins * BIN_HZ, beyond_hz)).clip(max=HIGHEST_SHARE * wanted.sample_rate)
    delay = np.exp(-2j * np.pi * 1e-6 * wanted.latency_us * frequency_hz)
    first, _ = sub_bands()

    def at_bins(values: Complex | None) -> Complex:
        found = np.zeros(len(frequency_hz), complex)
        if values is not None:
            found[: len(bins)] = values[bins]
        return found

    scored, levels, lines, residual, disturbance, share = [], [], [], [], [], []
    plants: list[tuple[Complex, Complex]] = []
    for ear in ears:
        pairs = [(at_bins(plant.secondary), at_bins(plant.before(ear.made))) for plant in ear.plants]
        lines += [(len(plants), len(plants) + n) for n, plant in enumerate(ear.plants) if plant.is_taken_off]
        levels += [ear.levels(plant)[[0, -1]] for plant in ear.plants]
        plants += pairs
        scored += pairs[: len(ear.problem.conditions)]
        share += list(ear.problem.shares / len(ears))
        for paths, known, plant in zip(ear.problem.conditions, ear.made.known, ear.plants, strict=False):
            before, left = _powers(ear, paths, known, plant, reference_psd)
            disturbance.append(before)
            residual.append(np.add.reduceat(left, first)[:-1])
    total = np.sum(disturbance, -1, keepdims=True)
    if not (total > 0).all():
        raise InvalidPaths("primary: it has no power where the reference has any; measure it again", "primary")
    of_plants, of_filters = np.array(plants).swapaxes(0, 1)
    n_scored = len(first) - 1
    paths_at, own_at = np.array(scored)[:, :, :n_scored].swapaxes(0, 1)
    return LoopProblem(
        frequency_hz=frequency_hz,
        scored=paths_at * delay[:n_scored],
        scored_before=own_at,
        plants=of_plants * delay,
        plants_before=of_filters,
        levels=np.array(levels),
        lines=np.array(lines, np.intp).reshape(-1, 2),
        residual=np.stack(residual) / total,
        disturbance=np.stack(disturbance) / total,
        share=np.array(share),
        ceiling=_ceiling(ears, wanted, frequency_hz, np.abs(of_plants), np.array(levels)),
        distance=distance(wanted),
        sample_rate_hz=wanted.sample_rate,
        # A limit on louder bands is left to the filter: most are above 5 kHz, where a controller changes little.
        profile=replace(FAST, **ears[0].problem.weights | {"max_louder_db": math.inf}),
    )


def _powers(
    ear: Ear, paths: Paths, known: Known, plant: Plant, reference_psd: NDArray[np.floating]
) -> tuple[Real, Real]:
    """Compute the expected disturbance per band, and the expected power that the filter leaves per bin: theory (12)."""
    problem, response, own = ear.problem, spectrum(ear.made.taps), plant.before(ear.made)
    psd = np.asarray(reference_psd if problem.reference_psd is None else problem.reference_psd, np.float64)
    primary = spectrum(paths.primary)
    passed = primary if own is None else primary * (1 + own)
    played = plant.secondary * delay_of(problem) * response
    of_primary, of_secondary = on_bins(known.assumed.astype(np.float64))
    unknown = of_primary * np.abs(primary) ** 2
    left = psd * (np.abs(passed - played) ** 2 + unknown + of_secondary * np.abs(played) ** 2)
    return sum_over_bands(psd * (np.abs(primary) ** 2 + unknown)), left


def _ceiling(ears: Sequence[Ear], wanted: ControllerFields, frequency_hz: Real, sizes: Real, levels: Real) -> Real:
    """Return the ceiling on |K|, given |S| and the levels of all plants; below the lowest band, levels count 0 dB."""
    loudest = np.where(frequency_hz < QUIET_BELOW_HZ, sizes, levels[:, 1:] * sizes).max(0)
    lowest, highest = HIGHEST_MEASURED_HZ
    measured = (frequency_hz > lowest) & (frequency_hz < highest)
    loudest = np.where(frequency_hz > highest, loudest[measured].max(), loudest)
    ceiling_db = wanted.max_gain_db
    if ceiling_db is None:
        levels_db = [level_db(paths.secondary) for ear in ears for paths in ear.problem.conditions]
        ceiling_db = DEFAULT_CEILING_DB - float(np.mean(levels_db))
    ceiling = np.full(len(frequency_hz), 10 ** (ceiling_db / 20))
    quiet = (frequency_hz > QUIET_FROM_HZ) | (frequency_hz < QUIET_BELOW_HZ)
    ceiling[quiet] = np.minimum(ceiling[quiet], QUIETEST_LOOP / loudest[quiet])
    return ceiling


def narrow_bins(controller: Controller, ears: Sequence[Ear], least: float) -> NDArray[np.intp]:
    """Return bins where a loop comes closest to -1 between the frequencies of a fit."""
    found = [np.zeros(0, np.intp)]
    for ear in ears:
        for path, own in ear.loops:
            closed = 1 + path * controller.on_bins
            size = np.abs(closed if own is None else closed + own)
            lowest = (size[1:-1] < least) & (size[1:-1] <= size[:-2]) & (size[1:-1] < size[2:])
            found.append(1 + np.flatnonzero(lowest))
    return np.unique(np.concatenate(found))


def holds(controller: Controller, ears: Sequence[Ear], wanted: ControllerFields) -> bool:
    """Return whether the loops of all plants keep all margins, between the frequencies of a fit as well."""
    check_interruption()
    return all(
        all(is_quiet(controller, plant.secondary) for plant in ear.plants)
        and all(keeps(judge(controller, path, before), wanted) for path, before in ear.loops)
        and not crosses_while_taken_off(controller, ear)
        for ear in ears
    )


def is_quiet(controller: Controller, secondary: Complex) -> bool:
    """Return whether |S K| is below its limit outside the measured bands, up to half of the chip's rate."""
    low, high = np.searchsorted(BINS_HZ, (QUIET_BELOW_HZ, HIGHEST_MEASURED_HZ[1]))
    outside = np.abs(secondary * controller.on_bins)[np.r_[:low, high:N_BINS]]
    return bool(outside.max() < QUIETEST_LOOP) and is_quiet_beyond(controller, secondary / QUIETEST_LOOP)


def crosses_while_taken_off(controller: Controller, ear: Ear) -> bool:
    """Return whether a loop crosses the real axis below -1 on the way from the first plant to one taken off."""
    for plant in ear.plants:
        if plant.is_taken_off:
            ends = [path.secondary * controller.on_bins for path in (ear.plants[0], plant)]
            before = plant.before(ear.made)
            for level in ear.levels(plant)[[0, -1]]:
                if lines_cross_below(*(level * end + (0 if before is None else before) for end in ends)).any():
                    return True
    return False


def keeps(loop: Loop, wanted: ControllerFields) -> bool:
    """Return whether a loop is stable with all margins."""
    return (
        loop.stable
        and loop.max_sensitivity_db <= wanted.max_sensitivity_db
        and loop.gain_margin_db >= wanted.min_gain_margin_db
        and loop.phase_margin_deg >= wanted.min_phase_margin_deg
    )


def worst_of(controller: Controller, ear: Ear, plant: Plant) -> Loop:
    """Judge the loop of filter and controller on a plant at all levels."""
    return worst_loop([judge(controller, path, before) for path, before in ear.at_levels(plant)])

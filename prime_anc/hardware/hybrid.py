"""Design a feedback controller and the control filter beside it.

The controller's sections are fitted to what the filter leaves, the filter is designed in the loop that the controller
closes, and both once more. The loop is stable on all plants: the conditions' secondary paths, those that only have to
be stable, and lent changes by wearing, each at several levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prime_anc.hardware.controller_fit import LIMITS_HZ, fit_controller
from prime_anc.hardware.fixed_point import (
    NumberFormat,
    Quantised,
    SignalScaling,
    lowest_pole_hz,
    parse_format,
    quantise_sections,
    scale_sections,
    sections_scaling,
)
from prime_anc.hardware.plants import (
    GAINS_DB,
    MOST_DISTANCE,
    WIDE_GAINS_DB,
    Ear,
    Plant,
    holds,
    lent_plants,
    loop_problem,
    narrow_bins,
    plant_of,
    worst_of,
)
from prime_anc.hardware.realise import FLOAT32_WORDS
from prime_anc.hardware.residual_power import PathSpectra, Real, ResidualPower
from prime_anc.hardware.second_order_sections import design_sections, largest_gain
from prime_anc.method.bands import BAND_BINS, NR_BANDS, columns
from prime_anc.method.conventions import N_BINS
from prime_anc.method.design import design, design_all, predict_all
from prime_anc.method.errors import InvalidOption, answer_or_raise, check_interruption
from prime_anc.method.loops.controller import Controller
from prime_anc.method.loops.loop import worst_loop
from prime_anc.method.loops.sections import Sections
from prime_anc.method.types import Design, DesignOptions, Fallback, Loop, Model, Paths, Problem
from prime_anc.options import ControllerFields

NR_COLUMNS = columns(NR_BANDS)
ROUNDS = 2
# Default of `max_louder_db`. It costs measured ears 0.3 dB at no latency, 0.5 at 42 us, and 1.8 at 83 us, where a band
# would become 7 dB louder.
LOUDER_DB = 3.0
# A maker's controller for all may take seconds.
EFFORT_FOR_ALL = 4
# Factors on the least distance of L from -1 in a fit, tried until all margins hold between its frequencies as well;
# then K is turned down by this factor, its square, and so on.
RESERVES, FIRST_STEP, LEAST_STEP = (1.02, 1.05, 1.12, 1.25), 0.9, 1e-4
# Gains at which a filter is tried that brings a joint loop out of its margins.
TURNED_DOWN = (1.0, 0.9, 0.8, 0.7, 0.5, 0.3, 0.1, 0.0)
# Change of K by rounding to float32, above which coefficients are rounded jointly.
MOST_CHANGED = 0.01
# With as many, no band of six measured ears is off by more than 1.1 dB.
PLAYBACK_SECTIONS = 6
# Reduction by K alone that a format may cost before a wider one is named, of up to so many bits.
MOST_LOST_DB, MOST_BITS = 0.3, 52


@dataclass(frozen=True, eq=False)
class HybridDesign:
    """A filter and a controller for the same earphone."""

    # The filter, designed around the controller; its prediction is of both, its loop the worst of all plants.
    design: Design
    # The controller as its number format holds it.
    controller: Controller
    # Loop of every plant, at the level at which it is worst.
    loops: tuple[tuple[str, Loop], ...]
    # Whether margins hold for this seating alone: no change by wearing was measured or lent.
    is_plant_unknown: bool
    # Words and signal scaling; None in floating point.
    quantised: Quantised | None
    scaling: SignalScaling | None
    # Number format that resolves poles as low as the fit may need them; None: the one that was requested.
    needed_format: str | None


def limited(problem: Problem) -> Problem:
    """Return a problem with the default of `max_louder_db`, unless it has one."""
    return problem if problem.max_louder_db is not None else replace(problem, max_louder_db=LOUDER_DB)


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
        Conditions of the filter, `limited`. Its controller is ignored.
    options, model, fallback
        As of `design`.
    wanted
        Options of the controller.
    stability_only
        Paths in which the loop has to be stable, which count for nothing else; their primary paths are ignored.
    lend_wearing
        Whether the model's changes by wearing apply to an ear whose secondary path was measured once.

    Returns
    -------
    HybridDesign
        Both.

    Raises
    ------
    SynthesisError
        As of `design`; InvalidOption if the number format leaves the controller unstable.
    """
    wanted, problem = wanted or ControllerFields(), replace(limited(problem), controller=None)
    made = design(problem, options, model)
    plants = _measured_plants(problem, stability_only)
    is_single = len({plant.secondary.tobytes() for plant in plants}) == 1
    lent = lent_plants(problem, model.parameters) if is_single and lend_wearing else []
    plants, is_unknown = plants + lent, is_single and not lent
    silent = Controller(Sections(np.array([[0.0, 0, 0, 1, 0, 0]]), wanted.sample_rate))
    ear = Ear(problem, made, plants, WIDE_GAINS_DB if is_unknown else GAINS_DB)
    ear = _settled(ear, silent, wanted, model) or ear
    rows, extra = None, np.zeros(0, np.intp)
    for n in range(ROUNDS):
        check_interruption()
        controller, rows, extra, exact = _fitted([ear], wanted, model, rows, extra)
        last = n == ROUNDS - 1
        made = design(replace(problem, controller=controller), options, model, fallback if last else None)
        ear = replace(ear, made=made)
        if (settled := _settled(ear, controller, wanted, model)) is None:
            # The controller was fitted to another filter: fit it to this one, whose loop keeps its margins by itself.
            ear = _settled(ear, silent, wanted, model) or ear
            controller, rows, extra, exact = _fitted([ear], wanted, model, rows, extra)
            settled = _turned_down(ear, controller, 1.0, model)
        ear = settled
    made = ear.made
    loops = tuple((plant.label, worst_of(controller, ear, plant)) for plant in plants)
    worst = worst_loop([loop for _, loop in loops], made.loop.loss_db if made.loop else 0.0)
    words = parse_format(wanted.number_format)
    return HybridDesign(
        replace(made, loop=worst),
        controller,
        loops,
        is_unknown,
        None if words is None else quantise_sections(controller.sections, words)[1],
        None if words is None else sections_scaling(controller.sections, words),
        _needed_format(exact, controller, Ear(problem, made, plants, ear.gains_db), wanted),
    )


def _measured_plants(problem: Problem, stability_only: Sequence[Paths]) -> list[Plant]:
    """Return the plants of all measured paths, with a label each."""
    labelled = [(paths, problem.name_of(n)) for n, paths in enumerate(problem.conditions)]
    labelled += [(paths, f"stability_only.{n}") for n, paths in enumerate(stability_only)]
    return [plant_of(problem, paths, paths.label or name) for paths, name in labelled]


def playback_sections(problem: Problem, made: HybridDesign) -> Sections:
    """Fit sections at the chip's rate that undo what the loop changes of music: 1 + L of all conditions.

    Parameters
    ----------
    problem, made
        What `design_hybrid` was given, and its result.
    """
    controller, opened = made.controller, []
    for paths in problem.conditions:
        plant = plant_of(problem, paths, "")
        before = plant.before(made.design)
        closed = 1 + plant.secondary * controller.on_bins + (0 if before is None else before)
        opened.append(PathSpectra(closed, np.ones_like(closed), paths.weight))
    power = ResidualPower.of(opened, 1 / np.arange(1, N_BINS + 1))  # all octaves alike
    return design_sections(power, PLAYBACK_SECTIONS, sample_rate_hz=controller.sections.sample_rate_hz)


def playback_peak_db(playback: Sections) -> float:
    """Return the headroom that sections for what is played need: their largest gain, at least 0 dB."""
    return max(0.0, 20 * float(np.log10(largest_gain(playback))))


def _settled(ear: Ear, controller: Controller, wanted: ControllerFields, model: Model) -> Ear | None:
    """Turn the filter down until the loops of both keep all margins, where feedback paths join them.

    Without a controller they do at the latest at gain 0; None: with this one, they do at no gain.
    """
    if all(plant.feedback is None for plant in ear.plants):
        return ear
    for gain in TURNED_DOWN:
        turned = replace(ear, made=replace(ear.made, taps=ear.made.taps * np.float32(gain)))
        if holds(controller, [turned], wanted):
            return ear if gain == 1.0 else _turned_down(ear, controller, gain, model)
    return None


def _turned_down(ear: Ear, controller: Controller, gain: float, model: Model) -> Ear:
    """Turn the filter down, and predict it beside a controller."""
    taps = ear.made.taps * np.float32(gain)
    (found,) = predict_all([replace(ear.problem, controller=controller)], [taps], model)
    prediction = answer_or_raise(found)
    loss_db = ear.made.prediction.mean_noise_reduction_db - prediction.mean_noise_reduction_db
    loop = None if ear.made.loop is None else replace(ear.made.loop, loss_db=ear.made.loop.loss_db + loss_db)
    return replace(ear, made=replace(ear.made, taps=taps, prediction=prediction, loop=loop))


def design_for_all(
    problems: Sequence[Problem],
    options: DesignOptions,
    model: Model,
    wanted: ControllerFields | None = None,
) -> tuple[Controller, dict[str, Loop]]:
    """Design one controller for all ears, each with a filter of its own.

    Parameters
    ----------
    problems
        One per ear. The filters are designed once, without the controller.
    options, model, wanted
        As of `design_hybrid`.

    Returns
    -------
    tuple[Controller, dict[str, Loop]]
        The controller, and the loop of every plant, at the level at which it is worst.

    Raises
    ------
    SynthesisError
        As of `design_hybrid`.
    """
    wanted = ControllerFields() if wanted is None else wanted
    problems = [replace(limited(problem), controller=None) for problem in problems]
    ears = []
    for problem, made in zip(problems, design_all(problems, options, model), strict=True):
        plants = [
            plant_of(problem, paths, paths.label or problem.name_of(n))
            for n, paths in enumerate(problem.conditions)
        ]
        plants += lent_plants(problem, model.parameters)
        ears.append(Ear(problem, answer_or_raise(made), plants))
    controller, *_ = _fitted(ears, wanted, model, None, np.zeros(0, np.intp), EFFORT_FOR_ALL)
    loops: dict[str, Loop] = {}
    for n, ear in enumerate(ears):
        labels = [paths.label or f"{n}.{place}" for place, paths in enumerate(ear.problem.conditions)]
        labels += [f"{labels[0]}, {plant.label}" for plant in ear.plants[len(labels) :]]
        loops |= {label: worst_of(controller, ear, plant) for label, plant in zip(labels, ear.plants, strict=True)}
    return controller, loops


def _fitted(
    ears: Sequence[Ear],
    wanted: ControllerFields,
    model: Model,
    rows: Real | None,
    extra: NDArray[np.intp],
    effort: int = 1,
) -> tuple[Controller, Real, NDArray[np.intp], Sections]:
    """Fit, quantise and turn down.

    Also return the unknowns, the bins at which the next fit judges besides, and the sections before rounding.
    """
    unrounded = None
    for reserve in RESERVES:
        posed = loop_problem(ears, wanted, model.parameters.reference_psd, extra)
        distance = min(reserve * posed.distance, MOST_DISTANCE)
        posed = replace(posed, distance=distance, ceiling=posed.ceiling / reserve)
        fit, found = fit_controller(posed, wanted.n_sections, rows, lowest_hz=_lowest_hz(wanted), effort=effort)
        exact = fit.realise(found[0])
        rows = found
        controller = Controller(_held(exact, wanted), 1e-6 * wanted.latency_us)
        if unrounded is None and holds(replace(controller, sections=exact), ears, wanted):
            unrounded = exact
        if (controller.sections is exact and unrounded is exact) or holds(controller, ears, wanted):
            return controller, found, extra, unrounded or exact
        extra = np.union1d(extra, narrow_bins(controller, ears, posed.distance))
    step = FIRST_STEP
    while not holds(controller, ears, wanted) and step > LEAST_STEP:
        exact, step = exact.scaled(step), step**2
        controller = replace(controller, sections=_held(exact, wanted))
    return controller, found, extra, unrounded or exact


def _words(wanted: ControllerFields) -> NumberFormat | None:
    """Return the words of the coefficients; None: float64."""
    if wanted.number_format == "float64":
        return None
    return parse_format(wanted.number_format) or FLOAT32_WORDS


def _held(sections: Sections, wanted: ControllerFields) -> Sections:
    """Quantise sections to the number format."""
    words = _words(wanted)
    if words is None:
        return sections
    if wanted.number_format == "float32":
        single = sections.in_single_precision()
        frequency_hz = np.geomspace(0.01, wanted.sample_rate / 2, 512)  # where a zero at 0 Hz shows if it has moved
        change = single.response(frequency_hz) / sections.response(frequency_hz) - 1
        if single.is_stable and np.abs(change).max() < MOST_CHANGED:
            return single
    found, _ = quantise_sections(scale_sections(sections, words), words)
    if not found.is_stable:
        raise InvalidOption(
            f"number_format: at {wanted.sample_rate:g} Hz the poles that {wanted.number_format} can hold are not "
            "stable; use more fraction bits or a lower sample rate",
            "controller.number_format",
        )
    return found


def _lowest_hz(wanted: ControllerFields) -> float:
    words = _words(wanted)
    return LIMITS_HZ[0] if words is None else lowest_pole_hz(wanted.sample_rate, words, LIMITS_HZ[0])


def _needed_format(exact: Sections, found: Controller, ear: Ear, wanted: ControllerFields) -> str | None:
    """Return the least format that resolves a fit's poles and costs at most MOST_LOST_DB; None: the requested one."""
    words, plant = _words(wanted), ear.plants[0].secondary
    if words is None:
        return None
    wider = [
        NumberFormat(words.integer_bits, bits)
        for bits in range(words.fraction_bits + 1, MOST_BITS - words.integer_bits + 1)
    ]
    if _lowest_hz(wanted) != LIMITS_HZ[0]:  # which has limited the fit
        resolving = (item for item in wider if lowest_pole_hz(wanted.sample_rate, item, 1.0) <= LIMITS_HZ[0])
        return str(next(resolving))

    def taken_db(sections: Sections) -> float:
        closed = np.abs(1 + plant * replace(found, sections=sections).on_bins)
        bands = np.split(closed, BAND_BINS)[NR_COLUMNS.start + 1 : NR_COLUMNS.stop + 1]
        return float(np.mean([20 * np.log10(band).mean() for band in bands]))

    least_db = taken_db(exact) - MOST_LOST_DB
    if taken_db(found.sections) >= least_db:
        return None
    for item in wider:
        held, _ = quantise_sections(scale_sections(exact, item), item)
        if held.is_stable and taken_db(held) >= least_db and holds(replace(found, sections=held), [ear], wanted):
            return str(item)
    return "float64"

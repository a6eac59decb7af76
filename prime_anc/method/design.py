"""The method, top to bottom: from an ear's paths to its control filter and the prediction of its effect.

`design` solves one problem and `design_all` a batch, in these steps:

1. `pose`: the controller's loop, paths at unit level, what is unknown of them, latency in the paths
2. `in_closed_loop`: beside a controller, the paths of the loop that it closes, unless the backend closes it
3. `_drafted`: first taps and Gauss-Newton updates, by the model's backend, under a loose ceiling
4. `_finished`: margins of the loop and prediction; a filter above the requested ceiling is replaced by the best one
below it (`_limited`)
5. `replace_doubtful`, called by `_chosen`: the better of the generator's filter and Wiener filters
6. `_completed`: prediction of filter and controller, and of conditions left out

An error replaces its problem's result and affects no other. What few problems need has its own files: most designs
pass only this one and the backend's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from prime_anc.core import CpuBackend
from prime_anc.method.candidates import Contest, replace_doubtful
from prime_anc.method.ceiling import ceiling_db, excess_db, keep_margins, limit, loop_of_all
from prime_anc.method.controller import controlled, in_closed_loop, with_spectra
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.errors import (
    InvalidOption,
    NonFiniteFilter,
    SynthesisError,
    answer_or_raise,
    check_interruption,
)
from prime_anc.method.gain_curve import TOLERANCE_DB, GainCurve
from prime_anc.method.joint_prediction import joint_objective, predict_batch, predict_joint, with_unknown
from prime_anc.method.loop import for_design
from prime_anc.method.methods import STARTS
from prime_anc.method.plausibility import Finding, SupportPrior, find_implausible
from prime_anc.method.posing import MAX_LEVEL_DIFFERENCE_DB, check_levels, with_latency
from prime_anc.method.profiles import PROFILES
from prime_anc.method.types import (
    MAX_CONDITIONS,
    NOT_JUDGED,
    UPDATES_BRING_DB,
    WMMSE_TOLERANCE_DB,
    Complex64,
    Design,
    DesignOptions,
    Draft,
    Fallback,
    Float32,
    Known,
    Model,
    ModelParameters,
    Path,
    Paths,
    Prediction,
    Problem,
    WmmsePrediction,
    weighted,
    weights_of,
)
from prime_anc.method.unknown import SILENT_UNCERTAINTY
from prime_anc.options import DEFAULT_MAX_GAIN_DB

# Largest level of the primary over the secondary path of an ear: 30 measured ears have -12 to 5 dB.
LOUDEST_PRIMARY_DB = 12.0


def design(problem: Problem, options: DesignOptions, model: Model, fallback: Fallback | None = None) -> Design:
    """Design one filter; raises SynthesisError. Parameters as for `design_all`."""
    return answer_or_raise(design_all([problem], options, model, fallback)[0])


def design_all(
    problems: Sequence[Problem], options: DesignOptions, model: Model, fallback: Fallback | None = None
) -> list[Design | SynthesisError]:
    """Design a filter per problem.

    Parameters
    ----------
    problems
        Any number; a backend takes up to its `max_batch` at once.
    options
        Options of all designs.
    model
        Model on a processor.
    fallback
        When a Wiener filter replaces the generator's; None: never.

    Returns
    -------
    list[Design | SynthesisError]
        Designs in the order of `problems`; InvalidPaths, InvalidOption, NonFiniteFilter or Interrupted replaces a
        failed one.
    """
    posed = _map_or_error(partial(pose, model=model), problems)
    has_controller = any(problem.controller is not None for problem in problems)
    closed = _map_or_error(partial(_closed, model=model), posed) if has_controller else posed
    made = _chosen(problems, options, closed, model, fallback)
    return _map_or_error(partial(_completed, options=options, model=model), posed, made)


def _chosen(
    problems: Sequence[Problem],
    options: DesignOptions,
    posed: Sequence[Problem | SynthesisError],
    model: Model,
    fallback: Fallback | None,
) -> list[Design | SynthesisError]:
    """Design all posed problems in their closed loops, and replace filters that a Wiener filter beats."""
    if fallback is None or options.method != "prime":
        return _designed(problems, options, posed, model)
    profile = PROFILES[options.profile]
    is_weighted = [weighted(profile, weights_of(problem)) != profile for problem in problems]
    with_wmmse = fallback.below_db == math.inf and all(map(is_plain, problems)) and not any(is_weighted)
    designs = _designed(problems, options, posed, model, with_wmmse)
    contests = [
        Contest(problem, made, has_weights, is_doubtful(made, has_weights, fallback))
        for problem, made, has_weights in zip(problems, designs, is_weighted, strict=True)
    ]
    # A Wiener filter above the ceiling shows what the ceiling costs, even if the generator's filter is in no doubt.
    if not any(item.is_doubtful or getattr(item.generated, "wmmse_above_ceiling", None) for item in contests):
        return designs
    posed_of = dict(zip(problems, posed, strict=True))

    def merit(problem: Problem, made: Design) -> float:
        return _weighted_merit(answer_or_raise(posed_of[problem]), made, options, model.parameters)

    rivals = {contest.problem: getattr(contest.generated, "rival", None) for contest in contests}

    def redesign(chosen: Sequence[Problem], options: DesignOptions) -> list[Design | SynthesisError]:
        chosen_posed, known = [posed_of[problem] for problem in chosen], [rivals[problem] for problem in chosen]
        if options.n_updates or options.method != "wmmse" or None in known:
            return _designed(chosen, options, chosen_posed, model)
        return _map_or_error(partial(_finished, options=options, model=model), chosen, chosen_posed, known)

    return replace_doubtful(contests, options, fallback, merit, redesign)


def predict_all(
    problems: Sequence[Problem], taps: Sequence[Float32 | Complex64], model: Model, *, is_true: bool = False
) -> list[Prediction | SynthesisError]:
    """Predict the effect of existing filters.

    Parameters
    ----------
    problems
        Paths, latency and noise per filter; ceilings and margins do not matter.
    taps
        Filters as taps, float32 [2048], or as responses on the design grid, complex64 [16385], of sections, other rates
        or lengths.
    model
        Its uncertainty counts if neither a coherence nor an uncertainty is given.
    is_true
        Whether the paths are exact.

    Returns
    -------
    list[Prediction | SynthesisError]
        Predictions in the order of `problems`.
    """
    # Only the core takes responses.
    backend = model.core if any(np.iscomplexobj(tap) for tap in taps) else model.backend
    posed = _map_or_error(partial(pose, model=model, closes_loops=False, is_true=is_true), problems)
    return _map_or_error(with_unknown, posed, predict_batch(posed, taps, backend))


def implausible(problem: Problem, posed: Problem, support: SupportPrior | None) -> tuple[Finding, ...]:
    """Find faults of the conditions' paths by comparison with the model's support.

    Parameters
    ----------
    problem
        Problem as sent.
    posed
        The posed problem, whose paths have been compared with the support.
    support
        Prior of the model; without it, only faults that need no comparison.

    Returns
    -------
    tuple[Finding, ...]
        Findings, with the condition's name if several.
    """
    found = []
    for n, (paths, judged) in enumerate(zip(problem.conditions, posed.conditions, strict=True)):
        comparison = None if judged.known is None else judged.known.comparison
        if comparison is not None and comparison.is_right and paths.feedback is None:
            continue
        for item in find_implausible(
            support, paths.primary, paths.secondary, paths.feedback, comparison=comparison
        ):
            detail = f"{problem.name_of(n)}: {item.detail}" if len(problem.conditions) > 1 else item.detail
            found.append(replace(item, detail=detail))
    return tuple(found)


def pose(problem: Problem, model: Model, *, closes_loops: bool | None = None, is_true: bool = False) -> Problem:
    """Prepare a problem for a backend.

    The paths returned are at unit level, with what is known of them and with the latency; with a controller, also with
    their plants.

    Parameters
    ----------
    closes_loops
        Whether a backend closes the loop of a plain problem's controller; None: the model's.
    is_true
        Whether the paths are the true ones.

    Raises
    ------
    InvalidOption, InvalidPaths
        The number of conditions, a weight, the latency or the levels are out of range, or the controller's loop is
        unstable.
    """
    conditions = problem.conditions
    if not 1 <= len(conditions) <= MAX_CONDITIONS:
        raise InvalidOption(f"conditions: there are {len(conditions)}; give 1 to {MAX_CONDITIONS}", "conditions")
    for n, condition in enumerate(conditions):
        if not 0 < condition.weight < np.inf:
            field = f"conditions.{n}.weight"
            raise InvalidOption(f"{field}: {condition.weight} is not a number above 0", field)
    if not all(map(is_usable, conditions)):
        return problem  # which the backend refuses
    if problem.controller is not None:
        psd = model.parameters.reference_psd if problem.reference_psd is None else problem.reference_psd
        problem = controlled(replace(problem, reference_psd=psd))
    problem = judged(problem, model, is_true=is_true)  # before the latency changes the paths
    if closes_loops is None:
        closes_loops = model.backend.closes_loops
    if problem.controller is not None and not (closes_loops and is_plain(problem)):
        problem = with_spectra(problem)
    return with_latency(problem) if problem.latency_samples != 0 else problem


def judged(problem: Problem, model: Model, *, is_true: bool = False) -> Problem:
    """Bring usable paths to unit level, and judge what is known of them; is_true: whether they are the true ones."""
    problem = at_unit_level(problem)
    conditions = [replace(paths, known=_known(paths, problem, model.core, is_true)) for paths in problem.conditions]
    return replace(problem, conditions=tuple(conditions))


def _known(paths: Paths, problem: Problem, core: CpuBackend, is_true: bool) -> Known:
    """Return what is known of a condition's paths: as stated, else as judged."""
    known = core.judge(paths, problem.reference_psd)
    if is_true:
        return known._replace(uncertainty=np.zeros_like(known.uncertainty), basis="truth", ends_interval_db=0.0)
    stated = paths.uncertainty
    if problem.exact or problem.snr_db > 0:
        share = 0.0 if problem.exact else 10 ** (-problem.snr_db / 10)
        stated = np.full_like(known.uncertainty, share)
    if stated is None:
        return known
    if known.silent is not None:
        stated = np.where(
            [np.zeros_like(known.silent), known.silent], np.maximum(stated, SILENT_UNCERTAINTY), stated
        )
    return known._replace(uncertainty=stated.astype(np.float32), basis="calibration", is_exact=problem.exact)


def has_feedback(problem: Problem) -> bool:
    """Return whether the outer microphone hears the loudspeaker in a condition."""
    return any(paths.feedback is not None for paths in problem.conditions)


def is_plain(problem: Problem) -> bool:
    """Return whether the problem is a single condition without feedback path and latency."""
    is_alone = len(problem.conditions) == 1 and problem.conditions[0].feedback is None
    return is_alone and not problem.latency_samples


def _closed(posed: Problem, *, model: Model) -> Problem:
    """Close the loop of a controller, unless the backend does: of a single condition without feedback path."""
    return posed if model.backend.closes_loops and is_plain(posed) else in_closed_loop(posed)


def is_usable(paths: Paths) -> bool:
    """Return whether both paths have valid shapes and values."""
    for path in (paths.primary, paths.secondary):
        shape = (N_BINS,) if np.iscomplexobj(path) else (min(max(path.size, 1), DESIGN_N_FFT),)
        if path.shape != shape or not math.isfinite(level_db(path)):
            return False
    return True


def at_unit_level(problem: Problem) -> Problem:
    """Multiply the paths of all conditions by one power of two, which is exact.

    The unit of the error microphone is a factor of both paths and cancels in W = P / S, but squares in float32 could
    overflow or vanish. The geometric mean of the levels of the first condition's paths is then between -3 and 3 dB.

    Raises
    ------
    InvalidPaths
        The levels of a pair differ by more than MAX_LEVEL_DIFFERENCE_DB, or a feedback path's by more from their ratio.
    """
    levels_db = [(level_db(condition.primary), level_db(condition.secondary)) for condition in problem.conditions]
    for n, (primary_db, secondary_db) in enumerate(levels_db):
        feedback = problem.conditions[n].feedback
        if feedback is not None or abs(primary_db - secondary_db) > MAX_LEVEL_DIFFERENCE_DB:
            feedback_db = -math.inf if feedback is None else level_db(feedback)
            check_levels(problem, n, primary_db, secondary_db, feedback_db)
    mean_db = sum(levels_db[0]) / 2
    if not math.isfinite(mean_db):
        return problem
    exponent = -round(mean_db / (20 * math.log10(2)))
    if exponent == 0:
        return problem
    return replace(
        problem,
        conditions=tuple(
            replace(
                condition,
                primary=_scaled(condition.primary, exponent),
                secondary=_scaled(condition.secondary, exponent),
                inner=condition.inner and condition.inner._replace(level=2.0**-exponent),
            )
            for condition in problem.conditions
        ),
    )


def level_db(path: Path) -> float:
    """Compute the level of a path: the RMS over frequency of its spectrum.

    It is infinite for a path that is all zero or not finite.
    """
    n = len(path) if path.dtype.kind == "c" else 1
    parts = np.ascontiguousarray(path).view(path.real.dtype)
    energy = float(np.vdot(parts, parts))
    if not 1e-20 < energy < 1e30:  # squares in float32 overflow or vanish outside
        with np.errstate(all="ignore"):
            energy = float(np.square(parts, dtype=np.float64).sum())
    if not 0 < energy < math.inf:
        return math.inf if energy else -math.inf
    return 10 * math.log10(energy / n)


def _scaled(path: Path, exponent: int) -> Path:
    """Multiply a path by 2 ** exponent, in two steps because that may exceed float32."""
    half = exponent // 2
    scaled: Path = path * path.dtype.type(2.0**half) * path.dtype.type(2.0 ** (exponent - half))
    return scaled


def _designed(
    problems: Sequence[Problem],
    options: DesignOptions,
    posed: Sequence[Problem | SynthesisError],
    model: Model,
    with_wmmse: bool = False,
) -> list[Design | SynthesisError]:
    """Design all problems without the fallback."""
    drafts = _drafted(posed, options, model, with_wmmse)
    return _map_or_error(partial(_finished, options=options, model=model), problems, posed, drafts)


def _drafted(
    posed: Sequence[Problem | SynthesisError],
    options: DesignOptions,
    model: Model,
    with_wmmse: bool = False,
) -> list[Draft | SynthesisError]:
    """Make first taps and updates, for all problems at once, under a ceiling that good filters hardly reach."""
    loose = [replace(item, max_gain_db=loose_db(item)) for item in posed if isinstance(item, Problem)]
    loose = [for_design(item) if has_feedback(item) else item for item in loose]  # most have none
    if options.method in STARTS:  # which see the paths of the closed loop
        loose = list(map(in_closed_loop, loose))
    found: list[Draft | SynthesisError] = []
    for n in range(0, len(loose), model.backend.max_batch):
        found += model.backend.draft(loose[n : n + model.backend.max_batch], options, with_wmmse)
    if with_wmmse and not model.backend.predicts_wmmse:
        found = _map_or_error(partial(_with_wmmse, options=options, core=model.core), loose, found)
    in_order = iter(found)
    return [next(in_order) if isinstance(item, Problem) else item for item in posed]


def _with_wmmse(posed: Problem, draft: Draft, *, options: DesignOptions, core: CpuBackend) -> Draft:
    """Add the core's prediction of WMMSE, in a millisecond; another design, solved in float64, would take ten."""
    if draft.prediction is None:
        return draft
    rival: WmmsePrediction | None = None
    for n_updates in sorted({0, options.n_updates}):
        found = core.draft([posed], replace(options, method="wmmse", n_updates=n_updates), False)[0]
        if isinstance(found, SynthesisError) or found.prediction is None:
            break
        rival = WmmsePrediction(found.prediction.compared_db(options.n_updates), found.prediction.max_gain_db)
        lead_db = draft.prediction.compared_db(options.n_updates) - rival.noise_reduction_db
        if lead_db > UPDATES_BRING_DB[options.n_updates] + WMMSE_TOLERANCE_DB:
            break
    return draft._replace(wmmse=rival)


def loose_db(posed: Problem) -> float:
    """Return a ceiling that updates hardly reach, and at least the requested one.

    It is the default, raised by as much as the secondary path is quieter than an ear's.
    """
    quieter_db = max(level_db(condition.primary) - level_db(condition.secondary) for condition in posed.conditions)
    is_quiet = LOUDEST_PRIMARY_DB < quieter_db < np.inf
    default_db = DEFAULT_MAX_GAIN_DB + (quieter_db - LOUDEST_PRIMARY_DB if is_quiet else 0.0)
    return max(default_db, _extremes_db(posed.max_gain_db)[1])


def _extremes_db(max_gain_db: float | GainCurve) -> tuple[float, float]:
    """Return a ceiling where it is lowest and where it is highest."""
    if isinstance(max_gain_db, GainCurve):
        return float(min(max_gain_db.gain_db)), float(max(max_gain_db.gain_db))
    return float(max_gain_db), float(max_gain_db)


def _finished(problem: Problem, posed: Problem, draft: Draft, *, options: DesignOptions, model: Model) -> Design:
    """Finish a draft: margins, prediction and ceiling."""
    taps, prediction, times_ms = draft.taps, draft.prediction, draft.times_ms
    began = perf_counter()
    loop = None
    if has_feedback(posed):
        taps, loop = keep_margins(posed, taps, loose_db(posed), model.core)
    if prediction is None or loop is not None:
        prediction = predict_joint(posed, taps, model.backend)
    if prediction is not draft.prediction:
        times_ms["predict"] = 1e3 * (perf_counter() - began)
    prediction = with_unknown(posed, prediction)
    wmmse = draft.wmmse
    # What keeps the lowest point of the ceiling keeps all of it.
    surely_kept_db = _extremes_db(posed.max_gain_db)[0] + TOLERANCE_DB
    # WMMSE was predicted under the loose ceiling: it is an alternative as it is only if it keeps the requested one.
    is_below = wmmse is not None and wmmse.max_gain_db <= surely_kept_db - WMMSE_TOLERANCE_DB
    made = Design(
        taps,
        draft.refinement,
        prediction,
        times_ms,
        method=options.method,
        n_requested=options.n_updates,
        loop=loop,
        wmmse=wmmse if is_below else None,
        wmmse_above_ceiling=None if is_below else wmmse,
        implausible=implausible(problem, posed, model.parameters.support),
        both=draft.both,
        rival=draft.rival,
    )
    exceeds = prediction.max_gain_db > surely_kept_db
    if exceeds and isinstance(posed.max_gain_db, GainCurve):
        exceeds = excess_db(taps, ceiling_db(posed.max_gain_db, DESIGN_N_FFT)) > TOLERANCE_DB
    if exceeds:
        return _limited(posed if posed.controller is None else in_closed_loop(posed), made, model)
    return made


def _completed(posed: Problem, made: Design, *, options: DesignOptions, model: Model) -> Design:
    """Predict a finished filter beside its controller, and per condition one that is designed on the others."""
    left_out = options.leave_one_out and len(posed.conditions) > 1
    if posed.controller is None and not left_out:
        return made
    began = perf_counter()
    prediction, loop = made.prediction, made.loop
    if posed.controller is not None:
        prediction = with_unknown(posed, made.both or predict_joint(posed, made.taps, model.backend))
        loop = loop_of_all(posed, made.taps, 0.0 if loop is None else loop.loss_db)
    if left_out:
        prediction = _with_left_out(posed, prediction, replace(options, method=made.method), model)
    spent_ms = 1e3 * (perf_counter() - began)
    times_ms = made.times_ms | {"predict": made.times_ms.get("predict", 0.0) + spent_ms}
    return replace(made, prediction=prediction, loop=loop, times_ms=times_ms)


def _with_left_out(posed: Problem, whole: Prediction, options: DesignOptions, model: Model) -> Prediction:
    """Predict per condition also a filter designed on the others."""
    conditions = list(whole.conditions)
    for n, paths in enumerate(posed.conditions):
        check_interruption()
        rest = in_closed_loop(replace(posed, conditions=posed.conditions[:n] + posed.conditions[n + 1 :]))
        draft = answer_or_raise(_drafted([rest], options, model)[0])
        taps, _ = keep_margins(rest, draft.taps, loose_db(rest), model.core)
        left_out = predict_joint(replace(posed, conditions=(paths,)), taps, model.backend)
        conditions[n] = replace(conditions[n], left_out=left_out)
    return replace(whole, conditions=tuple(conditions))


def _limited(posed: Problem, loose: Design, model: Model) -> Design:
    """Replace a design by the best one that keeps the requested ceiling."""
    began = perf_counter()
    taps, loop = limit(posed, loose.taps, model.core), loose.loop
    if loop is not None:
        loop = loop_of_all(posed, taps, loop.loss_db)
    prediction = predict_joint(posed, taps, model.backend)
    prediction = replace(
        prediction,
        unknown_bands=loose.prediction.unknown_bands,
        counted_bands=loose.prediction.counted_bands,
        basis=loose.prediction.basis,
        interval_db=loose.prediction.interval_db,
    )
    cost_db = loose.prediction.mean_noise_reduction_db - prediction.mean_noise_reduction_db
    spent_ms = 1e3 * (perf_counter() - began)
    times_ms = loose.times_ms | {"reconstruct": loose.times_ms.get("reconstruct", 0.0) + spent_ms}
    return replace(
        loose, taps=taps, prediction=prediction, times_ms=times_ms, loop=loop, ceiling_cost_db=cost_db, both=None
    )


def is_doubtful(generated: Design | SynthesisError, has_weights: bool, fallback: Fallback) -> bool:
    """Return whether to design Wiener filters too, and compare.

    Not for unusable paths, which have no filter. With weights in J, the mean noise reduction does not say which start
    is better; under a ceiling that costs much, that of the filters above it does not.
    """
    if isinstance(generated, SynthesisError):
        return isinstance(generated, NonFiniteFilter)
    generated_db = generated.prediction.compared_db(generated.n_requested)
    if generated_db >= fallback.below_db:
        return False
    if has_weights:
        return True
    if generated.ceiling_cost_db is not None:
        return generated.ceiling_cost_db > fallback.margin_db
    if generated.wmmse is None:
        return True
    return generated.wmmse.noise_reduction_db - generated_db > fallback.margin_db - WMMSE_TOLERANCE_DB


def _weighted_merit(posed: Problem, made: Design, options: DesignOptions, parameters: ModelParameters) -> float:
    """Compute -J with the problem's weights: unlike the mean noise reduction, it also counts louder bands.

    Starts, which know nothing of the uncertainty, are compared without it.
    """
    reference_psd = parameters.reference_psd if posed.reference_psd is None else posed.reference_psd
    posed = in_closed_loop(posed)
    if not options.n_updates:
        posed = replace(posed, conditions=tuple(replace(item, known=NOT_JUDGED) for item in posed.conditions))
    return -joint_objective(posed, made.taps, PROFILES[options.profile], reference_psd)


def _map_or_error(step: Callable[..., Any], *items: Sequence[Any]) -> list[Any]:
    """Apply a step to all items; an error, of this or an earlier step, replaces its item."""
    results: list[Any] = []
    for values in zip(*items, strict=True):
        error = next((value for value in values if isinstance(value, SynthesisError)), None)
        try:
            results.append(step(*values) if error is None else error)
        except SynthesisError as raised:
            results.append(raised)
    return results

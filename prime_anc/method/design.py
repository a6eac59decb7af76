"""The method, top to bottom: from an ear's paths to its control filter and the prediction of its effect.

    pose -> start -> update -> limit -> predict -> choose

`pose` brings paths to unit level on the design grid and judges what is known of them. Start and update are the model's
backend's, for as many problems at once as it takes; all else is the core's, problem by problem. An error replaces its
problem's result and affects no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

from prime_anc.core import Core
from prime_anc.method.bands import AMP_BANDS, columns
from prime_anc.method.ceiling import (
    ceiling_db,
    excess_db,
    keep_margins,
    limit,
    loop_of_all,
    loose_ceiling,
    margins_cost_db,
)
from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.errors import NonFiniteFilter, SynthesisError, answer_or_raise, check_interruption
from prime_anc.method.gain_curve import TOLERANCE_DB, GainCurve
from prime_anc.method.joint_prediction import predict_joint
from prime_anc.method.methods import Path
from prime_anc.method.posing import Posed, extremes_db, pose
from prime_anc.method.profiles import PROFILES
from prime_anc.method.support.findings import Finding
from prime_anc.method.types import Design, DesignOptions, Fallback, Filter, Model, Prediction, Problem, Replaced

# With a latency, `wmmse` amplifies bands without enough time by up to 13 dB (`studies/wearing`): beside a latency or a
# controller, its loudest band may exceed the generator's by so much.
ALLOWED_LOUDER_DB = 3.0


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
    posed = _each(partial(pose, model=model), problems)
    made = _designed(posed, options, model)
    if fallback is not None and options.method == "prime":
        made = [_chosen(*pair, options, model, fallback) for pair in zip(posed, made, strict=True)]
    if options.leave_one_out:
        made = _each(partial(_with_left_out, options=options, model=model), posed, made)
    return made


def predict_all(
    problems: Sequence[Problem], taps: Sequence[Path], model: Model, *, is_true: bool = False
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
    posed = _each(partial(pose, model=model, is_true=is_true), problems)
    return _each(partial(predict_joint, core=model.core), posed, taps)


def implausible(problem: Problem, model: Model) -> tuple[Finding, ...]:
    """Find faults of the conditions' paths by comparison with the model's support; raises as `pose`."""
    return pose(problem, model).implausible


def _designed(
    posed: Sequence[Posed | SynthesisError], options: DesignOptions, model: Model
) -> list[Design | SynthesisError]:
    """Start, update, limit and predict all problems, without the fallback."""
    aims, filters = [item.open_loop for item in posed if isinstance(item, Posed)], []
    for n in range(0, len(aims), model.backend.max_batch):
        filters += model.backend.filters(aims[n : n + model.backend.max_batch], options)
    in_order = iter(filters)
    drafts = [next(in_order) if isinstance(item, Posed) else item for item in posed]
    return _each(partial(_finished, options=options, model=model), posed, drafts)


def _finished(posed: Posed, draft: Filter, *, options: DesignOptions, model: Model) -> Design:
    """Limit and predict a filter."""
    began, core = perf_counter(), model.core
    kept, taps, loose, prediction = _limited(posed, draft.taps, core)
    loss_db = 0.0 if kept is draft.taps else margins_cost_db(posed, draft.taps, kept, core)
    cost_db = None
    if taps is not kept:  # the search for a filter below the ceiling may find a better one
        cost_db = max(loose.mean_noise_reduction_db - prediction.mean_noise_reduction_db, 0.0)
    stage = "predict" if cost_db is None else "reconstruct"
    spent_ms = 1e3 * (perf_counter() - began)
    return Design(
        taps,
        draft.refinement,
        prediction,
        draft.times_ms | {stage: draft.times_ms.get(stage, 0.0) + spent_ms},
        method=options.method,
        n_requested=options.n_updates,
        loop=loop_of_all(posed.problem, taps, loss_db),
        ceiling_cost_db=cost_db,
        implausible=posed.implausible,
        known=posed.known,
    )


def _limited(posed: Posed, taps: Any, core: Core) -> tuple[Any, Any, Prediction, Prediction]:
    """Return a filter within the loop's margins and one within the ceiling too, each with its prediction."""
    kept = keep_margins(posed, taps, loose_ceiling(posed), core) if posed.has_feedback else taps
    loose = predict_joint(posed, kept, core)
    if not _exceeds_ceiling(posed, kept, loose):
        return kept, kept, loose, loose
    limited = limit(posed, kept, core)
    return kept, limited, loose, predict_joint(posed, limited, core)


def _exceeds_ceiling(posed: Posed, taps: Any, prediction: Prediction) -> bool:
    """Return whether a filter exceeds the requested ceiling; what keeps its lowest point keeps all of it."""
    ceiling = posed.problem.ceiling
    if prediction.max_gain_db <= extremes_db(ceiling)[0] + TOLERANCE_DB:
        return False
    if not isinstance(ceiling, GainCurve):
        return True
    return excess_db(taps, ceiling_db(ceiling, DESIGN_N_FFT)) > TOLERANCE_DB


def _chosen(
    posed: Posed | SynthesisError,
    made: Design | SynthesisError,
    options: DesignOptions,
    model: Model,
    fallback: Fallback,
) -> Design | SynthesisError:
    """Return the best design, with the time of the choice."""
    began = perf_counter()
    try:
        chosen = _best(posed, made, options, model, fallback)
    except SynthesisError as error:
        return error
    if not (isinstance(chosen, Design) and isinstance(made, Design)):
        return chosen
    spent_ms = made.times_ms.get("predict", 0.0) + 1e3 * (perf_counter() - began)
    return replace(chosen, times_ms=made.times_ms | {"predict": spent_ms})


def _best(
    posed: Posed | SynthesisError,
    made: Design | SynthesisError,
    options: DesignOptions,
    model: Model,
    fallback: Fallback,
) -> Design | SynthesisError:
    """Return the generator's design, or one from WMMSE if that is predicted to be clearly better.

    WMMSE without updates and ceiling decides whether that is designed, as it is where a ceiling binds: no answer is
    more than the fallback's margin below it unless its ceiling's cost says so. With weights of its own in J, a
    problem's best filter need not have the highest mean: only a filter that is not finite is replaced.
    """
    if isinstance(posed, SynthesisError) or not isinstance(made, Design | NonFiniteFilter):
        return made
    wanted_db, is_bound = -math.inf, False
    if isinstance(made, Design):
        if posed.open_loop.profile(options.profile) != PROFILES[options.profile]:
            return made
        reached_db = made.prediction.compared_db(options.n_updates)
        if reached_db >= fallback.below_db:
            return made
        try:
            taps = model.core.wiener(posed.open_loop, made.taps)
            wiener = predict_joint(posed, taps, model.core)
        except NonFiniteFilter:
            return made
        wanted_db = wiener.compared_db(options.n_updates)
        is_bound = made.ceiling_cost_db is not None or _exceeds_ceiling(posed, taps, wiener)
        if wanted_db - reached_db <= fallback.margin_db and not is_bound:
            return made
    # Updates follow J, not the mean, and have little left to gain below a ceiling, where the search takes long.
    chosen = made
    for n_updates in dict.fromkeys((0 if is_bound else options.n_updates, 0)):
        if chosen is not made and wanted_db - _compared_db(chosen, options) <= fallback.margin_db:
            break
        check_interruption()
        (rival,) = _designed([posed], replace(options, method="wmmse", n_updates=n_updates), model)
        if isinstance(rival, Design) and _is_better(rival, chosen, posed, options, fallback):
            reason: Replaced = "predicted_worse" if isinstance(made, Design) else "not_finite"
            chosen = replace(rival, n_requested=options.n_updates, replaced_because=reason)
    if not isinstance(chosen, Design):
        return chosen
    cost_db = wanted_db - _compared_db(chosen, options)
    if not (is_bound and cost_db > 0):
        return chosen
    return replace(chosen, ceiling_cost_db=max(cost_db, chosen.ceiling_cost_db or 0.0))


def _is_better(
    rival: Design, made: Design | SynthesisError, posed: Posed, options: DesignOptions, fallback: Fallback
) -> bool:
    """Return whether a rival's prediction is clearly better and no band becomes much louder by it."""
    if not isinstance(made, Design):
        return True
    is_guarded = posed.problem.latency_samples or posed.inner
    beyond_db = _loudest_db(rival) - max(_loudest_db(made), 0.0)
    gained_db = _compared_db(rival, options) - _compared_db(made, options)
    return gained_db > fallback.margin_db and not (is_guarded and beyond_db > ALLOWED_LOUDER_DB)


def _compared_db(made: Design | SynthesisError, options: DesignOptions) -> float:
    """Return the reduction by which designs are compared; none for a filter that is not finite."""
    return made.prediction.compared_db(options.n_updates) if isinstance(made, Design) else -math.inf


def _loudest_db(made: Design) -> float:
    return -float(made.prediction.band_reduction_db[columns(AMP_BANDS)].min())


def _with_left_out(posed: Posed, made: Design, *, options: DesignOptions, model: Model) -> Design:
    """Predict per condition also a filter designed on the others."""
    conditions = list(made.prediction.conditions)
    for n, condition in enumerate(conditions):
        check_interruption()
        rest = posed.only(*(place for place in range(len(conditions)) if place != n))
        (draft,) = model.backend.filters([rest.open_loop], replace(options, method=made.method))
        _, taps, _, _ = _limited(rest, answer_or_raise(draft).taps, model.core)
        conditions[n] = replace(condition, left_out=predict_joint(posed.only(n), taps, model.core))
    return replace(made, prediction=replace(made.prediction, conditions=tuple(conditions)))


def _each(step: Callable[..., Any], *items: Sequence[Any]) -> list[Any]:
    """Apply a step to all items; an error, of this or an earlier step, replaces its item."""
    results: list[Any] = []
    for values in zip(*items, strict=True):
        error = next((value for value in values if isinstance(value, SynthesisError)), None)
        try:
            results.append(step(*values) if error is None else error)
        except SynthesisError as raised:
            results.append(raised)
    return results

"""The method, top to bottom: from an ear's paths to its control filter and the prediction of its effect.

`design` solves one problem and `design_all` a batch, in these steps:

1. `pose`: the controller's loop, paths at unit level, unknown bands, latency in the paths
2. `_drafted`: first taps and Gauss-Newton updates, by the model's backend
3. `_finished`: margins of the loop, prediction, and for a filter above its ceiling or one that makes an unknown band
louder, `_limited`: the best filter that keeps them
4. `replace_doubtful`: the better of the generator's filter and Wiener filters

An error replaces its problem's result and affects no other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from time import perf_counter

import numpy as np

from synthesis.backends.cpu import CpuBackend
from synthesis.candidates import is_weighted, replace_doubtful
from synthesis.ceiling import is_above, limit, loose_db
from synthesis.controller import in_closed_loop, loops_of
from synthesis.errors import (
    SynthesisError,
    answer_or_raise,
    check_interruption,
    map_or_error,
)
from synthesis.gain_curve import TOLERANCE_DB, lowest_db
from synthesis.joint_prediction import (
    batches,
    predict_batch,
    predict_joint,
    with_responses,
    with_unknown,
)
from synthesis.loop import with_margins, worst_loop
from synthesis.plausibility import Comparison, Finding, SupportPrior, find_implausible
from synthesis.posing import by_response, is_plain, pose
from synthesis.types import (
    WMMSE_TOLERANCE_DB,
    Backend,
    Complex64,
    Design,
    DesignOptions,
    Draft,
    Fallback,
    Float32,
    Loop,
    ModelParameters,
    Prediction,
    Problem,
)
from synthesis.unknown import lowest_quiet_db


def backend_class(device: str) -> type[Backend]:
    """Return the backend class of a device.

    Parameters
    ----------
    device
        `cpu`, `cuda` or `reference` (torch in float32 on the CPU).

    Returns
    -------
    type[Backend]
        Class to be created with a model's numbers.

    Raises
    ------
    ValueError
        The device does not exist.
    """
    if device == "cpu":
        from synthesis.backends.cpu import CpuBackend

        return CpuBackend
    if device == "cuda":
        from synthesis.backends.cuda import CudaBackend

        return CudaBackend
    if device == "reference":
        from synthesis.backends.reference import ReferenceBackend

        return ReferenceBackend
    raise ValueError(f"device: {device!r} does not exist; use cpu, cuda or reference")


class Model:
    """A checkpoint's numbers on one kind of processor; as thread-safe as its backend."""

    def __init__(self, parameters: ModelParameters, backend: Backend) -> None:
        self.parameters = parameters
        self.backend = backend

    @classmethod
    def on(cls, device: str, parameters: ModelParameters) -> Model:
        """Load a model on `cpu`, `cuda` or `reference`; ValueError for another device."""
        return cls(parameters, backend_class(device)(parameters))

    @cached_property
    def core(self) -> CpuBackend:
        """Return the C core, which finds filters under a ceiling for all backends."""
        return self.backend if isinstance(self.backend, CpuBackend) else CpuBackend(self.parameters)


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
    with_wmmse = (
        fallback is not None
        and options.method == "prime"
        and fallback.below_db == math.inf
        and all(
            is_plain(replace(problem, controller=None)) and not is_weighted(problem, options)
            for problem in problems
        )
    )
    compares_itself = model.backend.judges_paths
    posed = map_or_error(partial(pose, parameters=model.parameters, compares_itself=compares_itself), problems)
    designs = _designed(problems, options, posed, model, with_wmmse)
    if fallback is not None and options.method == "prime":
        posed_of = dict(zip(problems, posed, strict=True))

        def redesign(chosen: Sequence[Problem], options: DesignOptions) -> list[Design | SynthesisError]:
            return _designed(chosen, options, [posed_of[problem] for problem in chosen], model)

        replace_doubtful(designs, problems, options, fallback, model.parameters, redesign)
    return designs


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
    posed = map_or_error(partial(pose, parameters=model.parameters), problems)
    found = predict_batch(posed, taps, backend, is_true)
    if is_true:
        return found
    found = map_or_error(partial(with_responses, backend=backend), posed, found, taps)
    return map_or_error(with_unknown, posed, found)


def implausible(
    problem: Problem,
    support: SupportPrior | None,
    comparison: Comparison | None = None,
    posed: Problem | None = None,
) -> tuple[Finding, ...]:
    """Find faults of the conditions' paths by comparison with the model's support.

    Parameters
    ----------
    problem
        Problem as sent.
    support
        Prior of the model; without it, only faults that need no comparison.
    comparison
        Comparison of the only condition, if known.
    posed
        The posed problem, if known, whose paths have been compared with the support.

    Returns
    -------
    tuple[Finding, ...]
        Findings, with the condition's name if several.
    """
    if comparison is not None and comparison.is_right:
        return ()
    found = []
    for n, paths in enumerate(problem.conditions):
        if posed is not None and posed.conditions[n].resembles and paths.feedback is None:
            continue
        for item in find_implausible(
            support, paths.primary, paths.secondary, paths.feedback, comparison=comparison
        ):
            detail = f"{problem.name_of(n)}: {item.detail}" if len(problem.conditions) > 1 else item.detail
            found.append(replace(item, detail=detail))
    return tuple(found)


def _designed(
    problems: Sequence[Problem],
    options: DesignOptions,
    posed: Sequence[Problem | SynthesisError],
    model: Model,
    with_wmmse: bool = False,
) -> list[Design | SynthesisError]:
    """Design all problems without the fallback."""
    drafts = _drafted(posed, options, model, with_wmmse)
    return map_or_error(partial(_finished, options=options, model=model), problems, posed, drafts)


def _drafted(
    posed: Sequence[Problem | SynthesisError], options: DesignOptions, model: Model, with_wmmse: bool = False
) -> list[Draft | SynthesisError]:
    """Make first taps and updates, for all problems at once, under a ceiling that good filters hardly reach."""
    loose = [
        replace(in_closed_loop(item), max_gain_db=loose_db(item)) for item in posed if isinstance(item, Problem)
    ]
    found: list[Draft | SynthesisError] = []
    for part in batches(len(loose), model.backend):
        found += model.backend.draft(loose[part], options, with_wmmse)
    in_order = iter(found)
    return [next(in_order) if isinstance(item, Problem) else item for item in posed]


def _finished(problem: Problem, posed: Problem, draft: Draft, *, options: DesignOptions, model: Model) -> Design:
    """Finish a draft: margins, prediction, ceiling and unknown bands."""
    taps, prediction, times_ms = draft.taps, draft.prediction, draft.times_ms
    began = perf_counter()
    taps, loop = _with_margins(posed, taps, model)
    comparison = draft.comparison if is_plain(problem) else None
    if model.parameters.support is not None and comparison is not None and not comparison.is_right:
        posed = replace(posed, conditions=tuple(map(by_response, posed.conditions)))
    if prediction is None or loop is not None:
        prediction = predict_joint(posed, taps, model.backend)
    else:
        prediction = with_responses(posed, prediction, taps, model.backend)
    if options.leave_one_out and len(posed.conditions) > 1:
        prediction = _with_left_out(posed, prediction, options, model)
    if prediction is not draft.prediction:
        times_ms["predict"] = 1e3 * (perf_counter() - began)
    prediction = with_unknown(posed, prediction)
    wmmse = draft.wmmse
    if wmmse is not None and problem.controller is not None and draft.prediction is not None:
        # The controller adds to it what it adds to the draft, whose prediction is of the closed loop's paths.
        added_db = prediction.nominal_noise_reduction_db - draft.prediction.nominal_noise_reduction_db
        wmmse = wmmse._replace(nominal_noise_reduction_db=wmmse.nominal_noise_reduction_db + added_db)
    # WMMSE equals its prediction only below the ceiling.
    surely_below_db = lowest_db(posed.max_gain_db) + TOLERANCE_DB - WMMSE_TOLERANCE_DB
    is_below = wmmse is not None and wmmse.max_gain_db <= surely_below_db
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
        implausible=implausible(problem, model.parameters.support, comparison, posed),
    )
    exceeds = is_above(posed.max_gain_db, made)
    if exceeds or (prediction.unknown_bands and lowest_quiet_db(posed, taps) is not None):
        return _limited(posed, made, options.profile, model, exceeds)
    return made


def _with_margins(problem: Problem, taps: Float32, model: Model) -> tuple[Float32, Loop | None]:
    """Give the taps the requested margins of the loop; also return the loop, with their cost.

    With a controller, the margins are those of the filter in the loop that the controller has closed.
    """
    if not problem.feedbacks:
        return taps, _loop(problem, taps)
    feedbacks = in_closed_loop(problem).feedbacks
    kept = with_margins(taps, feedbacks, problem.min_gain_margin_db, problem.min_phase_margin_deg)
    loss_db = 0.0
    if kept is not taps:
        open_loop = replace(
            problem, conditions=tuple(replace(condition, feedback=None) for condition in problem.conditions)
        )
        before, after = (predict_joint(open_loop, item, model.backend) for item in (taps, kept))
        loss_db = before.mean_noise_reduction_db - after.mean_noise_reduction_db
    return kept, _loop(problem, kept, loss_db)


def _loop(problem: Problem, taps: Float32, loss_db: float = 0.0) -> Loop | None:
    """Return the worst loop of filter and controller; None if there is none."""
    found = loops_of(problem, taps)
    return worst_loop(found, loss_db) if found else None


def _with_left_out(problem: Problem, whole: Prediction, options: DesignOptions, model: Model) -> Prediction:
    """Predict per condition also a filter designed on the others."""
    conditions = list(whole.conditions)
    for n, paths in enumerate(problem.conditions):
        check_interruption()
        rest = replace(problem, conditions=problem.conditions[:n] + problem.conditions[n + 1 :])
        draft = answer_or_raise(_drafted([rest], options, model)[0])
        taps, _ = _with_margins(rest, draft.taps, model)
        left_out = predict_joint(replace(problem, conditions=(paths,)), taps, model.backend)
        conditions[n] = replace(conditions[n], left_out=left_out)
    return replace(whole, conditions=tuple(conditions))


def _limited(posed: Problem, loose: Design, profile: str, model: Model, exceeds: bool) -> Design:
    """Keep a design below its ceiling and unknown bands quiet, with the cost and time; exceeds: it is above it."""
    began = perf_counter()
    taps, loop = limit(posed, loose.taps, profile, model.core, exceeds=exceeds), loose.loop
    if loop is not None:
        loop = _loop(posed, taps, loop.loss_db)
    prediction = predict_joint(posed, taps, model.backend)
    pairs = zip(prediction.conditions, loose.prediction.conditions, strict=True)
    prediction = replace(
        prediction,
        conditions=tuple(replace(pair, left_out=before.left_out) for pair, before in pairs),
        unknown_bands=loose.prediction.unknown_bands,
        counted_bands=loose.prediction.counted_bands,
        basis=loose.prediction.basis,
        interval_db=loose.prediction.interval_db,
    )
    before_db, after_db = (item.nominal_noise_reduction_db for item in (loose.prediction, prediction))
    cost_db = before_db - after_db if exceeds else 0.0
    spent_ms = 1e3 * (perf_counter() - began)
    times_ms = loose.times_ms | {"reconstruct": loose.times_ms.get("reconstruct", 0.0) + spent_ms}
    return replace(loose, taps=taps, prediction=prediction, times_ms=times_ms, loop=loop, ceiling_cost_db=cost_db)

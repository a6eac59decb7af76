"""The method, top to bottom: from an ear's paths to its control filter and the prediction of its effect.

`design` solves one problem and `design_all` a batch, in these steps:

1. `_posed`: paths at unit level, unknown bands, latency in the paths
2. `_drafted`: first taps and Gauss-Newton updates, by the model's backend
3. `_finished`: margins of the loop, prediction, and for a filter above its ceiling or one that makes an unknown band
louder, `_limited`: the best filter that keeps them
4. `_replace_doubtful`: the better of the generator's filter and Wiener filters

An error replaces its problem's result and affects no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from synthesis.backends import backend_class
from synthesis.backends.cpu import CpuBackend
from synthesis.bands import AMP_BANDS, NR_BANDS, WIDE_BANDS, columns
from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.errors import (
    Interrupted,
    InvalidOption,
    InvalidPaths,
    NonFiniteFilter,
    SynthesisError,
    answer_or_raise,
)
from synthesis.gain_curve import TOLERANCE_DB, GainCurve, ceiling_db, excess_db, highest_db, lowest_db
from synthesis.interruption import check_interruption
from synthesis.latency import with_latency
from synthesis.loop import closed_loop_secondary, judge_loop, loop_gain, with_margins, worst_loop
from synthesis.options import DEFAULT_MAX_GAIN_DB
from synthesis.plausibility import Comparison, Finding, SupportPrior, find_implausible
from synthesis.predict import mean_prediction
from synthesis.profiles import FAST, FINE
from synthesis.response_noise import response_uncertainty
from synthesis.types import (
    MAX_CONDITIONS,
    UPDATES_BRING_DB,
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
    Path,
    Paths,
    Prediction,
    Problem,
    Replaced,
    WmmsePrediction,
)
from synthesis.unknown_bands import BAND_BINS, LEAST_COHERENCE_SUM, MOST_UNCERTAIN, quiet_db, silent_bands

# Largest level difference of primary and secondary path. Measured ears have both within 20 dB; an amplifier or a
# converter before the loudspeaker may change it by 60.
MAX_LEVEL_DIFFERENCE_DB = 100.0

# Largest level of the primary over the secondary path of an ear: 30 measured ears have -12 to 5 dB.
LOUDEST_PRIMARY_DB = 12.0

# Rounds that put a ceiling on unknown bands made louder by the last filter.
QUIET_ROUNDS = 4

# Most halvings of the whole filter if no ceiling keeps unknown bands quiet.
QUIET_HALVINGS = 24

# With a latency, `wmmse` amplifies bands without enough time by up to 36 dB (`studies/wearing`). A Wiener filter's
# loudest band may exceed the generator's by the first; a dB beyond costs the second in noise reduction.
ALLOWED_LOUDER_DB = 3.0
LOUDER_COSTS_DB = 0.3


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
        and all(_is_plain(problem) for problem in problems)
    )
    designs = _designed(problems, options, model, with_wmmse)
    if fallback is not None and options.method == "prime":
        _replace_doubtful(designs, problems, options, model, fallback)
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
    posed = _each(partial(_posed, model=model, judge=True), problems)
    found = _predicted(posed, taps, backend, is_true)
    if is_true:
        return found
    found = _each(partial(_with_responses, backend=backend), posed, found, taps)
    return _each(_with_unknown, posed, found)


def implausible(
    problem: Problem, support: SupportPrior | None, comparison: Comparison | None = None
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

    Returns
    -------
    tuple[Finding, ...]
        Findings, with the condition's name if several.
    """
    if comparison is not None and comparison.is_right:
        return ()
    found = []
    for n, paths in enumerate(problem.conditions):
        for item in find_implausible(
            support, paths.primary, paths.secondary, paths.feedback, comparison=comparison
        ):
            detail = f"{problem.name_of(n)}: {item.detail}" if len(problem.conditions) > 1 else item.detail
            found.append(replace(item, detail=detail))
    return tuple(found)


def _designed(
    problems: Sequence[Problem], options: DesignOptions, model: Model, with_wmmse: bool = False
) -> list[Design | SynthesisError]:
    """Design all problems without the fallback."""
    posed = _each(partial(_posed, model=model), problems)
    drafts = _drafted(posed, options, model, with_wmmse)
    return _each(partial(_finished, options=options, model=model), problems, posed, drafts)


def _posed(problem: Problem, model: Model, judge: bool = False) -> Problem:
    """Prepare the problem: unit level, plausibility, unknown bands, and the latency in the paths."""
    conditions = problem.conditions
    if not 1 <= len(conditions) <= MAX_CONDITIONS:
        raise InvalidOption(f"conditions: there are {len(conditions)}; give 1 to {MAX_CONDITIONS}", "conditions")
    for n, condition in enumerate(conditions):
        if not 0 < condition.weight < np.inf:
            field = f"conditions.{n}.weight"
            raise InvalidOption(f"{field}: {condition.weight} is not a number above 0", field)
    problem = at_unit_level(problem)
    conditions = problem.conditions
    # Before the latency changes the paths.
    problem = replace(problem, conditions=tuple(_judged(paths, problem, model, judge) for paths in conditions))
    return with_latency(problem) if problem.latency_samples else problem


def _drafted(
    posed: Sequence[Problem | SynthesisError], options: DesignOptions, model: Model, with_wmmse: bool = False
) -> list[Draft | SynthesisError]:
    """Make first taps and updates, for all problems at once, under a ceiling that good filters hardly reach."""
    loose = [
        replace(item, max_gain_db=max(_loose_db(item), _extremes_db(item.max_gain_db)[1]))
        for item in posed
        if isinstance(item, Problem)
    ]
    found: list[Draft | SynthesisError] = []
    for part in _batches(len(loose), model.backend):
        found += model.backend.draft(loose[part], options, with_wmmse)
    in_order = iter(found)
    return [next(in_order) if isinstance(item, Problem) else item for item in posed]


def _finished(problem: Problem, posed: Problem, draft: Draft, *, options: DesignOptions, model: Model) -> Design:
    """Finish a draft: margins, prediction, ceiling and unknown bands."""
    taps, prediction, times_ms = draft.taps, draft.prediction, draft.times_ms
    began = perf_counter()
    taps, loop = _with_margins(posed, taps, model)
    comparison = draft.comparison if _is_plain(problem) else None
    if model.parameters.support is not None and comparison is not None and not comparison.is_right:
        posed = replace(posed, conditions=tuple(map(_by_response, posed.conditions)))
    if prediction is None or loop is not None:
        prediction = _prediction(posed, taps, model)
    else:
        prediction = _with_responses(posed, prediction, taps, model.backend)
    if options.leave_one_out and len(posed.conditions) > 1:
        prediction = _with_left_out(posed, prediction, options, model)
    if prediction is not draft.prediction:
        times_ms["predict"] = 1e3 * (perf_counter() - began)
    prediction = _with_unknown(posed, prediction)
    is_below = _is_below(posed.max_gain_db, draft.wmmse)
    made = Design(
        taps,
        draft.refinement,
        prediction,
        times_ms,
        method=options.method,
        n_requested=options.n_updates,
        loop=loop,
        wmmse=draft.wmmse if is_below else None,
        wmmse_above_ceiling=None if is_below else draft.wmmse,
        implausible=implausible(problem, model.parameters.support, comparison),
    )
    is_above = _is_above(posed.max_gain_db, made)
    if is_above or (prediction.unknown_bands and _quiet_db(posed, taps) is not None):
        return _limited(posed, made, options.profile, model, is_above=is_above)
    return made


def _with_margins(problem: Problem, taps: Float32, model: Model) -> tuple[Float32, Loop | None]:
    """Give the taps the requested margins of the loop; also return the loop, with their cost."""
    feedbacks = _feedbacks(problem)
    if not feedbacks:
        return taps, None
    kept = with_margins(taps, feedbacks, problem.min_gain_margin_db, problem.min_phase_margin_deg)
    loss_db = 0.0
    if kept is not taps:
        open_loop = replace(
            problem, conditions=tuple(replace(condition, feedback=None) for condition in problem.conditions)
        )
        before, after = (_prediction(open_loop, item, model) for item in (taps, kept))
        loss_db = before.mean_noise_reduction_db - after.mean_noise_reduction_db
    return kept, worst_loop([judge_loop(loop_gain(kept, feedback)) for feedback in feedbacks], loss_db)


def _with_left_out(problem: Problem, whole: Prediction, options: DesignOptions, model: Model) -> Prediction:
    """Predict per condition also a filter designed on the others."""
    conditions = list(whole.conditions)
    for n, paths in enumerate(problem.conditions):
        check_interruption()
        rest = replace(problem, conditions=problem.conditions[:n] + problem.conditions[n + 1 :])
        draft = answer_or_raise(_drafted([rest], options, model)[0])
        taps, _ = _with_margins(rest, draft.taps, model)
        left_out = _prediction(replace(problem, conditions=(paths,)), taps, model)
        conditions[n] = replace(conditions[n], left_out=left_out)
    return replace(whole, conditions=tuple(conditions))


def _limited(posed: Problem, loose: Design, profile: str, model: Model, *, is_above: bool) -> Design:
    """Find the best filter below the ceiling that keeps unknown bands quiet, with its cost and time."""
    began = perf_counter()
    limit_db = ceiling_db(posed.max_gain_db, DESIGN_N_FFT)
    profile = FINE.name if profile == FINE.name else FAST.name
    taps, loop = loose.taps, loose.loop
    if is_above:
        taps = model.core.limit_gain(posed, taps, limit_db, profile)
    for _ in range(QUIET_ROUNDS):
        check_interruption()
        if (louder_db := _quiet_db(posed, taps)) is None:
            break
        limit_db = np.minimum(limit_db, louder_db)
        taps = model.core.limit_gain(posed, taps, limit_db, profile)
    for _ in range(QUIET_HALVINGS):
        if _quiet_db(posed, taps) is None:
            break
        taps = taps * np.float32(0.5)
    if loop is not None:
        feedbacks = _feedbacks(posed)
        taps = with_margins(taps, feedbacks, posed.min_gain_margin_db, posed.min_phase_margin_deg)
        # Bending the response for the margins may raise it elsewhere by some hundredths of a dB.
        taps = taps * np.float32(min(1.0, 10 ** ((TOLERANCE_DB - excess_db(taps, limit_db)) / 20)))
        loop = worst_loop([judge_loop(loop_gain(taps, feedback)) for feedback in feedbacks], loop.loss_db)
    prediction = _prediction(posed, taps, model)
    pairs = zip(prediction.conditions, loose.prediction.conditions, strict=True)
    prediction = replace(
        prediction,
        conditions=tuple(replace(pair, left_out=before.left_out) for pair, before in pairs),
        unknown_bands=loose.prediction.unknown_bands,
        counted_bands=loose.prediction.counted_bands,
        basis=loose.prediction.basis,
        interval_db=loose.prediction.interval_db,
    )
    cost_db = loose.prediction.mean_noise_reduction_db - prediction.mean_noise_reduction_db if is_above else 0.0
    spent_ms = 1e3 * (perf_counter() - began)
    times_ms = loose.times_ms | {"reconstruct": loose.times_ms.get("reconstruct", 0.0) + spent_ms}
    return replace(loose, taps=taps, prediction=prediction, times_ms=times_ms, loop=loop, ceiling_cost_db=cost_db)


def _replace_doubtful(
    designs: list[Design | SynthesisError],
    problems: Sequence[Problem],
    options: DesignOptions,
    model: Model,
    fallback: Fallback,
) -> None:
    """Replace generator's filters that are not finite, or predicted to be clearly worse than a Wiener filter.

    There is no cheaper test: over 24 probes and 30 measured ears, the gain of the first update misses a third of the
    cases if it selects half of the ears for comparison.
    """
    rivals: dict[int, list[Design]] = {
        n: []
        for n, (generated, problem) in enumerate(zip(designs, problems, strict=True))
        if _is_doubtful(generated, fallback)
    }
    reached_db = [_above_ceiling_db(design) for design in designs]
    times_ms = _times_ms(designs)
    contenders = [("wmmse", 0)]
    if options.n_updates:
        contenders += [("wmmse", options.n_updates), ("fir_wiener", options.n_updates)]
    for method, n_updates in contenders:
        places = [n for n, found in rivals.items() if _may_win(method, n_updates, problems[n], designs[n], found)]
        if not places:
            continue
        made = _designed([problems[n] for n in places], replace(options, method=method, n_updates=n_updates), model)
        for n, rival in zip(places, made, strict=True):
            if isinstance(rival, Interrupted):
                raise rival
            if isinstance(rival, Design):
                rivals[n].append(rival)
                reached_db[n] = max(reached_db[n], _above_ceiling_db(rival))
        for stage, spent_ms in _times_ms(made).items():
            times_ms[stage] = times_ms.get(stage, 0.0) + spent_ms
    for n, found in rivals.items():
        generated = designs[n]
        candidates = [generated, *found] if isinstance(generated, Design) else found
        merit_db = partial(_merit_db, generated=generated, problem=problems[n], margin_db=fallback.margin_db)
        best = max(candidates, key=merit_db, default=generated)
        if isinstance(best, Design) and best is not generated:
            reason: Replaced = "predicted_worse" if isinstance(generated, Design) else "not_finite"
            designs[n] = replace(best, n_requested=options.n_updates, replaced_because=reason)
    for n, item in enumerate(designs):
        if isinstance(item, Design):
            item.times_ms.update(times_ms)
            cost_db = reached_db[n] - item.prediction.nominal_noise_reduction_db
            if cost_db > max(fallback.margin_db, item.ceiling_cost_db or 0.0):
                designs[n] = replace(item, ceiling_cost_db=cost_db)


def _above_ceiling_db(made: Design | SynthesisError) -> float:
    """Return the noise reduction that is predicted for a Wiener filter, if it exceeds the ceiling."""
    if not isinstance(made, Design):
        return -math.inf
    if made.method == "wmmse":
        return made.prediction.nominal_noise_reduction_db + (made.ceiling_cost_db or 0.0)
    beyond = made.wmmse_above_ceiling
    return -math.inf if beyond is None else beyond.nominal_noise_reduction_db


def _is_doubtful(generated: Design | SynthesisError, fallback: Fallback) -> bool:
    """Return whether to design Wiener filters too, and compare.

    Not for unusable paths, which have no filter, nor under the request's ceiling, where all starts lead to the same
    filter.
    """
    if isinstance(generated, SynthesisError):
        return isinstance(generated, NonFiniteFilter)
    generated_db = generated.prediction.nominal_noise_reduction_db
    if generated.ceiling_cost_db is not None or generated_db >= fallback.below_db:
        return False
    return (
        generated.wmmse is None
        or generated.wmmse.nominal_noise_reduction_db - generated_db > fallback.margin_db - WMMSE_TOLERANCE_DB
    )


def _may_win(
    method: str, n_updates: int, problem: Problem, generated: Design | SynthesisError, found: Sequence[Design]
) -> bool:
    """Return whether a Wiener filter may be the best; found are those before it."""
    if method == "fir_wiener":
        return problem.latency_samples > 0
    if not n_updates or not found or isinstance(generated, SynthesisError):
        return True
    behind_db = generated.prediction.nominal_noise_reduction_db - found[-1].prediction.nominal_noise_reduction_db
    return behind_db < UPDATES_BRING_DB


def _merit_db(made: Design, generated: Design | SynthesisError, problem: Problem, margin_db: float) -> float:
    """Compute the predicted noise reduction without the model's assumed unknown, which would hide differences.

    The generator's filter has the margin in its favour; with a latency, the others bear the cost of a louder
    loudest band.
    """
    mean_db = made.prediction.nominal_noise_reduction_db
    if made is generated:
        return mean_db + margin_db
    if not problem.latency_samples or isinstance(generated, SynthesisError):
        return mean_db
    beyond_db = _loudest_db(made) - max(_loudest_db(generated), 0.0) - ALLOWED_LOUDER_DB
    return mean_db - LOUDER_COSTS_DB * max(beyond_db, 0.0)


def _loudest_db(made: Design) -> float:
    return -float(made.prediction.band_reduction_db[columns(AMP_BANDS)].min())


def _times_ms(designs: Sequence[Design | SynthesisError]) -> dict[str, float]:
    """Return the times of a batch, which are those of any of its designs."""
    return next((dict(item.times_ms) for item in designs if isinstance(item, Design)), {})


def at_unit_level(problem: Problem) -> Problem:
    """Multiply the paths of all conditions by one power of two, which is exact.

    The unit of the error microphone is a factor of both paths and cancels in W = P / S, but squares in float32 could
    overflow or vanish.

    Parameters
    ----------
    problem
        Paths of any level.

    Returns
    -------
    Problem
        The geometric mean of the levels of the first condition's paths is between -3 and 3 dB. Paths that are all zero
        or not finite are left to the backend, which refuses them.

    Raises
    ------
    InvalidPaths
        The levels of a pair differ by more than MAX_LEVEL_DIFFERENCE_DB, or a feedback path's by more from their ratio.
    """
    levels_db = [(level_db(condition.primary), level_db(condition.secondary)) for condition in problem.conditions]
    for n, (primary_db, secondary_db) in enumerate(levels_db):
        difference_db = primary_db - secondary_db
        if math.isfinite(difference_db) and abs(difference_db) > MAX_LEVEL_DIFFERENCE_DB:
            # The one further from 0 dB is the unusual one.
            name, other = "primary", "secondary"
            if abs(secondary_db) > abs(primary_db):
                name, other, difference_db = other, name, -difference_db
            word = "below" if difference_db < 0 else "above"
            error = InvalidPaths(
                f"{name}: its level is {abs(difference_db):.0f} dB {word} that of the {other} path, which no "
                "earphone explains; measure both with the same microphone and send both in its unit",
                name,
            )
            raise problem.named(error, n)
        feedback = problem.conditions[n].feedback
        loop_db = -math.inf if feedback is None else level_db(feedback) + difference_db
        if loop_db > MAX_LEVEL_DIFFERENCE_DB and math.isfinite(difference_db):
            error = InvalidPaths(
                f"feedback: its level is {loop_db:.0f} dB above that of secondary over primary path, which no "
                "earphone explains; measure it with the same microphones and send all paths in their units",
                "feedback",
            )
            raise problem.named(error, n)
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
            )
            for condition in problem.conditions
        ),
    )


def level_db(path: Path) -> float:
    """Compute the level of a path.

    Parameters
    ----------
    path
        An impulse response or a spectrum.

    Returns
    -------
    float
        20 log10 of the root of the response's energy, the RMS over frequency of its spectrum; infinite for a path that
        is all zero or not finite.
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
    """Multiply a path by 2 ** exponent."""
    contiguous = np.ascontiguousarray(path)
    scaled: Path = np.ldexp(contiguous.view(contiguous.real.dtype), exponent).view(contiguous.dtype)
    return scaled


def _judged(paths: Paths, problem: Problem, model: Model, judge: bool) -> Paths:
    """Return the paths with what is unknown of them: of what was sent, of the model's device, or of the responses.

    Bands in which the system is silent are unknown, whatever is known of the others.
    """
    known = _known(paths, problem, model, judge)
    if not _is_usable(paths) or (silent := silent_bands(paths.primary)) is None:
        return known
    return replace(known, silent=silent, unknown=silent if known.unknown is None else silent | known.unknown)


def _known(paths: Paths, problem: Problem, model: Model, judge: bool) -> Paths:
    if paths.coherence is not None or paths.uncertainty is not None:
        unknown = np.zeros(len(WIDE_BANDS), bool)
        if paths.coherence is not None:
            sums = np.add.reduceat(paths.coherence[: BAND_BINS[-1]], BAND_BINS[:-1])
            unknown |= sums < LEAST_COHERENCE_SUM
        if paths.uncertainty is not None:
            unknown |= (paths.uncertainty > MOST_UNCERTAIN).any(0)
        return replace(paths, unknown=unknown) if unknown.any() else paths
    if problem.exact or problem.snr_db > 0:
        share = 0.0 if problem.exact else 10 ** (-problem.snr_db / 10)
        return replace(paths, uncertainty=np.full((2, len(WIDE_BANDS)), share, np.float32))
    support = model.parameters.support
    if support is None:
        return _by_response(paths)
    # A backend that judges plain paths does so itself where it designs.
    if (
        (not judge and model.backend.judges_paths and _is_plain(problem))
        or paths.resembles is not None
        or not _is_usable(paths)
    ):
        return paths
    if support.resembles(paths.primary, paths.secondary):
        return replace(paths, resembles=True)
    return _by_response(replace(paths, resembles=False))


def _by_response(paths: Paths) -> Paths:
    """Return paths of no known device with the uncertainty that the ends of their responses show."""
    if paths.coherence is not None or paths.uncertainty is not None or not _is_usable(paths):
        return paths
    return replace(paths, response=response_uncertainty(paths.primary, paths.secondary, MOST_UNCERTAIN))


def _is_usable(paths: Paths) -> bool:
    """Return whether both paths have valid shapes and values."""
    both = paths.primary, paths.secondary
    shapes = ((N_BINS,) if np.iscomplexobj(item) else (min(max(item.size, 1), DESIGN_N_FFT),) for item in both)
    return all(
        item.shape == shape and np.isfinite(item).all() and item.any()
        for item, shape in zip(both, shapes, strict=True)
    )


def _is_plain(problem: Problem) -> bool:
    """Return whether the problem is a single condition without further data."""
    return len(problem.conditions) == 1 and problem.conditions[0].feedback is None and not problem.latency_samples


def _feedbacks(problem: Problem) -> list[Path]:
    return [condition.feedback for condition in problem.conditions if condition.feedback is not None]


def _prediction(posed: Problem, taps: Float32, model: Model) -> Prediction:
    found = answer_or_raise(_predicted([posed], [taps], model.backend)[0])
    return _with_responses(posed, found, taps, model.backend)


def _with_responses(
    posed: Problem, prediction: Prediction, taps: Float32 | Complex64, backend: Backend
) -> Prediction:
    """Predict again with what the ends of the responses leave unknown; candidates are still compared as sent."""
    known = [paths.response for paths in posed.conditions if paths.response is not None]
    if not known:
        return prediction
    if any(uncertainty.any() for uncertainty, _ in known):
        conditions = tuple(
            paths if paths.response is None else replace(paths, uncertainty=paths.response[0])
            for paths in posed.conditions
        )
        again = answer_or_raise(_predicted([replace(posed, conditions=conditions)], [taps], backend)[0])
        prediction = replace(again, nominal_noise_reduction_db=prediction.nominal_noise_reduction_db)
    return replace(prediction, basis="response", interval_db=max(interval_db for _, interval_db in known))


def _predicted(
    posed: Sequence[Problem | SynthesisError],
    taps: Sequence[Float32 | Complex64],
    backend: Backend,
    is_true: bool = False,
) -> list[Prediction | SynthesisError]:
    """Predict all conditions in their closed loops, with S / (1 + W F) for S."""
    alone, filters = [], []
    for problem, control_filter in zip(posed, taps, strict=True):
        if isinstance(problem, SynthesisError):
            continue
        for paths in problem.conditions:
            if paths.feedback is not None:
                secondary = closed_loop_secondary(paths.secondary, paths.feedback, control_filter)
                paths = replace(paths, secondary=secondary, feedback=None)
            alone.append(Problem((paths,), problem.reference_psd))
            filters.append(control_filter)
    found: list[Prediction | SynthesisError] = []
    for part in _batches(len(alone), backend):
        found += backend.predict(alone[part], filters[part], is_true)
    in_order = iter(found)
    parts = [[next(in_order) for _ in item.conditions] if isinstance(item, Problem) else [] for item in posed]
    return _each(_joined, posed, parts)


def _joined(problem: Problem, found: Sequence[Prediction | SynthesisError]) -> Prediction:
    """Join the conditions' predictions."""
    predictions = []
    for n, item in enumerate(found):
        if isinstance(item, SynthesisError):
            raise problem.named(item, n)
        predictions.append(item)
    if len(predictions) == 1:
        return predictions[0]
    return mean_prediction(predictions, problem.shares, [condition.label for condition in problem.conditions])


def _with_unknown(posed: Problem, prediction: Prediction) -> Prediction:
    """Add the unknown bands of all conditions to the prediction, and those that its means count."""
    unknown = [paths.unknown for paths in posed.conditions if paths.unknown is not None]
    if not unknown:
        return prediction
    found = replace(prediction, unknown_bands=tuple(np.array(WIDE_BANDS)[np.any(unknown, axis=0)].tolist()))
    silent = [paths.silent for paths in posed.conditions if paths.silent is not None]
    if len(silent) < len(posed.conditions):
        return found
    is_silent = dict(zip(WIDE_BANDS, np.all(silent, axis=0).tolist(), strict=True))
    return replace(found, counted_bands=tuple(n for n in NR_BANDS if not is_silent[n]) or NR_BANDS)


def _quiet_db(posed: Problem, taps: Float32) -> NDArray[np.float64] | None:
    """Return the lowest `quiet_db` of all conditions; None if there is none."""
    found = [limit_db for condition in posed.conditions if (limit_db := quiet_db(condition, taps)) is not None]
    return np.min(found, axis=0) if found else None


def _loose_db(posed: Problem) -> float:
    """Return the default ceiling, raised by as much as the secondary path is quieter than an ear's."""
    quieter_db = max(level_db(condition.primary) - level_db(condition.secondary) for condition in posed.conditions)
    is_quiet = LOUDEST_PRIMARY_DB < quieter_db < np.inf
    return DEFAULT_MAX_GAIN_DB + (quieter_db - LOUDEST_PRIMARY_DB if is_quiet else 0.0)


def _is_above(max_gain_db: float | GainCurve, made: Design) -> bool:
    """Return whether the filter exceeds its ceiling; its response is computed only if necessary."""
    if not made.prediction.max_gain_db > _extremes_db(max_gain_db)[0] + TOLERANCE_DB:
        return False
    if not isinstance(max_gain_db, GainCurve):
        return True
    return excess_db(made.taps, ceiling_db(max_gain_db, DESIGN_N_FFT)) > TOLERANCE_DB


def _is_below(max_gain_db: float | GainCurve, wmmse: WmmsePrediction | None) -> bool:
    """Return whether WMMSE keeps the ceiling, and so equals its prediction."""
    if wmmse is None:
        return False
    return wmmse.max_gain_db <= _extremes_db(max_gain_db)[0] + TOLERANCE_DB - WMMSE_TOLERANCE_DB


def _extremes_db(max_gain_db: float | GainCurve) -> tuple[float, float]:
    """Return the lowest and highest value of a ceiling."""
    if isinstance(max_gain_db, GainCurve):
        return lowest_db(max_gain_db), highest_db(max_gain_db)
    return max_gain_db, max_gain_db


def _batches(n_items: int, backend: Backend) -> Iterator[slice]:
    """Yield slices as large as the backend takes."""
    for n in range(0, n_items, backend.max_batch):
        yield slice(n, n + backend.max_batch)


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

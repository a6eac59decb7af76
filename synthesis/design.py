"""The method, top to bottom: from the paths of an ear to its control filter and the effect of that.

`design` solves one problem and `design_all` a batch, in these steps:

1. `_posed`: paths at unit level, unknown bands, latency in the paths
2. `_drafted`: first taps and Gauss-Newton updates, by the model's backend
3. `_finished`: margins of the loop, prediction, and where the filter exceeds its ceiling or makes an unknown band
   louder, `_limited`: the best filter that does not
4. `_replace_doubtful`: the better of the generator's filter and Wiener filters

An error stands in the place of its problem's result and affects no other.
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
from synthesis.bands import AMP_BANDS, WIDE_BANDS, columns
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
from synthesis.unknown_bands import BAND_BINS, MOST_UNCERTAIN, UNHEARD, quiet_db

# Largest difference between the levels of primary and secondary path. Measured ears have both within 20 dB; an
# amplifier or a converter between the loudspeaker signal and the loudspeaker may add or take 60.
MAX_LEVEL_DIFFERENCE_DB = 100.0

# Largest level of the primary path over the secondary path of an ear: 30 measured ears have -12 to 5 dB.
LOUDEST_PRIMARY_DB = 12.0

# Each round puts a ceiling on the unknown bands that the filter before makes louder.
QUIET_ROUNDS = 4

# Where no ceiling keeps unknown bands quiet, the whole filter is halved up to so many times.
QUIET_HALVINGS = 24

# With a latency, `wmmse` makes bands up to 36 dB louder for which there is no time (`studies/wearing`). A Wiener
# filter's loudest band may exceed the generator's by the first; each dB beyond costs the second in noise reduction.
ALLOWED_LOUDER_DB = 3.0
LOUDER_COSTS_DB = 0.3


class Model:
    """A checkpoint's numbers on one kind of processor. As safe to share between threads as its backend."""

    def __init__(self, parameters: ModelParameters, backend: Backend) -> None:
        self.parameters = parameters
        self.backend = backend

    @classmethod
    def on(cls, device: str, parameters: ModelParameters) -> Model:
        """Load a model on `cpu`, `cuda` or `reference`; raises ValueError for another device."""
        return cls(parameters, backend_class(device)(parameters))

    @cached_property
    def core(self) -> CpuBackend:
        """The C core, which finds filters under a ceiling whatever the backend."""
        return self.backend if isinstance(self.backend, CpuBackend) else CpuBackend(self.parameters)


def design(problem: Problem, options: DesignOptions, model: Model, fallback: Fallback | None = None) -> Design:
    """Design one filter; raises SynthesisError. Parameters as of `design_all`."""
    return answer_or_raise(design_all([problem], options, model, fallback)[0])


def design_all(
    problems: Sequence[Problem], options: DesignOptions, model: Model, fallback: Fallback | None = None
) -> list[Design | SynthesisError]:
    """Design a filter for each problem.

    Parameters
    ----------
    problems
        Any number; a backend takes up to its `max_batch` at once.
    options
        Of all designs.
    model
        What designs them.
    fallback
        When a Wiener filter replaces the generator's; None: never.

    Returns
    -------
    list of Design or SynthesisError
        In the order of `problems`: InvalidPaths, InvalidOption, NonFiniteFilter or Interrupted in the place of a
        design that failed.
    """
    with_wmmse = (
        fallback is not None
        and options.method == "prime"
        and fallback.below_db == math.inf
        and all(_is_plain(each) for each in problems)
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
        Paths, latency and noise for each filter; ceilings and margins do not matter.
    taps
        Each filter as its taps, float32 [2048], or as its response on the design grid, complex64 [16385]: of
        sections, of another rate, of any length.
    model
        Its uncertainty counts where neither a coherence nor an uncertainty was sent.
    is_true
        Whether the paths are the true ones: then nothing about them is unknown.

    Returns
    -------
    list of Prediction or SynthesisError
        In the order of `problems`.
    """
    # Only the core takes responses.
    backend = model.core if any(np.iscomplexobj(each) for each in taps) else model.backend
    posed = _each(partial(_posed, model=model), problems)
    found = _predicted(posed, taps, backend, is_true)
    return found if is_true else _each(_with_unknown, posed, found)


def implausible(
    problem: Problem, support: SupportPrior | None, comparison: Comparison | None = None
) -> tuple[Finding, ...]:
    """Find what is wrong with each condition's paths beside those of the model's support.

    Parameters
    ----------
    problem
        As it was sent.
    support
        Of the model; None: what is wrong without it.
    comparison
        Of the only condition, if known.

    Returns
    -------
    tuple of Finding
        With the condition's name where there are several.
    """
    if comparison is not None and comparison.is_right:
        return ()
    found = []
    for n, paths in enumerate(problem.conditions):
        for each in find_implausible(
            support, paths.primary, paths.secondary, paths.feedback, comparison=comparison
        ):
            detail = f"{problem.name_of(n)}: {each.detail}" if len(problem.conditions) > 1 else each.detail
            found.append(replace(each, detail=detail))
    return tuple(found)


def _designed(
    problems: Sequence[Problem], options: DesignOptions, model: Model, with_wmmse: bool = False
) -> list[Design | SynthesisError]:
    """Design each without the fallback."""
    posed = _each(partial(_posed, model=model), problems)
    drafts = _drafted(posed, options, model, with_wmmse)
    return _each(partial(_finished, options=options, model=model), problems, posed, drafts)


def _posed(problem: Problem, model: Model) -> Problem:
    """Pose the problem as it is solved: at unit level, judged, with unknown bands and the latency in its paths."""
    conditions = problem.conditions
    if not 1 <= len(conditions) <= MAX_CONDITIONS:
        raise InvalidOption(f"conditions: there are {len(conditions)}; give 1 to {MAX_CONDITIONS}", "conditions")
    for n, each in enumerate(conditions):
        if not 0 < each.weight < np.inf:
            field = f"conditions.{n}.weight"
            raise InvalidOption(f"{field}: {each.weight} is not a number above 0", field)
    problem = at_unit_level(problem)
    # Before the latency changes the paths; a backend that judges plain ones does so itself.
    support = None if model.backend.judges_paths and _is_plain(problem) else model.parameters.support
    problem = replace(problem, conditions=tuple(_judged(each, support) for each in problem.conditions))
    return with_latency(problem) if problem.latency_samples else problem


def _drafted(
    posed: Sequence[Problem | SynthesisError], options: DesignOptions, model: Model, with_wmmse: bool = False
) -> list[Draft | SynthesisError]:
    """Make first taps and update them, for all problems at once, under a ceiling that good filters hardly reach."""
    loose = [
        replace(each, max_gain_db=max(_loose_db(each), _extremes_db(each.max_gain_db)[1]))
        for each in posed
        if isinstance(each, Problem)
    ]
    found: list[Draft | SynthesisError] = []
    for part in _batches(len(loose), model.backend):
        found += model.backend.draft(loose[part], options, with_wmmse)
    in_order = iter(found)
    return [next(in_order) if isinstance(each, Problem) else each for each in posed]


def _finished(problem: Problem, posed: Problem, draft: Draft, *, options: DesignOptions, model: Model) -> Design:
    """Make a design of a draft: margins, prediction, ceiling and unknown bands."""
    taps, prediction, times_ms = draft.taps, draft.prediction, draft.times_ms
    began = perf_counter()
    taps, loop = _with_margins(posed, taps, model)
    if prediction is None or loop is not None:
        prediction = _prediction(posed, taps, model)
    if options.leave_one_out and len(posed.conditions) > 1:
        prediction = _with_left_out(posed, prediction, options, model)
    if prediction is not draft.prediction:
        times_ms["predict"] = 1e3 * (perf_counter() - began)
    prediction = _with_unknown(posed, prediction)
    comparison = draft.comparison if _is_plain(problem) else None
    made = Design(
        taps,
        draft.refinement,
        prediction,
        times_ms,
        method=options.method,
        n_requested=options.n_updates,
        loop=loop,
        wmmse=draft.wmmse if _is_below(posed.max_gain_db, draft.wmmse) else None,
        implausible=implausible(problem, model.parameters.support, comparison),
    )
    is_above = _is_above(posed.max_gain_db, made)
    if is_above or (prediction.unknown_bands and _quiet_db(posed, taps) is not None):
        return _limited(posed, made, options.profile, model, is_above=is_above)
    return made


def _with_margins(problem: Problem, taps: Float32, model: Model) -> tuple[Float32, Loop | None]:
    """Give the taps the requested margins of the loop; also return the loop, with what they cost."""
    feedbacks = _feedbacks(problem)
    if not feedbacks:
        return taps, None
    kept = with_margins(taps, feedbacks, problem.min_gain_margin_db, problem.min_phase_margin_deg)
    loss_db = 0.0
    if kept is not taps:
        open_loop = replace(problem, conditions=tuple(replace(each, feedback=None) for each in problem.conditions))
        before, after = (_prediction(open_loop, each, model) for each in (taps, kept))
        loss_db = before.mean_noise_reduction_db - after.mean_noise_reduction_db
    return kept, worst_loop([judge_loop(loop_gain(kept, each)) for each in feedbacks], loss_db)


def _with_left_out(problem: Problem, whole: Prediction, options: DesignOptions, model: Model) -> Prediction:
    """Predict in each condition also a filter that was designed on the others."""
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
    """Find the best filter below the ceiling that keeps unknown bands quiet, and what that costs and takes.

    is_above: whether `loose` exceeds the ceiling; else it only makes unknown bands louder.
    """
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
        # What bends the response for the margins may lift it elsewhere by some hundredths.
        taps = taps * np.float32(min(1.0, 10 ** ((TOLERANCE_DB - excess_db(taps, limit_db)) / 20)))
        loop = worst_loop([judge_loop(loop_gain(taps, each)) for each in feedbacks], loop.loss_db)
    prediction = _prediction(posed, taps, model)
    pairs = zip(prediction.conditions, loose.prediction.conditions, strict=True)
    prediction = replace(
        prediction,
        conditions=tuple(replace(each, left_out=before.left_out) for each, before in pairs),
        unknown_bands=loose.prediction.unknown_bands,
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
    """Replace each filter of the generator that is not finite, or predicted to be clearly worse than a Wiener filter.

    There is no cheaper test: over 24 probes and 30 measured ears, the gain of the first update misses a third of
    the cases if it selects half of the ears for comparison.
    """
    rivals: dict[int, list[Design]] = {
        n: [] for n, (own, problem) in enumerate(zip(designs, problems, strict=True)) if _is_doubtful(own, fallback)
    }
    if not rivals:
        return
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
        for stage, spent_ms in _times_ms(made).items():
            times_ms[stage] = times_ms.get(stage, 0.0) + spent_ms
    for n, found in rivals.items():
        own = designs[n]
        candidates = [own, *found] if isinstance(own, Design) else found
        merit_db = partial(_merit_db, own=own, problem=problems[n], margin_db=fallback.margin_db)
        best = max(candidates, key=merit_db, default=own)
        if isinstance(best, Design) and best is not own:
            reason: Replaced = "predicted_worse" if isinstance(own, Design) else "not_finite"
            designs[n] = replace(best, n_requested=options.n_updates, replaced_because=reason)
    for each in designs:
        if isinstance(each, Design):
            each.times_ms.update(times_ms)


def _is_doubtful(own: Design | SynthesisError, fallback: Fallback) -> bool:
    """Whether to design Wiener filters too, and compare.

    Not for unusable paths, which have no filter, nor under the request's ceiling, where every start leads to the
    same filter.
    """
    if isinstance(own, SynthesisError):
        return isinstance(own, NonFiniteFilter)
    own_db = own.prediction.nominal_noise_reduction_db
    if own.ceiling_cost_db is not None or own_db >= fallback.below_db:
        return False
    return (
        own.wmmse is None or own.wmmse.nominal_noise_reduction_db - own_db > fallback.margin_db - WMMSE_TOLERANCE_DB
    )


def _may_win(
    method: str, n_updates: int, problem: Problem, own: Design | SynthesisError, found: Sequence[Design]
) -> bool:
    """Whether a Wiener filter may be the best; found: those before it."""
    if method == "fir_wiener":
        return problem.latency_samples > 0
    if not n_updates or not found or isinstance(own, SynthesisError):
        return True
    behind_db = own.prediction.nominal_noise_reduction_db - found[-1].prediction.nominal_noise_reduction_db
    return behind_db < UPDATES_BRING_DB


def _merit_db(made: Design, own: Design | SynthesisError, problem: Problem, margin_db: float) -> float:
    """Predicted noise reduction without what the model supposes to be unknown, which would hide differences.

    The generator's filter `own` has the margin in its favour; with a latency, the others bear the cost of a loudest
    band that is louder than its.
    """
    mean_db = made.prediction.nominal_noise_reduction_db
    if made is own:
        return mean_db + margin_db
    if not problem.latency_samples or isinstance(own, SynthesisError):
        return mean_db
    beyond_db = _loudest_db(made) - max(_loudest_db(own), 0.0) - ALLOWED_LOUDER_DB
    return mean_db - LOUDER_COSTS_DB * max(beyond_db, 0.0)


def _loudest_db(made: Design) -> float:
    return -float(made.prediction.band_reduction_db[columns(AMP_BANDS)].min())


def _times_ms(designs: Sequence[Design | SynthesisError]) -> dict[str, float]:
    """Of a batch: those of any of its designs."""
    return next((dict(each.times_ms) for each in designs if isinstance(each, Design)), {})


def at_unit_level(problem: Problem) -> Problem:
    """Multiply the paths of all conditions by one power of two, which rounds nothing.

    The unit of the error microphone is a factor of both paths, which cancels in W = P / S; squares in float32 would
    still overflow or vanish in an unfortunate unit.

    Parameters
    ----------
    problem
        Paths of any level.

    Returns
    -------
    Problem
        The geometric mean of the levels of the first condition's paths is between -3 and 3 dB. Paths that are all
        zero or not finite are left to the backend, which refuses them.

    Raises
    ------
    InvalidPaths
        If the levels of a pair differ by more than MAX_LEVEL_DIFFERENCE_DB, or that of a feedback path is so far
        above their ratio, which would be the level of W F.
    """
    levels_db = [(level_db(each.primary), level_db(each.secondary)) for each in problem.conditions]
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
            replace(each, primary=_scaled(each.primary, exponent), secondary=_scaled(each.secondary, exponent))
            for each in problem.conditions
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
        20 log10 of the root of the impulse response's energy, which is the RMS over frequency of its spectrum;
        infinite for a path that is all zero or not finite.
    """
    n = len(path) if path.dtype.kind == "c" else 1
    parts = np.ascontiguousarray(path).view(path.real.dtype)
    energy = float(np.vdot(parts, parts))
    if not 1e-20 < energy < 1e30:  # where squares in float32 overflow or vanish
        with np.errstate(all="ignore"):
            energy = float(np.square(parts, dtype=np.float64).sum())
    if not 0 < energy < math.inf:
        return math.inf if energy else -math.inf
    return 10 * math.log10(energy / n)


def _scaled(path: Path, exponent: int) -> Path:
    """A path times 2 ** exponent."""
    contiguous = np.ascontiguousarray(path)
    scaled: Path = np.ldexp(contiguous.view(contiguous.real.dtype), exponent).view(contiguous.dtype)
    return scaled


def _judged(paths: Paths, support: SupportPrior | None) -> Paths:
    """The paths with their unknown bands or, where nothing tells what is unknown, whether the support has such."""
    if paths.coherence is not None or paths.uncertainty is not None:
        unknown = np.zeros(len(WIDE_BANDS), bool)
        if paths.coherence is not None:
            sums = np.add.reduceat(paths.coherence[: BAND_BINS[-1]], BAND_BINS[:-1])
            unknown |= sums < UNHEARD * np.diff(BAND_BINS)
        if paths.uncertainty is not None:
            unknown |= (paths.uncertainty > MOST_UNCERTAIN).any(0)
        return replace(paths, unknown=unknown) if unknown.any() else paths
    if support is None or paths.resembles is not None or not _is_usable(paths):
        return paths
    return replace(paths, resembles=support.resembles(paths.primary, paths.secondary))


def _is_usable(paths: Paths) -> bool:
    """Whether both paths have a shape and values that a filter can be designed for."""
    both = paths.primary, paths.secondary
    shapes = ((N_BINS,) if np.iscomplexobj(each) else (min(max(each.size, 1), DESIGN_N_FFT),) for each in both)
    return all(
        each.shape == shape and np.isfinite(each).all() and each.any()
        for each, shape in zip(both, shapes, strict=True)
    )


def _is_plain(problem: Problem) -> bool:
    """Whether the problem is one pair of paths and nothing more."""
    return len(problem.conditions) == 1 and problem.conditions[0].feedback is None and not problem.latency_samples


def _feedbacks(problem: Problem) -> list[Path]:
    return [each.feedback for each in problem.conditions if each.feedback is not None]


def _prediction(posed: Problem, taps: Float32, model: Model) -> Prediction:
    return answer_or_raise(_predicted([posed], [taps], model.backend)[0])


def _predicted(
    posed: Sequence[Problem | SynthesisError],
    taps: Sequence[Float32 | Complex64],
    backend: Backend,
    is_true: bool = False,
) -> list[Prediction | SynthesisError]:
    """Predictions over all conditions, each in its closed loop, where an ordinary one with S / (1 + W F) for S is
    that of the loop."""
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
    parts = [[next(in_order) for _ in each.conditions] if isinstance(each, Problem) else [] for each in posed]
    return _each(_joined, posed, parts)


def _joined(problem: Problem, found: Sequence[Prediction | SynthesisError]) -> Prediction:
    """One prediction from that of each condition."""
    predictions = []
    for n, each in enumerate(found):
        if isinstance(each, SynthesisError):
            raise problem.named(each, n)
        predictions.append(each)
    if len(predictions) == 1:
        return predictions[0]
    return mean_prediction(predictions, problem.shares, [each.label for each in problem.conditions])


def _with_unknown(posed: Problem, prediction: Prediction) -> Prediction:
    """The prediction, which names the bands that any condition leaves unknown."""
    unknown = [each.unknown for each in posed.conditions if each.unknown is not None]
    if not unknown:
        return prediction
    return replace(prediction, unknown_bands=tuple(np.array(WIDE_BANDS)[np.any(unknown, axis=0)].tolist()))


def _quiet_db(posed: Problem, taps: Float32) -> NDArray[np.float64] | None:
    """The lowest `quiet_db` of all conditions; None if none has one."""
    found = [limit_db for each in posed.conditions if (limit_db := quiet_db(each, taps)) is not None]
    return np.min(found, axis=0) if found else None


def _loose_db(posed: Problem) -> float:
    """The default ceiling, or by as much above it as the secondary path is quieter than an ear's."""
    quieter_db = max(level_db(each.primary) - level_db(each.secondary) for each in posed.conditions)
    is_quiet = LOUDEST_PRIMARY_DB < quieter_db < np.inf
    return DEFAULT_MAX_GAIN_DB + (quieter_db - LOUDEST_PRIMARY_DB if is_quiet else 0.0)


def _is_above(max_gain_db: float | GainCurve, made: Design) -> bool:
    """Whether the filter exceeds its ceiling; its response is computed only if the largest |W| leaves that open."""
    if not made.prediction.max_gain_db > _extremes_db(max_gain_db)[0] + TOLERANCE_DB:
        return False
    if not isinstance(max_gain_db, GainCurve):
        return True
    return excess_db(made.taps, ceiling_db(max_gain_db, DESIGN_N_FFT)) > TOLERANCE_DB


def _is_below(max_gain_db: float | GainCurve, wmmse: WmmsePrediction | None) -> bool:
    """Whether WMMSE keeps the ceiling, and so is what was predicted."""
    if wmmse is None:
        return False
    return wmmse.max_gain_db <= _extremes_db(max_gain_db)[0] + TOLERANCE_DB - WMMSE_TOLERANCE_DB


def _extremes_db(max_gain_db: float | GainCurve) -> tuple[float, float]:
    """Lowest and highest value of a ceiling."""
    if isinstance(max_gain_db, GainCurve):
        return lowest_db(max_gain_db), highest_db(max_gain_db)
    return max_gain_db, max_gain_db


def _batches(n_items: int, backend: Backend) -> Iterator[slice]:
    """Parts as large as the backend takes."""
    for n in range(0, n_items, backend.max_batch):
        yield slice(n, n + backend.max_batch)


def _each(step: Callable[..., Any], *items: Sequence[Any]) -> list[Any]:
    """Apply a step to each item; an error, of this or an earlier step, stands in the item's place."""
    results: list[Any] = []
    for values in zip(*items, strict=True):
        error = next((each for each in values if isinstance(each, SynthesisError)), None)
        try:
            results.append(step(*values) if error is None else error)
        except SynthesisError as raised:
            results.append(raised)
    return results

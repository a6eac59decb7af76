"""Designs and predictions of problems that are more than one pair of paths: several conditions, latency, feedback.

What these have beyond a plain problem needs no model, so it is done here once for all backends: a latency goes into the
paths, the prediction of several conditions is joined from each one's, and that of a closed loop is an ordinary one
with S / (1 + W F) for S. Only one filter for several conditions is each backend's own work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.errors import InvalidOption, SynthesisError, answer_or_raise
from synthesis.feedback import closed_loop_secondary, judge_loop, loop_gain, with_margins, worst_loop
from synthesis.interruption import check_interruption
from synthesis.latency import with_latency
from synthesis.plausibility import SupportPrior
from synthesis.types import (
    MAX_CONDITIONS,
    Complex64,
    ConditionPrediction,
    Design,
    DesignOptions,
    Float32,
    Loop,
    Paths,
    Prediction,
    Problem,
    RefinementRecord,
)
from synthesis.unknown_bands import unknown_bands

Answer = TypeVar("Answer")
Filter = tuple[Float32, RefinementRecord, dict[str, float]]
"""Taps, their updates and the times of the stages."""

LARGEST = ("max_gain_db", "control_rms")
"""Fields of a prediction of which the largest over conditions is given instead of the mean."""


class ConditionsBackend:
    """Base class of the backends. It handles several conditions, latency and feedback; the derived class does the
    rest, for *plain* problems, which have none of these three.

    support: the model's; set by the backend. judges_plain: whether the derived class finds out by itself whether a
    plain problem resembles it. knows_unknown: whether it designs plain problems with unknown bands; if not, they
    go the way of several conditions.
    """

    support: SupportPrior | None = None
    judges_plain = False
    knows_unknown = True

    def design(self, problems: Sequence[Problem], options: DesignOptions) -> list[Design | SynthesisError]:
        """As `Backend.design`."""
        return _each(
            problems,
            lambda plain: self._design(self._judged_plain(plain), options),
            lambda n: self._design_joined(problems[n], options),
            lambda problem: is_plain(problem) and (self.knows_unknown or not _has_unknown(problem)),
        )

    def predict(
        self, problems: Sequence[Problem], taps: Sequence[Float32 | Complex64]
    ) -> list[Prediction | SynthesisError]:
        """As `Backend.predict`."""
        return self._predict_all(problems, taps, self._predict)

    def evaluate(self, problems: Sequence[Problem], taps: Sequence[Float32]) -> list[Prediction | SynthesisError]:
        """As `Backend.evaluate`."""
        return self._predict_all(problems, taps, self._evaluate)

    def _judged_plain(self, problems: Sequence[Problem]) -> Sequence[Problem]:
        return problems if self.judges_plain else [self._judged(each) for each in problems]

    def _judged(self, problem: Problem) -> Problem:
        """The problem with a judgement, before latency or loop change its paths, of each condition that needs one."""
        support = self.support
        if support is None:
            return problem

        def judged(condition: Paths) -> Paths:
            is_known = condition.coherence is not None or condition.uncertainty is not None
            if is_known or condition.resembles is not None or not _is_usable(condition):
                return condition
            return replace(condition, resembles=support.resembles(condition.primary, condition.secondary))

        return replace(problem, conditions=tuple(map(judged, problem.conditions)))

    def _design(self, problems: Sequence[Problem], options: DesignOptions) -> list[Design | SynthesisError]:
        """Of plain problems."""
        raise NotImplementedError

    def _joint_filter(self, problem: Problem, options: DesignOptions) -> Filter:
        """One filter for all conditions, whose feedback is not looked at; raises SynthesisError."""
        raise NotImplementedError

    def _predict(self, problems: Sequence[Problem], taps: Sequence[Float32]) -> list[Prediction | SynthesisError]:
        """Of plain problems."""
        raise NotImplementedError

    def _evaluate(self, problems: Sequence[Problem], taps: Sequence[Float32]) -> list[Prediction | SynthesisError]:
        """Of plain problems."""
        raise NotImplementedError

    def _design_joined(self, problem: Problem, options: DesignOptions) -> Design | SynthesisError:
        try:
            problem = with_latency(self._judged(_checked(problem)))
            taps, record, times_ms = self._filter(problem, replace(options, with_wmmse=False))
            began = perf_counter()
            taps, loop = self._in_a_loop(problem, taps)
            prediction = answer_or_raise(_joined_prediction(problem, taps, self._predict))
            if options.leave_one_out and len(problem.conditions) > 1:
                prediction = self._with_those_left_out(problem, options, prediction)
        except SynthesisError as error:
            return error
        times_ms["predict"] = 1e3 * (perf_counter() - began)
        return Design(taps, record, prediction, times_ms, loop)

    def _filter(self, problem: Problem, options: DesignOptions) -> Filter:
        check_interruption()
        if len(problem.conditions) > 1 or (not self.knows_unknown and _has_unknown(problem)):
            return self._joint_filter(problem, options)
        design = answer_or_raise(self._design([_plain(problem, problem.conditions[0])], options)[0])
        return design.taps, design.refinement, dict(design.times_ms)

    def _in_a_loop(self, problem: Problem, taps: Float32) -> tuple[Float32, Loop | None]:
        """The taps with the margins that are asked for, and what the loops are then."""
        feedbacks = [each.feedback for each in problem.conditions if each.feedback is not None]
        if not feedbacks:
            return taps, None
        kept = with_margins(taps, feedbacks, problem.min_gain_margin_db, problem.min_phase_margin_deg)
        loss_db = 0.0
        if kept is not taps:
            without = replace(
                problem, conditions=tuple(replace(each, feedback=None) for each in problem.conditions)
            )
            before, after = (
                answer_or_raise(_joined_prediction(without, each, self._predict)) for each in (taps, kept)
            )
            loss_db = before.mean_noise_reduction_db - after.mean_noise_reduction_db
        return kept, worst_loop([judge_loop(loop_gain(kept, each)) for each in feedbacks], loss_db)

    def _with_those_left_out(self, problem: Problem, options: DesignOptions, whole: Prediction) -> Prediction:
        """The prediction of each condition beside that of a filter designed on the others."""
        conditions, found = problem.conditions, []
        for n, (condition, own) in enumerate(zip(conditions, whole.conditions, strict=True)):
            rest = replace(problem, conditions=tuple(each for m, each in enumerate(conditions) if m != n))
            taps, _ = self._in_a_loop(rest, self._filter(rest, options)[0])
            left_out = _joined_prediction(replace(problem, conditions=(condition,)), taps, self._predict)
            found.append(replace(own, left_out=answer_or_raise(left_out)))
        return replace(whole, conditions=tuple(found))

    def _predict_all(
        self,
        problems: Sequence[Problem],
        taps: Sequence[Float32 | Complex64],
        run: Callable[[Sequence[Problem], Sequence[Any]], list[Prediction | SynthesisError]],
    ) -> list[Prediction | SynthesisError]:
        def joined(n: int) -> Prediction | SynthesisError:
            try:
                return _joined_prediction(with_latency(self._judged(_checked(problems[n]))), taps[n], run)
            except SynthesisError as error:
                return error

        places = [n for n, problem in enumerate(problems) if is_plain(problem)]
        return _each(problems, lambda plain: run(self._judged_plain(plain), [taps[n] for n in places]), joined)


def is_plain(problem: Problem) -> bool:
    """Whether the problem is one pair of paths and nothing more."""
    return len(problem.conditions) == 1 and problem.conditions[0].feedback is None and problem.latency_samples == 0


def _each(
    problems: Sequence[Problem],
    run_plain: Callable[[list[Problem]], list[Answer | SynthesisError]],
    run_joined: Callable[[int], Answer | SynthesisError],
    belongs: Callable[[Problem], bool] = is_plain,
) -> list[Answer | SynthesisError]:
    """The answers in order: problems that `belongs` to a batch as one, each other one by itself."""
    plain = {n: problem for n, problem in enumerate(problems) if belongs(problem)}
    found = dict(zip(plain, run_plain(list(plain.values())) if plain else [], strict=True))
    return [found[n] if n in found else run_joined(n) for n in range(len(problems))]


def _checked(problem: Problem) -> Problem:
    """The problem; InvalidOption for weights or a number of conditions that make no design."""
    if len(problem.conditions) > MAX_CONDITIONS:
        found = f"conditions: there are {len(problem.conditions)}; give 1 to {MAX_CONDITIONS}"
        raise InvalidOption(found, "conditions")
    for n, each in enumerate(problem.conditions):
        if not 0 < each.weight < np.inf:
            field = f"conditions.{n}.weight"
            raise InvalidOption(f"{field}: {each.weight} is not a number above 0", field)
    return problem


def _is_usable(condition: Paths) -> bool:
    """Whether both paths have a shape and values that a filter can be designed for."""
    paths = condition.primary, condition.secondary
    shapes = ((N_BINS,) if np.iscomplexobj(each) else (min(max(each.size, 1), DESIGN_N_FFT),) for each in paths)
    return all(
        each.shape == shape and np.isfinite(each).all() and each.any()
        for each, shape in zip(paths, shapes, strict=True)
    )


def shares(problem: Problem) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Weights of the conditions, of sum one."""
    weights = np.array([each.weight for each in problem.conditions])
    return weights / weights.sum()


def named(error: SynthesisError, problem: Problem, n: int) -> SynthesisError:
    """The error of one of several conditions, which it names."""
    if len(problem.conditions) == 1:
        return error
    label = problem.conditions[n].label
    name = f"conditions.{n}" + (f" ({label})" if label else "")
    return type(error)(f"{name}: {error}", f"conditions.{n}" + (f".{error.field}" if error.field else ""))


def _plain(problem: Problem, condition: Paths) -> Problem:
    """One condition as a problem of its own, without feedback."""
    return replace(problem, conditions=(replace(condition, feedback=None),))


def _has_unknown(problem: Problem) -> bool:
    return any(unknown_bands(each).any() for each in problem.conditions)


def _joined_prediction(
    problem: Problem,
    taps: Float32 | Complex64,
    run: Callable[[Sequence[Problem], Sequence[Any]], list[Prediction | SynthesisError]],
) -> Prediction | SynthesisError:
    """The prediction over all conditions, each in its closed loop, with that of each in `conditions`."""
    alone = []
    for each in problem.conditions:
        if each.feedback is not None:
            each = replace(each, secondary=closed_loop_secondary(each.secondary, each.feedback, taps))
        alone.append(_plain(problem, each))
    found = []
    for n, prediction in enumerate(run(alone, [taps] * len(alone))):
        if isinstance(prediction, SynthesisError):
            return named(prediction, problem, n)
        found.append(prediction)
    if len(problem.conditions) == 1:
        return found[0]
    over_all = _averaged(found, shares(problem))
    labels = [each.label for each in problem.conditions]
    return replace(over_all, conditions=tuple(map(ConditionPrediction, labels, found)))


def _averaged(found: Sequence[Any], weights: np.ndarray[Any, np.dtype[np.float64]]) -> Any:
    """Weighted mean of every number of some dataclasses of one type; of LARGEST, the largest."""
    made: dict[str, Any] = {}
    for each in fields(found[0]):
        values = [getattr(one, each.name) for one in found]
        if each.name in LARGEST:
            made[each.name] = max(values)
        elif isinstance(values[0], float):
            made[each.name] = float(np.dot(weights, values))
        elif isinstance(values[0], np.ndarray):
            made[each.name] = np.tensordot(weights, np.stack(values), 1).astype(values[0].dtype)
    if len({one.basis for one in found}) > 1:  # the weaker basis
        made["basis"] = "model"
    return replace(found[0], **made)

"""Designs and predictions of ears that are more than one pair of paths: several conditions, latency, feedback.

What these have beyond a plain ear needs no model, so it is done here once for all backends: a latency goes into the
paths, the prediction of several conditions is joined from each one's, and that of a closed loop is an ordinary one
with S / (1 + W F) for S. Only one filter for several conditions is each backend's own work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from synthesis.backends.base import (
    MAX_CONDITIONS,
    Complex64,
    Condition,
    Design,
    DesignInput,
    DesignOptions,
    Float32,
    Loop,
    Prediction,
    RefinementRecord,
)
from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.errors import InvalidOption, SynthesisError, answer_or_raise
from synthesis.feedback import closed_loop_secondary, judge_loop, loop_gain, with_margins, worst_loop
from synthesis.interruption import check_interruption
from synthesis.latency import with_latency
from synthesis.plausibility import SupportPrior
from synthesis.prediction import ConditionPrediction
from synthesis.unknown_bands import unknown_bands

Answer = TypeVar("Answer")
Kind = TypeVar("Kind", bound=Condition)
Filter = tuple[Float32, RefinementRecord, dict[str, float]]
"""Taps, their updates and the times of the stages."""

LARGEST = ("max_gain_db", "control_rms")
"""Fields of a prediction of which the largest over conditions is given instead of the mean."""


class ConditionsBackend:
    """Base class of the backends. It handles several conditions, latency and feedback; the derived class does the
    rest, for *plain* ears, which have none of these three.

    support: the model's; set by the backend. judges_plain: whether the derived class finds out by itself whether a
    plain ear resembles it. knows_unknown: whether it designs plain ears with unknown bands; if not, they go the way
    of several conditions.
    """

    support: SupportPrior | None = None
    judges_plain = False
    knows_unknown = True

    def design(self, inputs: Sequence[DesignInput], options: DesignOptions) -> list[Design | SynthesisError]:
        """As `Backend.design`."""
        return _each(
            inputs,
            lambda plain: self._design(self._judged_plain(plain), options),
            lambda n: self._design_joined(inputs[n], options),
            lambda ear: is_plain(ear) and (self.knows_unknown or not unknown_bands(ear).any()),
        )

    def predict(
        self, inputs: Sequence[DesignInput], taps: Sequence[Float32 | Complex64]
    ) -> list[Prediction | SynthesisError]:
        """As `Backend.predict`."""
        return self._predict_all(inputs, taps, self._predict)

    def evaluate(self, inputs: Sequence[DesignInput], taps: Sequence[Float32]) -> list[Prediction | SynthesisError]:
        """As `Backend.evaluate`."""
        return self._predict_all(inputs, taps, self._evaluate)

    def _judged_plain(self, inputs: Sequence[DesignInput]) -> Sequence[DesignInput]:
        return inputs if self.judges_plain else [self._judged(each) for each in inputs]

    def _judged(self, ear: DesignInput) -> DesignInput:
        """The ear with a judgement, before latency or loop change its paths, of each condition that needs one."""
        support = self.support
        if support is None:
            return ear

        def judged(condition: Kind) -> Kind:
            is_known = condition.coherence is not None or condition.uncertainty is not None
            if is_known or condition.resembles is not None or not _is_usable(condition):
                return condition
            return replace(condition, resembles=support.resembles(condition.primary, condition.secondary))

        return replace(judged(ear), others=tuple(map(judged, ear.others)))

    def _design(self, inputs: Sequence[DesignInput], options: DesignOptions) -> list[Design | SynthesisError]:
        """Of plain ears."""
        raise NotImplementedError

    def _joint_filter(self, ear: DesignInput, options: DesignOptions) -> Filter:
        """One filter for all conditions, whose feedback is not looked at; raises SynthesisError."""
        raise NotImplementedError

    def _predict(self, inputs: Sequence[DesignInput], taps: Sequence[Float32]) -> list[Prediction | SynthesisError]:
        """Of plain ears."""
        raise NotImplementedError

    def _evaluate(
        self, inputs: Sequence[DesignInput], taps: Sequence[Float32]
    ) -> list[Prediction | SynthesisError]:
        """Of plain ears."""
        raise NotImplementedError

    def _design_joined(self, ear: DesignInput, options: DesignOptions) -> Design | SynthesisError:
        try:
            ear = with_latency(self._judged(_checked(ear)))
            taps, record, times_ms = self._filter(ear, replace(options, with_wmmse=False))
            began = perf_counter()
            taps, loop = self._in_a_loop(ear, taps)
            prediction = answer_or_raise(_joined_prediction(ear, taps, self._predict))
            if options.leave_one_out and ear.others:
                prediction = self._with_those_left_out(ear, options, prediction)
        except SynthesisError as error:
            return error
        times_ms["predict"] = 1e3 * (perf_counter() - began)
        return Design(taps, record, prediction, times_ms, loop)

    def _filter(self, ear: DesignInput, options: DesignOptions) -> Filter:
        check_interruption()
        if ear.others or (not self.knows_unknown and unknown_bands(ear).any()):
            return self._joint_filter(ear, options)
        design = answer_or_raise(self._design([_plain(ear, ear)], options)[0])
        return design.taps, design.refinement, dict(design.times_ms)

    def _in_a_loop(self, ear: DesignInput, taps: Float32) -> tuple[Float32, Loop | None]:
        """The taps with the margins that are asked for, and what the loops are then."""
        feedbacks = [each.feedback for each in ear.conditions if each.feedback is not None]
        if not feedbacks:
            return taps, None
        kept = with_margins(taps, feedbacks, ear.min_gain_margin_db, ear.min_phase_margin_deg)
        loss_db = 0.0
        if kept is not taps:
            without = replace(ear, feedback=None, others=tuple(replace(each, feedback=None) for each in ear.others))
            before, after = (
                answer_or_raise(_joined_prediction(without, each, self._predict)) for each in (taps, kept)
            )
            loss_db = before.mean_noise_reduction_db - after.mean_noise_reduction_db
        return kept, worst_loop([judge_loop(loop_gain(kept, each)) for each in feedbacks], loss_db)

    def _with_those_left_out(self, ear: DesignInput, options: DesignOptions, whole: Prediction) -> Prediction:
        """The prediction of each condition beside that of a filter designed on the others."""
        conditions, found = ear.conditions, []
        for n, (condition, own) in enumerate(zip(conditions, whole.conditions, strict=True)):
            first, *others = (each for m, each in enumerate(conditions) if m != n)
            rest = replace(_plain(ear, first), others=tuple(others), feedback=first.feedback)
            taps, _ = self._in_a_loop(rest, self._filter(rest, options)[0])
            left_out = _joined_prediction(_alone(ear, condition), taps, self._predict)
            found.append(replace(own, left_out=answer_or_raise(left_out)))
        return replace(whole, conditions=tuple(found))

    def _predict_all(
        self,
        inputs: Sequence[DesignInput],
        taps: Sequence[Float32 | Complex64],
        run: Callable[[Sequence[DesignInput], Sequence[Any]], list[Prediction | SynthesisError]],
    ) -> list[Prediction | SynthesisError]:
        def joined(n: int) -> Prediction | SynthesisError:
            try:
                return _joined_prediction(with_latency(self._judged(_checked(inputs[n]))), taps[n], run)
            except SynthesisError as error:
                return error

        places = [n for n, ear in enumerate(inputs) if is_plain(ear)]
        return _each(inputs, lambda plain: run(self._judged_plain(plain), [taps[n] for n in places]), joined)


def is_plain(ear: DesignInput) -> bool:
    """Whether the ear is one pair of paths and nothing more."""
    return not ear.others and ear.feedback is None and ear.latency_samples == 0


def _each(
    inputs: Sequence[DesignInput],
    run_plain: Callable[[list[DesignInput]], list[Answer | SynthesisError]],
    run_joined: Callable[[int], Answer | SynthesisError],
    belongs: Callable[[DesignInput], bool] = is_plain,
) -> list[Answer | SynthesisError]:
    """The answers in order: ears that `belongs` to a batch as one, each other one by itself."""
    plain = {n: ear for n, ear in enumerate(inputs) if belongs(ear)}
    found = dict(zip(plain, run_plain(list(plain.values())) if plain else [], strict=True))
    return [found[n] if n in found else run_joined(n) for n in range(len(inputs))]


def _checked(ear: DesignInput) -> DesignInput:
    """The ear; InvalidOption for weights or a number of conditions that make no design."""
    if len(ear.conditions) > MAX_CONDITIONS:
        found = f"conditions: there are {len(ear.conditions)}; give 1 to {MAX_CONDITIONS}"
        raise InvalidOption(found, "conditions")
    for n, each in enumerate(ear.conditions):
        if not 0 < each.weight < np.inf:
            field = f"conditions.{n}.weight"
            raise InvalidOption(f"{field}: {each.weight} is not a number above 0", field)
    return ear


def _is_usable(condition: Condition) -> bool:
    """Whether both paths have a shape and values that a filter can be designed for."""
    paths = condition.primary, condition.secondary
    shapes = ((N_BINS,) if np.iscomplexobj(each) else (min(max(each.size, 1), DESIGN_N_FFT),) for each in paths)
    return all(
        each.shape == shape and np.isfinite(each).all() and each.any()
        for each, shape in zip(paths, shapes, strict=True)
    )


def shares(ear: DesignInput) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Weights of the conditions, of sum one."""
    weights = np.array([each.weight for each in ear.conditions])
    return weights / weights.sum()


def named(error: SynthesisError, ear: DesignInput, n: int) -> SynthesisError:
    """The error of one of several conditions, which it names."""
    if not ear.others:
        return error
    label = ear.conditions[n].label
    name = f"conditions.{n}" + (f" ({label})" if label else "")
    return type(error)(f"{name}: {error}", f"conditions.{n}" + (f".{error.field}" if error.field else ""))


def _plain(ear: DesignInput, condition: Condition) -> DesignInput:
    """One condition as an ear of its own, without feedback."""
    own = {each.name: getattr(condition, each.name) for each in fields(Condition)} | {"feedback": None}
    return replace(ear, **own, others=())


def _alone(ear: DesignInput, condition: Condition) -> DesignInput:
    return replace(_plain(ear, condition), feedback=condition.feedback)


def _joined_prediction(
    ear: DesignInput,
    taps: Float32 | Complex64,
    run: Callable[[Sequence[DesignInput], Sequence[Any]], list[Prediction | SynthesisError]],
) -> Prediction | SynthesisError:
    """The prediction over all conditions, each in its closed loop, with that of each in `conditions`."""
    alone = []
    for each in ear.conditions:
        plain = _plain(ear, each)
        if each.feedback is not None:
            plain = replace(plain, secondary=closed_loop_secondary(each.secondary, each.feedback, taps))
        alone.append(plain)
    found = []
    for n, prediction in enumerate(run(alone, [taps] * len(alone))):
        if isinstance(prediction, SynthesisError):
            return named(prediction, ear, n)
        found.append(prediction)
    if not ear.others:
        return found[0]
    over_all = _averaged(found, shares(ear))
    labels = [each.label for each in ear.conditions]
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

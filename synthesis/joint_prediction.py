"""Predictions for whole problems: all conditions, their closed loops, and what the ends of their responses show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from synthesis.bands import NR_BANDS, WIDE_BANDS
from synthesis.errors import SynthesisError, answer_or_raise, map_or_error
from synthesis.loop import closed_loop_secondary
from synthesis.predict import mean_prediction
from synthesis.types import Backend, Complex64, Float32, Prediction, Problem


def predict_joint(posed: Problem, taps: Float32, backend: Backend) -> Prediction:
    """Predict one filter's effect in all conditions of a posed problem."""
    found = answer_or_raise(predict_batch([posed], [taps], backend)[0])
    return with_responses(posed, found, taps, backend)


def predict_batch(
    posed: Sequence[Problem | SynthesisError],
    taps: Sequence[Float32 | Complex64],
    backend: Backend,
    is_true: bool = False,
) -> list[Prediction | SynthesisError]:
    """Predict the effect of filters as the paths were sent: with S / (1 + W F) for S, theory (19)."""
    single, filters = [], []
    for problem, control_filter in zip(posed, taps, strict=True):
        if isinstance(problem, SynthesisError):
            continue
        for paths in problem.conditions:
            if paths.feedback is not None:
                secondary = closed_loop_secondary(paths.secondary, paths.feedback, control_filter)
                paths = replace(paths, secondary=secondary, feedback=None)
            single.append(Problem((paths,), problem.reference_psd))
            filters.append(control_filter)
    found: list[Prediction | SynthesisError] = []
    for part in batches(len(single), backend):
        found += backend.predict(single[part], filters[part], is_true)
    in_order = iter(found)
    parts = [[next(in_order) for _ in item.conditions] if isinstance(item, Problem) else [] for item in posed]
    return map_or_error(_joined, posed, parts)


def with_responses(
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
        again = answer_or_raise(predict_batch([replace(posed, conditions=conditions)], [taps], backend)[0])
        prediction = replace(again, nominal_noise_reduction_db=prediction.nominal_noise_reduction_db)
    return replace(prediction, basis="response", interval_db=max(interval_db for _, interval_db in known))


def with_unknown(posed: Problem, prediction: Prediction) -> Prediction:
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


def batches(n_items: int, backend: Backend) -> Iterator[slice]:
    """Yield slices as large as the backend takes."""
    for n in range(0, n_items, backend.max_batch):
        yield slice(n, n + backend.max_batch)


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

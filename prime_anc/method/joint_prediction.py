"""Predictions and J of whole problems: all conditions, their closed loops, their unknown bands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from prime_anc.method.bands import NR_BANDS, WIDE_BANDS, columns
from prime_anc.method.controller import predict_both
from prime_anc.method.errors import SynthesisError, answer_or_raise
from prime_anc.method.loop import closed_loop_secondary
from prime_anc.method.methods import spectrum
from prime_anc.method.objective import objective
from prime_anc.method.predict import band_sums, mean_prediction
from prime_anc.method.profiles import SILENCE, RefinementProfile
from prime_anc.method.types import (
    NOT_JUDGED,
    Backend,
    Complex64,
    Float32,
    Paths,
    Prediction,
    Problem,
    weighted,
    weights_of,
)
from prime_anc.method.unknown import UNKNOWN


def predict_joint(posed: Problem, taps: Float32, backend: Backend) -> Prediction:
    """Predict one filter's effect in all conditions of a posed problem."""
    return answer_or_raise(predict_batch([posed], [taps], backend)[0])


def predict_batch(
    posed: Sequence[Problem | SynthesisError],
    taps: Sequence[Float32 | Complex64],
    backend: Backend,
) -> list[Prediction | SynthesisError]:
    """Predict the effect of filters as the paths were sent: with S / (1 + W F) for S, theory (19)."""
    single, filters = [], []
    for problem, control_filter in zip(posed, taps, strict=True):
        if isinstance(problem, SynthesisError):
            continue
        for paths in problem.conditions:
            single.append(Problem((_closed(paths, control_filter),), problem.reference_psd))
            filters.append(control_filter)
    found: list[Prediction | SynthesisError] = []
    for n in range(0, len(single), backend.max_batch):
        part = slice(n, n + backend.max_batch)
        found += backend.predict(single[part], filters[part])
    in_order = iter(found)
    parts = [[next(in_order) for _ in item.conditions] if isinstance(item, Problem) else [] for item in posed]
    return [
        problem if isinstance(problem, SynthesisError) else _joined(problem, of_conditions, control_filter)
        for problem, of_conditions, control_filter in zip(posed, parts, taps, strict=True)
    ]


def joint_objective(posed: Problem, taps: Float32, profile: RefinementProfile, reference_psd: Float32) -> float:
    """Evaluate J of one filter on the design grid, as its options have it, without the penalty on |W|.

    Parameters
    ----------
    posed
        Posed problem. Its feedback counts by its closed loops, its ceiling not at all.
    taps
        Filter, [2048].
    profile
        J before the problem's options.
    reference_psd
        Mean square of the reference per bin, [16385].
    """
    closed = [_closed(paths, taps) for paths in posed.conditions]
    primary, secondary = (
        np.stack([spectrum(getattr(paths, name)) for paths in closed]).astype(np.complex128)
        for name in ("primary", "secondary")
    )
    filters = np.broadcast_to(taps.astype(np.float64), (len(closed), len(taps)))
    sums = band_sums(primary, secondary, filters, reference_psd.astype(np.float64))
    disturbance, residual, control = np.split(sums[:, : 3 * len(WIDE_BANDS)], 3, -1)
    silence = SILENCE * disturbance.sum(-1, keepdims=True)
    uncertainty = np.stack([(paths.known or NOT_JUDGED).assumed for paths in closed])
    unknown = uncertainty[:, 0] * disturbance + silence
    log_ratio = np.log((residual + uncertainty[:, 1] * control + unknown) / (disturbance + unknown))
    chosen = columns(profile.risk_bands)
    value, _ = objective(log_ratio[:, chosen], posed.shares, weighted(profile, weights_of(posed)))
    return float(value)


def with_unknown(posed: Problem, prediction: Prediction) -> Prediction:
    """Add the bands that are unknown in a condition, and those that the prediction's means count."""
    known = [paths.known or NOT_JUDGED for paths in posed.conditions]
    is_unknown = np.any([(item.assumed > UNKNOWN).any(0) for item in known], axis=0)
    silent = [item.silent for item in known if item.silent is not None]
    found = replace(prediction, unknown_bands=tuple(np.array(WIDE_BANDS)[is_unknown].tolist()))
    if len(silent) < len(known):
        return found
    is_silent = dict(zip(WIDE_BANDS, np.all(silent, axis=0).tolist(), strict=True))
    return replace(found, counted_bands=tuple(n for n in NR_BANDS if not is_silent[n]) or NR_BANDS)


def _closed(paths: Paths, taps: Float32 | Complex64) -> Paths:
    """Return paths without feedback, with the secondary path of the closed loop."""
    if paths.feedback is None:
        return paths
    secondary = closed_loop_secondary(paths.secondary, paths.feedback, taps)
    return replace(paths, secondary=secondary, feedback=None)


def _joined(
    problem: Problem,
    found: Sequence[Prediction | SynthesisError],
    taps: Float32 | Complex64,
) -> Prediction | SynthesisError:
    """Add the controller to the conditions' predictions, and join them; return a condition's error."""
    predictions = []
    for n, item in enumerate(found):
        if isinstance(item, SynthesisError):
            return problem.named(item, n)
        predictions.append(item)
    if problem.controller is not None:
        predictions = [predict_both(item, problem, n, taps) for n, item in enumerate(predictions)]
    if len(predictions) == 1:
        return predictions[0]
    return mean_prediction(predictions, problem.shares, [condition.label for condition in problem.conditions])

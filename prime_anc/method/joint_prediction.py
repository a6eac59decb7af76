"""Prediction of a filter's effect on a posed problem: all conditions, their closed loops, the controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prime_anc.core import Core
from prime_anc.method.bands import NR_BANDS, WIDE_BANDS
from prime_anc.method.errors import SynthesisError
from prime_anc.method.methods import Path, spectrum
from prime_anc.method.posing import Posed
from prime_anc.method.predict import mean_prediction, predict_beside
from prime_anc.method.types import Known, Prediction
from prime_anc.method.unknown import UNKNOWN


def predict_joint(posed: Posed, taps: Path, core: Core) -> Prediction:
    """Predict one filter's effect in all conditions, with S / (1 + W F) for S: theory (19), (21).

    taps: [2048], or a response on the design grid.

    Raises
    ------
    NonFiniteFilter
        A figure is not finite; names the condition.
    """
    found, problem = [], posed.problem
    response: Any = spectrum(taps) if posed.inner or posed.has_feedback else None
    for n, known in enumerate(posed.known):
        secondary = posed.secondary_with(n, response)
        try:
            alone = core.predict(posed.primary[n], secondary, posed.reference_psd, known, taps)
        except SynthesisError as error:
            raise problem.named(error, n) from None
        found.append(predict_beside(alone, posed, n, response) if posed.inner else alone)
    if len(found) > 1:
        found = [mean_prediction(found, problem.shares, [condition.label for condition in problem.conditions])]
    return _with_unknown(posed.known, found[0])


def _with_unknown(known: Sequence[Known], prediction: Prediction) -> Prediction:
    """Add the bands that are unknown in a condition, and those that the prediction's means count."""
    is_unknown = np.any([(item.assumed > UNKNOWN).any(0) for item in known], axis=0)
    silent = [item.silent for item in known if item.silent is not None]
    found = replace(prediction, unknown_bands=tuple(np.array(WIDE_BANDS)[is_unknown].tolist()))
    if len(silent) < len(known):
        return found
    is_silent = dict(zip(WIDE_BANDS, np.all(silent, axis=0).tolist(), strict=True))
    return replace(found, counted_bands=tuple(n for n in NR_BANDS if not is_silent[n]) or NR_BANDS)

"""Predictions, loops and times in answers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from prime_anc.answers import (
    ConditionAnswer,
    LevelReduction,
    LoopAnswer,
    OutOfBand,
    PredictionAnswer,
    Sensitivity,
    Timings,
)
from prime_anc.method.bands import AMP_BANDS, BAND_CENTRE_HZ, columns, nominal_hz
from prime_anc.method.conventions import CORE_STAGES, STAGES
from prime_anc.method.types import ConditionPrediction, Loop, Prediction

_CENTRES_HZ = np.array(BAND_CENTRE_HZ)
# Effect per band below which a filter does nothing.
NO_EFFECT_DB = 0.01
# Peaks of a loudspeaker signal over its RMS: noise exceeds 12 dB in one of 16000 samples.
CREST_DB = 12.0
# Gain of a filter that is zero.
LOWEST_GAIN_DB = -200.0


def timings(stages_ms: Mapping[str, float], **others_ms: float) -> Timings:
    """Return the times of an answer.

    Parameters
    ----------
    stages_ms
        Stages that were timed.
    others_ms
        Further times, such as `total`.
    """
    stages: dict[str, float | None] = {stage: stages_ms.get(stage) for stage in STAGES}
    core = [stages_ms[stage] for stage in CORE_STAGES if stage in stages_ms]
    return Timings(**stages | {"core": sum(core) if core else None, "total": None} | others_ms)


def loop_answer(loop: Loop | None) -> LoopAnswer | None:
    """Return the loop of an answer, if there is one."""
    return None if loop is None else LoopAnswer(**asdict(loop))


def prediction_answer(prediction: Prediction, has_level: bool) -> PredictionAnswer:
    """Return the `prediction` of an answer; has_level: whether the reference noise was sent."""
    conditions, full_scale_db = prediction.conditions, None
    of_loop: dict[str, Any] = {}
    if has_level and prediction.control_rms > 0:
        full_scale_db = -CREST_DB - 20 * math.log10(prediction.control_rms)
    if prediction.feedback_noise_reduction_db is not None:
        names = ("feedforward_noise_reduction_db", "feedback_noise_reduction_db", "playback_change_db")
        of_loop = {name: getattr(prediction, name)[columns(AMP_BANDS)] for name in names}
    return PredictionAnswer(
        basis=prediction.basis,
        band_centre_hz=_CENTRES_HZ,
        noise_reduction_db=prediction.noise_reduction_db,
        mean_noise_reduction_db=prediction.mean_noise_reduction_db,
        # A filter without effect has no uncertain effect.
        interval_db=prediction.interval_db if np.abs(prediction.band_reduction_db).max() > NO_EFFECT_DB else 0.0,
        amplification_db=prediction.amplification_db,
        wide_amplification_db=prediction.wide_amplification_db,
        out_of_band_db=OutOfBand(low=prediction.out_of_band_low_db, high=prediction.out_of_band_high_db),
        level_reduction_db=LevelReduction(
            unweighted=prediction.level_reduction_db, a_weighted=prediction.a_weighted_level_reduction_db
        ),
        sensitivity_db=Sensitivity(
            gain_1_db=prediction.gain_sensitivity_db, delay_1_sample=prediction.delay_sensitivity_db
        ),
        max_gain_db=max(prediction.max_gain_db, LOWEST_GAIN_DB),
        control_rms=prediction.control_rms,
        full_scale_db=full_scale_db,
        unknown_bands_hz=[nominal_hz(band) for band in prediction.unknown_bands],
        louder_bands_hz=[nominal_hz(band) for band in prediction.louder_bands],
        counted_bands_hz=[nominal_hz(band) for band in prediction.counted_bands],
        **of_loop,
        worst_noise_reduction_db=min(
            (item.prediction.mean_noise_reduction_db for item in conditions), default=None
        ),
        conditions=[_condition_answer(item) for item in conditions] or None,
    )


def _condition_answer(condition: ConditionPrediction) -> ConditionAnswer:
    """Return one of `prediction.conditions`."""
    prediction, left_out = condition.prediction, condition.left_out
    return ConditionAnswer(
        label=condition.label,
        mean_noise_reduction_db=prediction.mean_noise_reduction_db,
        amplification_db=prediction.amplification_db,
        noise_reduction_db=prediction.noise_reduction_db,
        left_out_noise_reduction_db=None if left_out is None else left_out.mean_noise_reduction_db,
    )

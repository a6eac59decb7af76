"""JSON answers: negotiation of media types, and the engine's results as JSON, with their times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np
import orjson

from model_store.store import ModelVersion
from prime_anc.answers import (
    ConditionAnswer,
    LevelReduction,
    ModelReference,
    OutOfBand,
    PredictionAnswer,
    Sensitivity,
    document,
)
from prime_anc.method.bands import AMP_BANDS, BAND_CENTRE_HZ, columns, nominal_hz
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.errors import InvalidPaths
from prime_anc.method.gain_curve import GainCurve
from prime_anc.method.types import ConditionPrediction, Design, Float32, Loop, Prediction
from prime_anc.options import DEFAULT_MAX_GAIN_DB, Sign
from service.api.front import JSON, Times, Visit
from service.errors import HttpProblem

_CENTRES_HZ = np.array(BAND_CENTRE_HZ)
# Effect per band below which a filter does nothing.
NO_EFFECT_DB = 0.01
# Peaks of a loudspeaker signal over its RMS: noise exceeds 12 dB in one of 16000 samples.
CREST_DB = 12.0
# Gain of a filter that is zero.
LOWEST_GAIN_DB = -200.0

Warnings = Sequence[Mapping[str, str]]


@dataclass(frozen=True, eq=False)
class Answered:
    """A design with its warnings."""

    model: ModelVersion
    design: Design
    sign: Sign
    # Taps with the sign of the request.
    taps: Float32
    warnings: Warnings
    # Latency, ceiling and limit of the request.
    latency_samples: float
    max_gain_db: float | GainCurve
    max_louder_db: float | None
    # Whether the request says what noise, in units of full scale.
    has_level: bool


@lru_cache(64)  # clients repeat the same values
def accepted(accept: str, offered: tuple[str, ...] = (JSON,)) -> str:
    """Choose the media type of an answer.

    Parameters
    ----------
    accept
        Value of `Accept`.
    offered
        Media types, the preferred one first.

    Returns
    -------
    str
        The first offered type of the highest quality.

    Raises
    ------
    HttpProblem
        `not-acceptable`.
    """
    if not accept.strip():
        return offered[0]
    qualities = {media_type: _quality(accept, media_type) for media_type in offered}
    best = max(offered, key=lambda media_type: qualities[media_type])
    if qualities[best] <= 0:
        raise HttpProblem(
            "not-acceptable",
            f"Accept: {accept[:80]!a} excludes the available media types; accept {' or '.join(offered)}",
        )
    return best


def _quality(accept: str, media_type: str) -> float:
    """Return the quality (0 to 1) of a media type in an Accept header; the most specific range applies."""
    ranges = (media_type, media_type.split("/")[0] + "/*", "*/*")
    found: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = (item.strip().lower() for item in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        found[name] = max(found.get(name, 0.0), quality)
    return next((found[item] for item in ranges if item in found), 0.0)


def design_document(answered: Answered) -> dict[str, Any]:
    """Return the JSON answer to a design, without its times; taps are exact as float32."""
    design = answered.design
    found: dict[str, Any] = {  # the times are appended to the encoded rest
        "fir": answered.taps,
        "sample_rate": SAMPLE_RATE_HZ,
        "sign": answered.sign,
        "method": design.method,
        "model": model_document(answered.model),
        "refinement": {"requested": design.n_requested, **asdict(design.refinement)},
        "prediction": document(prediction_answer(design.prediction, answered.has_level)),
        "warnings": answered.warnings,
    }
    if answered.latency_samples:
        found["latency_samples"] = answered.latency_samples
    if isinstance(answered.max_gain_db, float) and answered.max_gain_db != DEFAULT_MAX_GAIN_DB:
        found["max_gain_db"] = answered.max_gain_db
    if answered.max_louder_db is not None:
        found["max_louder_db"] = answered.max_louder_db
    return found | loop_document(design.loop)


def loop_document(loop: Loop | None) -> dict[str, Any]:
    """Return the `loop` of an answer, if there is one."""
    return {} if loop is None else {"loop": asdict(loop)}


def model_document(version: ModelVersion) -> dict[str, Any]:
    """Return the model of an answer."""
    found: dict[str, Any] = document(
        ModelReference(name=version.name, version=version.version, digest=version.digest)
    )
    return found


def prediction_answer(prediction: Prediction, has_level: bool) -> PredictionAnswer:
    """Return the `prediction` of an answer; has_level: whether the reference noise was sent."""
    conditions, full_scale_db, of_loop = prediction.conditions, None, {}
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


def dumped(answer: Any) -> bytes:
    """Encode an answer as JSON.

    Raises
    ------
    InvalidPaths
        A number is not finite, which JSON could only express as null.
    """
    body = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" in body and not _is_finite(answer):
        raise InvalidPaths(
            "the figures that follow from these numbers are not finite; send what was measured, in its own unit"
        )
    return body


def _is_finite(value: Any) -> bool:
    """Return whether all numbers in nested dictionaries, lists and arrays are finite."""
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float | np.floating | np.ndarray) or bool(np.isfinite(value).all())


def with_times(answer: Any, engine_ms: Mapping[str, float], visit: Visit) -> tuple[bytes, Times]:
    """Encode, then append the times, which include that of the encoding."""
    began = perf_counter()
    body = dumped(answer)
    times = visit.spent_ms(engine_ms, began)
    return joined(body, times), times


def joined(body: bytes, times: Times) -> bytes:
    """Append `timings_ms` to a JSON object as its last member."""
    return body[:-1] + b',"timings_ms":' + orjson.dumps(times) + b"}"

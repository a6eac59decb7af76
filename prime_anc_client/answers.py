"""What the service answers: plain values, and how each is read from JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc_client.calibration import Sign
from prime_anc_client.errors import Refused, from_document

_N_TAPS = 2048

Json = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class PredictionResult:
    """What a filter does, by band and as a whole, dB where no other unit is said.

    band_centre_hz: nominal, one-third octaves from 50 Hz to 8 kHz, float32 [23]; noise_reduction_db: in each,
    positive is quieter. mean_noise_reduction_db: over 50 Hz to 5 kHz; amplification_db: mean over bands of how much
    louder they get. interval_db: half-width of an interval about that mean which holds the true one in at least
    80 % of cases. gain_sensitivity_db, delay_sensitivity_db: what the mean loses if the secondary path is off by
    1 dB, or by one sample. max_gain_db: largest |W|. control_rms: of the loudspeaker signal, in the reference's
    unit. These five are None where the service does not send them. unknown_bands_hz: nominal centres of the bands
    of which the measurement says nothing.
    """

    band_centre_hz: NDArray[np.float32]
    noise_reduction_db: NDArray[np.float32]
    mean_noise_reduction_db: float
    amplification_db: float
    interval_db: float | None = None
    gain_sensitivity_db: float | None = None
    delay_sensitivity_db: float | None = None
    max_gain_db: float | None = None
    control_rms: float | None = None
    unknown_bands_hz: tuple[float, ...] = ()


@dataclass(frozen=True)
class ConditionEffect:
    """What a filter is predicted to do in one of several conditions, dB. left_out_noise_reduction_db: what one
    designed on the others does there, with `leave_one_out`."""

    label: str
    noise_reduction_db: float
    amplification_db: float
    left_out_noise_reduction_db: float | None = None


@dataclass(frozen=True)
class LoopResult:
    """The loop through the feedback path; of several conditions, the worst of each figure. loss_db: mean noise
    reduction that its margins cost."""

    stable: bool
    gain_margin_db: float
    phase_margin_deg: float
    peak_db: float
    peak_hz: float
    loss_db: float


@dataclass(frozen=True, eq=False)
class DesignResult:
    """A filter and what the service predicts of it.

    taps: float32 [2048], causal, 48 kHz, read-only, in the sign asked for. model_digest: of the model that made it.
    n_applied: Gauss-Newton updates. warnings: codes. timings_ms: by stage. conditions: of
    `Client.refine_conditions`; the prediction holds weighted means over the conditions then. loop: with a feedback
    path.
    """

    taps: NDArray[np.float32]
    sign: Sign
    model_digest: str
    n_applied: int
    prediction: PredictionResult
    warnings: tuple[str, ...]
    timings_ms: dict[str, float]
    conditions: tuple[ConditionEffect, ...] = ()
    loop: LoopResult | None = None

    @property
    def noise_reduction_db(self) -> float:
        """Predicted mean, 50 Hz to 5 kHz."""
        return self.prediction.mean_noise_reduction_db

    @property
    def amplification_db(self) -> float:
        """Predicted mean over bands of how much louder they get."""
        return self.prediction.amplification_db


@dataclass(frozen=True, eq=False)
class EvaluationResult:
    """What a given filter is predicted to do. warnings: codes. loop: as of a design."""

    prediction: PredictionResult
    warnings: tuple[str, ...]
    loop: LoopResult | None = None


@dataclass(frozen=True, eq=False)
class Realisation:
    """A filter as hardware runs it.

    coefficients: `form` (`fir` or `sos`) with `taps`, float64 [n], or `sos`, float64 [n, 6] in rows b0, b1, b2, 1,
    a1, a2; `sample_rate`, `denominator`; in fixed point also `number_format`, `words`, `shift`, `n_saturated` and
    `scaling`, as docs/http-api.md says. prediction, warnings, loop: of this filter; loss_db: mean noise reduction that
    it loses.
    """

    coefficients: dict[str, Any]
    prediction: PredictionResult
    loss_db: float
    warnings: tuple[str, ...] = ()
    loop: LoopResult | None = None


def read_prediction(found: Json) -> PredictionResult:
    """From the `prediction` of an answer."""
    sensitivity = found.get("sensitivity_db", {})
    return PredictionResult(
        band_centre_hz=_array(found["band_centre_hz"], np.float32),
        noise_reduction_db=_array(found["noise_reduction_db"], np.float32),
        mean_noise_reduction_db=found["mean_noise_reduction_db"],
        amplification_db=found["amplification_db"],
        interval_db=found.get("interval_db"),
        gain_sensitivity_db=sensitivity.get("gain_1_db"),
        delay_sensitivity_db=sensitivity.get("delay_1_sample"),
        max_gain_db=found.get("max_gain_db"),
        control_rms=found.get("control_rms"),
        unknown_bands_hz=tuple(found.get("unknown_bands_hz", ())),
    )


def read_design(found: Json) -> DesignResult:
    """From an answer of `/synthesize` or `/refine`."""
    return DesignResult(
        taps=_taps(found["fir"]),
        sign=found["sign"],
        model_digest=found["model"]["digest"],
        n_applied=found["refinement"]["applied"],
        prediction=read_prediction(found["prediction"]),
        warnings=_codes(found["warnings"]),
        timings_ms={name: spent for name, spent in found["timings_ms"].items() if spent is not None},
        conditions=tuple(map(_read_condition, found["prediction"].get("conditions", ()))),
        loop=_read_loop(found),
    )


def read_items(found: Json) -> list[DesignResult | Refused]:
    """From an answer to several requests, in order."""
    return [read_design(item) if "fir" in item else _read_problem(item) for item in found["items"]]


def read_evaluation(found: Json) -> EvaluationResult:
    """From an answer of `/evaluate`."""
    return EvaluationResult(read_prediction(found["prediction"]), _codes(found["warnings"]), _read_loop(found))


def read_realisation(found: Json) -> Realisation:
    """From an answer of `/export`."""
    coefficients = dict(found["coefficients"])
    for name in ("taps", "sos"):
        if name in coefficients:
            coefficients[name] = _array(coefficients[name], np.float64)
    prediction, warnings = read_prediction(found["prediction"]), _codes(found["warnings"])
    return Realisation(coefficients, prediction, found["loss_db"], warnings, _read_loop(found))


def _read_condition(found: Json) -> ConditionEffect:
    return ConditionEffect(
        found["label"],
        found["mean_noise_reduction_db"],
        found["amplification_db"],
        found.get("left_out_noise_reduction_db"),
    )


def _read_loop(found: Json) -> LoopResult | None:
    return (
        LoopResult(**{name: found["loop"][name] for name in LoopResult.__dataclass_fields__})
        if "loop" in found
        else None
    )


def _read_problem(found: Json) -> Refused:
    """A refused item; `primary.impulse_response` in JSON is the argument `primary`."""
    problem = from_document(found["status"], dict(found))
    problem.field = problem.field and problem.field.split(".")[0]
    return problem


def _codes(warnings: Sequence[Json]) -> tuple[str, ...]:
    return tuple(warning["code"] for warning in warnings)


def _array(values: object, dtype: type) -> NDArray[Any]:
    return np.array(values, dtype)


def _taps(values: object) -> NDArray[np.float32]:
    """The taps; ValueError unless they are 2048 finite numbers."""
    taps: NDArray[np.float32] = _array(values, np.float32)
    if taps.shape != (_N_TAPS,) or not np.isfinite(taps).all():
        raise ValueError(f"fir: {list(taps.shape)} numbers are not {_N_TAPS} finite ones")
    taps.flags.writeable = False
    return taps

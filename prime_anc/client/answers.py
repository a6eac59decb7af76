"""Answers of the service as plain values, and their readers from JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.client.calibration import Sign

_N_TAPS = 2048
_PER_BAND = (
    *("band_centre_hz", "noise_reduction_db"),
    *("feedforward_noise_reduction_db", "feedback_noise_reduction_db", "playback_change_db"),
)

Json = Mapping[str, Any]


# A controller that runs: as `Client.hybrid` returns it, or the name of a published one.
Running = Mapping[str, Any] | str


class WarningCode(str):
    """A stable code, such as `ceiling_binds`, with its fault and remedy in `detail`."""

    detail: str


@dataclass(frozen=True, eq=False)
class PredictionResult:
    """Predicted effect of a filter; fields that may be None are those the service may omit."""

    # Nominal centres of one-third octaves from 50 Hz to 8 kHz, float32 [23].
    band_centre_hz: NDArray[np.float32]
    # Per band, float32 [23]; positive is quieter.
    noise_reduction_db: NDArray[np.float32]
    # Mean over 50 Hz to 5 kHz.
    mean_noise_reduction_db: float
    # Mean over the bands of their increase in level.
    amplification_db: float
    # Half-width of an interval about the mean that holds the true one nine times in ten.
    interval_db: float | None = None
    # Loss of the mean if the secondary path is off by 1 dB.
    gain_sensitivity_db: float | None = None
    # Loss of the mean if the secondary path is off by one sample.
    delay_sensitivity_db: float | None = None
    # Largest |W|.
    max_gain_db: float | None = None
    # RMS of the loudspeaker signal, in the reference's unit.
    control_rms: float | None = None
    # By how much louder the sent noise may be until the loudspeaker's peaks, 12 dB above its RMS, are full scale.
    full_scale_db: float | None = None
    # Nominal centres of the bands without measured data.
    unknown_bands_hz: tuple[float, ...] = ()
    # Of those from 20 Hz to 20 kHz that become louder, or may.
    louder_bands_hz: tuple[float, ...] = ()
    # Of those that the mean noise reduction counts.
    counted_bands_hz: tuple[float, ...] = ()
    # With a controller, per band, float32 [23]: shares of filter and controller, and the change of played music.
    feedforward_noise_reduction_db: NDArray[np.float32] | None = None
    feedback_noise_reduction_db: NDArray[np.float32] | None = None
    playback_change_db: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class ConditionEffect:
    """Predicted effect of a filter in one of several conditions."""

    label: str
    noise_reduction_db: float
    amplification_db: float
    # Effect of a filter designed on the other conditions, with `leave_one_out`.
    left_out_noise_reduction_db: float | None = None


@dataclass(frozen=True)
class LoopResult:
    """Loop through the feedback path; over several conditions, the worst value of each figure."""

    stable: bool
    gain_margin_db: float
    phase_margin_deg: float
    peak_db: float
    peak_hz: float
    # Largest 1 / |1 + L|, by which the loop amplifies, and its frequency.
    max_sensitivity_db: float
    nearest_hz: float
    # Mean noise reduction that the loop's margins cost.
    loss_db: float


@dataclass(frozen=True, eq=False)
class DesignResult:
    """A filter and its prediction."""

    # Causal taps at 48 kHz, float32 [2048], read-only, in the requested sign.
    taps: NDArray[np.float32]
    # Sign of the signal chain.
    sign: Sign
    # Digest of the model.
    model_digest: str
    # Number of Gauss-Newton updates.
    n_applied: int
    # Prediction; weighted means over the conditions, if several.
    prediction: PredictionResult
    warnings: tuple[WarningCode, ...]
    # Time per stage.
    timings_ms: dict[str, float]
    # Effect per condition, from `Client.refine_conditions`.
    conditions: tuple[ConditionEffect, ...] = ()
    # Loop, with a feedback path or a controller.
    loop: LoopResult | None = None
    # Controller beside the filter, of `Client.hybrid` or of the request, as requests take it.
    controller: Running | None = None
    # Loops of all plants by label, of `Client.hybrid`.
    plants: Mapping[str, LoopResult] = field(default_factory=dict)

    @property
    def noise_reduction_db(self) -> float:
        """Return the predicted mean from 50 Hz to 5 kHz."""
        return self.prediction.mean_noise_reduction_db

    @property
    def amplification_db(self) -> float:
        """Return the predicted mean over the bands of their increase in level."""
        return self.prediction.amplification_db


@dataclass(frozen=True, eq=False)
class EvaluationResult:
    """Predicted effect of a given filter."""

    prediction: PredictionResult
    warnings: tuple[WarningCode, ...]
    # As in a design.
    loop: LoopResult | None = None


@dataclass(frozen=True, eq=False)
class Realisation:
    """A filter as hardware runs it."""

    # As in docs/http-api.md: `form` (`fir` or `sos`) with `taps`, float64 [n], or `sos`, float64 [n, 6].
    coefficients: dict[str, Any]
    # Prediction of this filter.
    prediction: PredictionResult
    # Mean noise reduction that it loses.
    loss_db: float
    warnings: tuple[WarningCode, ...] = ()
    # Loop of this filter.
    loop: LoopResult | None = None
    # Sign of the signal chain.
    sign: Sign = "minus"
    # Controller of the request.
    controller: Running | None = None

    @property
    def noise_reduction_db(self) -> float:
        """Return the predicted mean from 50 Hz to 5 kHz."""
        return self.prediction.mean_noise_reduction_db


def read_prediction(found: Json) -> PredictionResult:
    """Read the `prediction` of an answer."""
    same = {name: found[name] for name in PredictionResult.__dataclass_fields__ if name in found}
    same |= {name: np.array(same[name], np.float32) for name in _PER_BAND if name in same}
    same |= {name: tuple(value) for name, value in same.items() if isinstance(value, list)}
    loss = found.get("sensitivity_db", {})
    return PredictionResult(
        **same, gain_sensitivity_db=loss.get("gain_1_db"), delay_sensitivity_db=loss.get("delay_1_sample")
    )


def read_design(found: Json) -> DesignResult:
    """Read an answer of `/synthesize` or `/refine`."""
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
        controller=found.get("controller"),
        plants={item["label"]: _loop_of(item) for item in found.get("loop", {}).get("conditions", ())},
    )


def read_evaluation(found: Json) -> EvaluationResult:
    """Read an answer of `/evaluate`."""
    return EvaluationResult(read_prediction(found["prediction"]), _codes(found["warnings"]), _read_loop(found))


def read_realisation(found: Json) -> Realisation:
    """Read an answer of `/export`."""
    coefficients = dict(found["coefficients"])
    for name in ("taps", "sos"):
        if name in coefficients:
            coefficients[name] = np.array(coefficients[name], np.float64)
    prediction, warnings = read_prediction(found["prediction"]), _codes(found["warnings"])
    return Realisation(coefficients, prediction, found["loss_db"], warnings, _read_loop(found), found["sign"])


def _read_condition(found: Json) -> ConditionEffect:
    return ConditionEffect(
        found["label"],
        found["mean_noise_reduction_db"],
        found["amplification_db"],
        found.get("left_out_noise_reduction_db"),
    )


def _read_loop(found: Json) -> LoopResult | None:
    return _loop_of(found["loop"]) if "loop" in found else None


def _loop_of(found: Json) -> LoopResult:
    return LoopResult(**{name: found[name] for name in LoopResult.__dataclass_fields__})


def _codes(warnings: Sequence[Json]) -> tuple[WarningCode, ...]:
    codes = tuple(WarningCode(warning["code"]) for warning in warnings)
    for code, warning in zip(codes, warnings, strict=True):
        code.detail = warning["detail"]
    return codes


def _taps(values: object) -> NDArray[np.float32]:
    """Read the taps; ValueError unless they are 2048 finite numbers."""
    taps: NDArray[np.float32] = np.array(values, np.float32)
    if taps.shape != (_N_TAPS,) or not np.isfinite(taps).all():
        raise ValueError(f"fir: {list(taps.shape)} numbers are not {_N_TAPS} finite ones")
    taps.flags.writeable = False
    return taps

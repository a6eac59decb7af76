"""One example of each request and answer, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

import orjson

from measurement.calibration import PRIMARY_TAPS, SECONDARY_TAPS
from service.api.answer_types import N_BANDS
from service.api.json_answers import BAND_CENTRE_HZ
from synthesis.bands import NR_BANDS, nominal_hz
from synthesis.conventions import N_BINS, N_TAPS, STAGES

Json = dict[str, Any]

_VERSION: Json = {"name": "generic", "version": 1, "digest": "sha256:" + "0123456789abcdef" * 4}

PATHS: Json = {
    "primary": {"impulse_response": [0.0, 0.0, 0.0, 0.5, 0.25, -0.125]},
    "secondary": {"impulse_response": [0.0, 0.9, -0.3, 0.1]},
    "sample_rate": 48_000,
}
CONDITIONS: Json = {
    "conditions": [
        {name: PATHS[name] for name in ("primary", "secondary")} | {"label": label, "weight": weight}
        for label, weight in (("closed", 2.0), ("pressed", 1.0))
    ],
    "sample_rate": 48_000,
}

EVALUATION: Json = {
    "prediction": {
        "basis": "model",
        "band_centre_hz": BAND_CENTRE_HZ,
        "noise_reduction_db": [21.5] * N_BANDS,
        "mean_noise_reduction_db": 21.5,
        "interval_db": 3.2,
        "amplification_db": 0.0,
        "wide_amplification_db": 0.1,
        "out_of_band_db": {"low": -3.2, "high": 0.4},
        "level_reduction_db": {"unweighted": 12.0, "a_weighted": 14.7},
        "sensitivity_db": {"gain_1_db": 6.5, "delay_1_sample": 5.1},
        "max_gain_db": 27.9,
        "control_rms": 0.071,
        "unknown_bands_hz": [],
        "louder_bands_hz": [20, 25],
        "counted_bands_hz": [nominal_hz(band) for band in NR_BANDS],
    },
    "warnings": [{"code": "prediction_from_model", "detail": "no coherence was sent"}],
    "timings_ms": dict.fromkeys(STAGES, 0.0)
    | {"decode": 0.5, "queue": 0.05, "predict": 0.4, "encode": 0.03, "core": 0.0, "total": 1.2},
}
DESIGN: Json = {
    "fir": [0.5, 0.25] + [0.0] * (N_TAPS - 2),
    "sample_rate": 48_000,
    "sign": "minus",
    "method": "prime",
    "model": _VERSION,
    "refinement": {
        "requested": 1,
        "applied": 1,
        "stopped": "budget",
        "objective": [-4.62, -5.07],
        "step_scale": [1.0],
        "pcg_residual": [0.021],
    },
    "prediction": EVALUATION["prediction"],
    "warnings": EVALUATION["warnings"],
    "timings_ms": dict(zip(STAGES, (0.5, 0.05, 0.6, 0.9, 0.4, 0.9, 0.4, 0.06), strict=True))
    | {"core": 2.8, "total": 4.0},
}
EVALUATE_BODY: Json = PATHS | {"fir": DESIGN["fir"]}


_ROW = [0.8, -1.2, 0.5, 1.0, -1.6, 0.7]
_LOOP: Json = {
    "stable": True,
    "gain_margin_db": 7.2,
    "phase_margin_deg": 38.0,
    "peak_db": 21.4,
    "peak_hz": 98.0,
    "max_sensitivity_db": 5.6,
    "nearest_hz": 2150.0,
    "loss_db": 0.0,
}
HYBRID_BODY: Json = PATHS | {"k": 1, "controller": {"n_sections": 4, "sample_rate": 192_000.0, "latency_us": 10.0}}
HYBRID: Json = DESIGN | {
    "prediction": EVALUATION["prediction"]
    | {
        "feedforward_noise_reduction_db": [14.0] * N_BANDS,
        "feedback_noise_reduction_db": [7.5] * N_BANDS,
        "playback_change_db": [-7.5] * N_BANDS,
    },
    "controller": {
        "sos": [_ROW] * 4,
        "sample_rate": 192_000.0,
        "latency_us": 10.0,
        "number_format": "float32",
        "max_gain_db": 24.1,
        "playback_sos": [_ROW] * 6,
    },
    "loop": _LOOP | {"conditions": [_LOOP | {"label": "conditions.0"}, _LOOP | {"label": "pressed"}]},
}


def _named(**values: Json) -> Json:
    """Examples as FastAPI takes them."""
    return {name.replace("_", " "): {"value": value} for name, value in values.items()}


DESIGN_BODIES = _named(impulse_responses=PATHS, both_ears={"items": [PATHS, PATHS]}, two_conditions=CONDITIONS)
HYBRID_BODIES = _named(both=HYBRID_BODY)
EVALUATE_BODIES = _named(a_filter=EVALUATE_BODY)

VERIFY_BODY: Json = EVALUATE_BODY | {
    "takes": [
        {"state": state, "x": {"float32": "zczMPQ=="}, "e": {"float32": "zcxMPQ=="}} for state in ("off", "on")
    ]
}
VERIFY_BODIES = _named(two_takes_abridged=VERIFY_BODY)
VERIFIED: Json = {
    "measured": {
        "band_centre_hz": BAND_CENTRE_HZ,
        "noise_reduction_db": [17.1] * N_BANDS,
        "mean_noise_reduction_db": 17.1,
        "amplification_db": 0.0,
        "interval_db": 0.2,
        "n_blocks": 8,
    },
    "predicted_noise_reduction_db": 21.5,
    "deviation_db": -4.4,
    "band_deviation_db": [-4.4] * N_BANDS,
    "diagnosis": [
        {"code": "level_off", "detail": "the secondary path is 1.01 dB louder than measured", "by": 1.01},
    ],
    "trim": {
        "gain_db": -1.01,
        "delay_samples": 0.0,
        "invert": False,
        "predicted_noise_reduction_db": 21.5,
        "fir": DESIGN["fir"],
    },
    "timings_ms": DESIGN["timings_ms"],
}

EXPORT_BODY: Json = EVALUATE_BODY | {"target": {"form": "sos", "n_sections": 6, "number_format": "q1.23"}}
EXPORT_BODIES = _named(six_biquads_of_24_bits=EXPORT_BODY)
EXPORT: Json = {
    "coefficients": {
        "sample_rate": 48_000.0,
        "form": "sos",
        "sos": [[0.5, -0.96, 0.47, 1.0, -1.9, 0.91], [0.8, -1.2, 0.5, 1.0, -1.6, 0.7]],
        "denominator": "subtracted",
        "number_format": "q1.23",
        "words": [[2097152, -4026532, 1971323, -7969178, 3816817], [3355443, -5033165, 2097152, -6710886, 2936013]],
        "shift": [1, 1],
        "n_saturated": 0,
        "scaling": {"headroom_bits": 4, "overflow_db": 21.3, "noise_db": -61.2, "wide_noise_db": -121.5},
    },
    "prediction": EVALUATION["prediction"],
    "loss_db": 2.4,
    "warnings": [],
    "sign": "minus",
    "timings_ms": EVALUATION["timings_ms"],
}

TAKES: Json = {
    "takes": [
        {"gain": 0.0, "x": {"wav": "UklGRjZYBABXQVZF"}, "e": {"wav": "UklGRjZYBABXQVZF"}},
        {"gain": 0.35, "x": {"float32": "zczMPQAAAL8="}, "e": {"float32": "CtcjPc3MTL4="}},
    ],
    "sample_rate": 48_000,
}
CALIBRATION_BODIES = _named(two_takes_abridged=TAKES)
CALIBRATION: Json = {
    "primary": {"impulse_response": [0.0, 0.0, 0.0, 0.5, 0.25, -0.125] + [0.0] * (PRIMARY_TAPS - 6)},
    "secondary": {"impulse_response": [0.0, 0.9, -0.3, 0.1] + [0.0] * (SECONDARY_TAPS - 4)},
    "sample_rate": 48_000,
    "sign": "minus",
    "coherence": [0.99] * N_BINS,
    "spectra": {"primary": {"complex64": "AACAPwAAAAA="}, "secondary": {"complex64": "AACAPwAAAAA="}},
    "bands": {
        "centre_hz": BAND_CENTRE_HZ,
        "coherence": [0.99] * N_BANDS,
        "noise_reduction_ceiling_db": [20.0] * N_BANDS,
        "secondary_snr_db": [21.3] + [40.0] * (N_BANDS - 1),
    },
    "verdict": {
        "passed": False,
        "reasons": [{"code": "low_snr", "detail": "noise in the estimated paths costs 1.8 dB"}],
        "not_judged": [],
        "model": _VERSION,
        "figures": {
            "clipped_share": 0.0,
            "lead_samples": -1.0,
            "noise_cost_db": 1.8,
            "level_db": -0.3,
            "delay_samples": 0.02,
            "distance": 17.0,
            "tail_db": -58.1,
            "window": 8192,
            "n_frames": 48,
        },
    },
    "timings_ms": {"queue": 0.1, "decode": 21.0, "estimate": 240.0, "encode": 2.1, "total": 320.0},
}

MODEL_DESCRIPTION: Json = _VERSION | {"resident": True, "dataset": "pandar", "split": 3, "seed": 0, "scores": {}}
MODEL_LIST: Json = {
    "default": "generic",
    "aliases": {"live": "generic@1"},
    "models": [MODEL_DESCRIPTION],
    "controllers": [],
    "broken": {},
}
LOADED = _VERSION
UNLOADED: Json = {"unloaded": [_VERSION]}
RELOADED: Json = {"resident": [_VERSION]}
LIVE: Json = {"status": "live"}
READY: Json = {"status": "ready", "device": "cpu", "models": [_VERSION]}

INFERENCE_SERVER: Json = {"name": "prime-anc", "version": "0.1.0", "extensions": ["parameters"]}
INFERENCE_LIVE: Json = {"live": True}
INFERENCE_MODEL: Json = {
    "name": "generic",
    "versions": ["1"],
    "platform": "prime-anc",
    "inputs": [
        {"name": "primary", "datatype": "FP32", "shape": [-1, 2]},
        {"name": "secondary", "datatype": "FP32", "shape": [-1, 2]},
    ],
    "outputs": [{"name": "fir", "datatype": "FP32", "shape": [N_TAPS]}],
}
INFERENCE_MODEL_READY: Json = {"name": "generic", "ready": True}
_LEAST_BINS = 2049
INFERENCE_REQUEST: Json = {
    "id": "left",
    "parameters": {"k": 1, "sign": "minus"},
    "inputs": [
        {"name": name, "shape": [_LEAST_BINS, 2], "datatype": "FP32", "data": [gain, 0.0] * _LEAST_BINS}
        for name, gain in (("primary", 0.5), ("secondary", 0.9))
    ],
    "outputs": [{"name": "fir"}],
}
INFERENCE_BODIES = _named(two_spectra=INFERENCE_REQUEST)
INFERENCE_ANSWER: Json = {
    "model_name": "generic",
    "model_version": "1",
    "outputs": [
        {
            "name": "fir",
            "datatype": "FP32",
            "shape": [N_TAPS],
            "data": DESIGN["fir"],
            "parameters": {
                "method": "prime",
                "sign": "minus",
                "digest": _VERSION["digest"],
                "warnings": "prediction_from_model",
                "refinement.applied": 1,
                "refinement.stopped": "budget",
                "prediction.band_centre_hz": orjson.dumps(BAND_CENTRE_HZ).decode(),
                "prediction.mean_noise_reduction_db": 21.5,
                "timings_ms.core": 2.8,
            },
        }
    ],
    "id": "left",
}

"""JSON Schemas of the answers, with an example of each. Tests hold real answers against them."""

from __future__ import annotations

from typing import Any

from service.errors import PROBLEMS, TYPE_PREFIX
from service.formats.answers import BAND_CENTRE_HZ
from service.formats.schemas import MAX_ITEMS
from service.http.advice import WARNINGS
from synthesis.calibration import PRIMARY_TAPS, SECONDARY_TAPS
from synthesis.calibration_verdict import REASONS
from synthesis.conventions import N_BINS, N_TAPS, SAMPLE_RATE_HZ, STAGES
from synthesis.gauss_newton import MAX_UPDATES, VERDICTS
from synthesis.synthesizer import METHODS

Json = dict[str, Any]

NUMBER: Json = {"type": "number"}
TEXT: Json = {"type": "string"}


def _object(required: Json, optional: Json | None = None, **more: Any) -> Json:
    properties = required | (optional or {})
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def _array(items: Json, low: int | None = None, high: int | None = None, description: str = "") -> Json:
    schema: Json = {"type": "array", "items": items}
    schema |= {} if low is None else {"minItems": low}
    schema |= {} if high is None else {"maxItems": high}
    return schema | ({"description": description} if description else {})


def _number(description: str) -> Json:
    return NUMBER | {"description": description}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _response(n_taps: int) -> Json:
    return _object({"impulse_response": _array(NUMBER, n_taps, n_taps)})


_N_BANDS = len(BAND_CENTRE_HZ)
_PER_BAND = _array(NUMBER, _N_BANDS, _N_BANDS)
_OPTIONAL: Json = {"type": ["number", "null"]}
_TIME = {"type": ["number", "null"], "minimum": 0}
_MODEL = {"name": TEXT, "version": {"type": "integer", "minimum": 1}, "digest": TEXT}

ANSWERS: Json = {
    "Design": _object(
        {
            "fir": _array(NUMBER, N_TAPS, N_TAPS, "Taps of the causal filter; as float32 they are exact"),
            "sample_rate": {"const": SAMPLE_RATE_HZ},
            "sign": {"enum": ["minus", "plus"]},
            "method": {"enum": list(METHODS)},
            "model": _ref("Model"),
            "refinement": _ref("Refinement"),
            "prediction": _ref("Prediction"),
            "warnings": _array(_ref("Warning")),
            "timings_ms": _ref("Timings"),
        }
    ),
    "DesignAnswers": _object(
        {
            "items": _array(
                {"anyOf": [_ref("Design"), _ref("Problem")]}, 1, MAX_ITEMS, "In the order of the requests"
            )
        }
    ),
    "Evaluation": _object(
        {
            "prediction": _ref("Prediction"),
            "warnings": _array(_ref("Warning")),
            "timings_ms": _ref("Timings"),
        }
    ),
    "Calibration": _object(
        {
            "primary": _response(PRIMARY_TAPS),
            "secondary": _response(SECONDARY_TAPS),
            "sample_rate": {"const": SAMPLE_RATE_HZ},
            "sign": {"enum": ["minus", "plus"]},
            "coherence": _array(NUMBER, N_BINS, N_BINS, "Of x and e with gain 0, per bin of the design grid"),
            "spectra": _object(
                dict.fromkeys(("primary", "secondary"), _object({"complex64": TEXT})),
                description="The same paths on the design grid",
            ),
            "bands": _object(
                {
                    "centre_hz": {"const": BAND_CENTRE_HZ},
                    "coherence": _PER_BAND,
                    "noise_reduction_ceiling_db": _PER_BAND | {"description": "-10 log10(1 - coherence)"},
                    "secondary_snr_db": _PER_BAND | {"description": "The secondary path over its estimate's noise"},
                }
            ),
            "verdict": _ref("Verdict"),
            "timings_ms": _object(dict.fromkeys(("queue", "decode", "estimate", "encode", "total"), NUMBER)),
        },
        {"model": TEXT | {"description": "As it was asked for"}},
        description="`/refine` takes it as it is",
    ),
    "Verdict": _object(
        {
            "passed": {"type": "boolean"},
            "reasons": _array(_ref("Finding"), description="What speaks against the calibration"),
            "not_judged": _array(_ref("Finding"), description="What could not be told, and why"),
            "model": _ref("Model") | {"description": "Whose support polarity and leak were judged against"},
            "figures": _object(
                {
                    "clipped_share": _number("Largest share of a signal's samples at its extremes"),
                    "lead_samples": _number("Delay of the primary path less that of the secondary"),
                    "polarity": _OPTIONAL | {"description": "Of the secondary path, along the support's phase"},
                    "low_level_db": _OPTIONAL | {"description": "Of the secondary path, against the support's"},
                    "tail_db": _number("Energy of the secondary path's last eighth over all of it"),
                    "window": {"type": "integer", "description": "Samples of a window"},
                    "n_frames": {"type": "integer", "description": "Windows pooled in the state with fewest"},
                }
            ),
        }
    ),
    "Finding": _object({"code": {"enum": list(REASONS)}, "detail": TEXT}),
    "Model": _object(_MODEL, description="The version that made the answer"),
    "Refinement": _object(
        {
            "requested": {"type": "integer", "minimum": 0, "maximum": MAX_UPDATES},
            "applied": {"type": "integer", "minimum": 0, "maximum": MAX_UPDATES},
            "stopped": {
                "enum": [*VERDICTS, "deadline"],
                "description": "budget: all updates were applied; converged: the best trial lowered the objective "
                "by too little; no_decrease: no trial lowered it; deadline: there was no time for more",
            },
            "objective": _array(NUMBER, 1, MAX_UPDATES + 1, "Before and after each applied update"),
            "step_scale": _array(NUMBER, 0, MAX_UPDATES),
            "pcg_residual": _array(NUMBER, 0, MAX_UPDATES),
        }
    ),
    "Prediction": _object(
        {
            "basis": {
                "enum": ["coherence", "model"],
                "description": "What tells how little the paths' estimates know: the coherence that was sent, or "
                "the model's support listeners",
            },
            "band_centre_hz": {"const": BAND_CENTRE_HZ, "description": "Nominal one-third-octave bands, Hz"},
            "noise_reduction_db": _array(NUMBER, _N_BANDS, _N_BANDS, "Per band; positive is quieter"),
            "mean_noise_reduction_db": _number("Mean over the 21 bands from 50 Hz to 5 kHz"),
            "amplification_db": _number("Mean over the 23 bands of what they become louder by"),
            "wide_amplification_db": _number("The same over the 31 bands from 20 Hz to 20 kHz"),
            "out_of_band_db": _object(
                {"low": _number("20 to 44.7 Hz"), "high": _number("8.9 to 20 kHz")},
                description="Change of level outside the scored bands; positive is louder",
            ),
            "max_gain_db": _number("Largest |W|"),
            "control_rms": _number("RMS of the loudspeaker signal, in the unit of the reference"),
        }
    ),
    "Warning": _object({"code": {"enum": list(WARNINGS)}, "detail": TEXT}),
    "Timings": _object(
        dict.fromkeys(STAGES, _TIME)
        | {
            "core": _TIME | {"description": "path_ratio + generate + reconstruct + refine"},
            "total": _TIME | {"description": "First byte handled to body encoded"},
        },
        description="Milliseconds; null: not timed apart",
    ),
    "ModelDescription": {
        "type": "object",
        "description": "What a version's manifest says, and whether it is in memory",
        "properties": _MODEL
        | {
            "resident": {"type": "boolean"},
            "dataset": TEXT,
            "split": {"type": ["integer", "null"]},
            "seed": {"type": "integer"},
            "scores": {"type": "object"},
        },
        "required": [*_MODEL, "resident", "dataset", "split", "seed", "scores"],
    },
    "ModelList": _object(
        {
            "default": TEXT,
            "aliases": {"type": "object", "additionalProperties": TEXT},
            "models": _array(_ref("ModelDescription")),
            "broken": {"type": "object", "additionalProperties": TEXT, "description": "Damaged versions, and how"},
        }
    ),
    "Loaded": _object(_MODEL, description="What the name stands for, in memory now"),
    "Unloaded": _object({"unloaded": _array(_ref("Model"), 1)}),
    "Reloaded": _object({"resident": _array(_ref("Model"), 1)}),
    "Live": _object({"status": {"const": "live"}}),
    "Ready": _object({"status": {"const": "ready"}, "device": TEXT, "models": _array(_ref("Model"))}),
    "Problem": _object(
        {
            "type": {"enum": [TYPE_PREFIX + code for code in PROBLEMS]},
            "title": TEXT,
            "status": {"enum": sorted({status for status, _ in PROBLEMS.values()})},
            "detail": TEXT,
        },
        {"field": TEXT | {"description": "The offending field, dotted"}},
    ),
}

_DIGEST = "sha256:" + "0123456789abcdef" * 4

EVALUATION_EXAMPLE: Json = {
    "prediction": {
        "basis": "model",
        "band_centre_hz": BAND_CENTRE_HZ,
        "noise_reduction_db": [21.5] * _N_BANDS,
        "mean_noise_reduction_db": 21.5,
        "amplification_db": 0.0,
        "wide_amplification_db": 0.1,
        "out_of_band_db": {"low": -3.2, "high": 0.4},
        "max_gain_db": 27.9,
        "control_rms": 0.071,
    },
    "warnings": [{"code": "prediction_from_model", "detail": "no coherence was sent"}],
    "timings_ms": dict.fromkeys(STAGES)
    | {"decode": 0.5, "queue": 0.05, "predict": 0.4, "encode": 0.03, "core": None, "total": 1.2},
}
DESIGN_EXAMPLE: Json = {
    "fir": [0.5, 0.25] + [0.0] * (N_TAPS - 2),
    "sample_rate": SAMPLE_RATE_HZ,
    "sign": "minus",
    "method": "prime",
    "model": {"name": "default", "version": 1, "digest": _DIGEST},
    "refinement": {
        "requested": 1,
        "applied": 1,
        "stopped": "budget",
        "objective": [-4.62, -5.07],
        "step_scale": [1.0],
        "pcg_residual": [0.021],
    },
    "prediction": EVALUATION_EXAMPLE["prediction"],
    "warnings": EVALUATION_EXAMPLE["warnings"],
    "timings_ms": dict(zip(STAGES, (0.5, 0.05, 0.6, 0.9, 0.4, 0.9, 0.4, 0.06), strict=True))
    | {"core": 2.8, "total": 4.0},
}
CALIBRATION_EXAMPLE: Json = {
    "primary": {"impulse_response": [0.0, 0.0, 0.0, 0.5, 0.25, -0.125] + [0.0] * (PRIMARY_TAPS - 6)},
    "secondary": {"impulse_response": [0.0, 0.9, -0.3, 0.1] + [0.0] * (SECONDARY_TAPS - 4)},
    "sample_rate": SAMPLE_RATE_HZ,
    "sign": "minus",
    "coherence": [0.99] * N_BINS,
    "spectra": {"primary": {"complex64": "AACAPwAAAAA="}, "secondary": {"complex64": "AACAPwAAAAA="}},
    "bands": {
        "centre_hz": BAND_CENTRE_HZ,
        "coherence": [0.99] * _N_BANDS,
        "noise_reduction_ceiling_db": [20.0] * _N_BANDS,
        "secondary_snr_db": [21.3] + [40.0] * (_N_BANDS - 1),
    },
    "verdict": {
        "passed": False,
        "reasons": [{"code": "low_snr", "detail": "found the secondary path 21.3 dB above its estimate's noise"}],
        "not_judged": [],
        "model": {"name": "default", "version": 1, "digest": _DIGEST},
        "figures": {
            "clipped_share": 0.0,
            "lead_samples": -1.0,
            "polarity": 0.81,
            "low_level_db": -0.4,
            "tail_db": -58.1,
            "window": 8192,
            "n_frames": 48,
        },
    },
    "timings_ms": {"queue": 0.1, "decode": 21.0, "estimate": 240.0, "encode": 2.1, "total": 320.0},
}
_MODEL_EXAMPLE: Json = {
    "name": "default",
    "version": 1,
    "digest": _DIGEST,
    "resident": True,
    "dataset": "pandar",
    "split": None,
    "seed": 0,
    "scores": {},
}

_VERSION_EXAMPLE: Json = {"name": "default", "version": 1, "digest": _DIGEST}

STATE_EXAMPLES: dict[str, Json] = {
    "ModelList": {"default": "default", "aliases": {"live": "default@1"}, "models": [_MODEL_EXAMPLE], "broken": {}},
    "ModelDescription": _MODEL_EXAMPLE,
    "Loaded": _VERSION_EXAMPLE,
    "Unloaded": {"unloaded": [_VERSION_EXAMPLE]},
    "Reloaded": {"resident": [_VERSION_EXAMPLE]},
    "Live": {"status": "live"},
    "Ready": {"status": "ready", "device": "cpu", "models": [_VERSION_EXAMPLE]},
}
"""Answers that say what is there, by the name of their schema."""

"""The part of the OpenAPI document that describes the Open Inference Protocol v2."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from service.errors import PROBLEMS, RETRY_AFTER_S
from service.formats import open_inference
from service.formats.answers import BAND_CENTRE_HZ
from service.formats.open_inference import EXTENSIONS, HEADER_LENGTH, INPUT_RANK, OUTPUT, REQUIRED
from service.http.negotiation import BINARY, JSON
from service.openapi.answers import DESIGN_EXAMPLE
from service.openapi.binary import binary_body
from synthesis.conventions import N_TAPS

Json = dict[str, Any]

_ANY = "malformed-request method-not-allowed too-slow headers-too-large internal-error too-many-connections"
_MODEL = f"unauthorised over-quota not-found unknown-model model-unavailable {_ANY}"
_INFER = (
    f"malformed-request malformed-json bad-length length-required too-large unsupported-media-type {_MODEL} "
    "unsupported-encoding missing-field unknown-field invalid-field out-of-range unequal-grids unusable-paths "
    "no-finite-filter not-ready overloaded deadline-passed"
)
DEADLINE_REFERENCE: Json = {"$ref": "#/components/parameters/Deadline"}
_TEXT: Json = {"type": "string"}
_PARAMETERS: Json = {
    "type": "object",
    "additionalProperties": {"type": ["string", "number", "boolean"]},
    "description": "What `/refine` answers besides the taps, names dotted and lists as JSON text: `method`, "
    "`sign`, `digest`, `warnings` (codes), `refinement.*`, `prediction.*`, `timings_ms.*`",
}


def _object(required: Json, optional: Json | None = None) -> Json:
    properties = required | (optional or {})
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _array(items: Json, **more: int) -> Json:
    return {"type": "array", "items": items, **more}


_TENSOR = _object({"name": _TEXT, "datatype": {"const": "FP32"}, "shape": _array({"type": "integer"})})

SCHEMAS: Json = {
    "InferenceServer": _object({"name": _TEXT, "version": _TEXT, "extensions": _array({"enum": list(EXTENSIONS)})}),
    "InferenceLive": _object({"live": {"const": True}}, {"ready": {"const": True}}),
    "InferenceModel": _object(
        {
            "name": _TEXT,
            "versions": _array(_TEXT),
            "platform": _TEXT,
            "inputs": _array(_TENSOR),
            "outputs": _array(_TENSOR),
        }
    ),
    "InferenceModelReady": _object({"name": _TEXT, "ready": {"const": True}}),
    "InferenceAnswer": _object(
        {
            "model_name": _TEXT,
            "model_version": _TEXT,
            "outputs": _array(
                _object(
                    {
                        "name": {"const": OUTPUT},
                        "datatype": {"const": "FP32"},
                        "shape": {"const": [N_TAPS]},
                        "parameters": _PARAMETERS,
                    },
                    {"data": _array({"type": "number"}, minItems=N_TAPS, maxItems=N_TAPS)},
                ),
                minItems=1,
                maxItems=1,
            ),
        },
        {"id": _TEXT},
    ),
    "InferenceError": _object({"error": _TEXT | {"description": "A problem's code, a colon, its detail"}}),
}

_BINS = 2049
_REQUEST_EXAMPLE: Json = {
    "id": "left",
    "parameters": {"k": 1, "sign": "minus"},
    "inputs": [
        {"name": name, "shape": [_BINS, 2], "datatype": "FP32", "data": [gain, 0.0] * _BINS}
        for name, gain in (("primary", 0.5), ("secondary", 0.9))
    ],
    "outputs": [{"name": OUTPUT}],
}
_BINARY_EXAMPLE = orjson.dumps(
    {
        "inputs": [
            {"name": name, "shape": [2, 2], "datatype": "FP32", "parameters": {"binary_data_size": 16}}
            for name in REQUIRED
        ]
    }
)
_ANSWER_EXAMPLE: Json = {
    "model_name": "default",
    "model_version": "1",
    "outputs": [
        {
            "name": OUTPUT,
            "datatype": "FP32",
            "shape": [N_TAPS],
            "data": DESIGN_EXAMPLE["fir"],
            "parameters": {
                "method": "prime",
                "sign": "minus",
                "digest": DESIGN_EXAMPLE["model"]["digest"],
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


def paths(guarded: Json) -> Json:
    """The operations by path. guarded: what is added to those that need a key."""
    found: Json = {
        "/v2": {"get": _get("v2_server", "This server and its extensions", "InferenceServer", "")},
        "/v2/health/live": {"get": _get("v2_live", "Whether the event loop answers", "InferenceLive", "")},
        "/v2/health/ready": {
            "get": _get("v2_ready", "Whether designs are answered", "InferenceLive", "not-ready model-unavailable")
        },
    }
    for path, suffix in (("/v2/models/{name}", ""), ("/v2/models/{name}/versions/{version}", "_version")):
        named = [_part("name"), *([_part("version")] if suffix else [])]
        more = guarded | {"parameters": named}
        found[path] = {"get": _get(f"v2_model{suffix}", "The tensors of a model", "InferenceModel", _MODEL) | more}
        ready = _get(
            f"v2_model_ready{suffix}", "Whether a model can be asked", "InferenceModelReady", f"{_MODEL} not-ready"
        )
        found[f"{path}/ready"] = {"get": ready | more}
        length: Json = {"type": "integer", "minimum": 0, "description": "Bytes of the JSON object"}
        header = {"name": HEADER_LENGTH, "in": "header", "required": False, "schema": length}
        infer = _infer(f"v2_infer{suffix}")
        found[f"{path}/infer"] = {"post": infer | guarded | {"parameters": [*named, header, DEADLINE_REFERENCE]}}
    return found


_EXAMPLES: dict[str, Json] = {
    "InferenceServer": {"name": "prime-anc", "version": "0.1.0", "extensions": list(EXTENSIONS)},
    "InferenceLive": {"live": True},
    "InferenceModel": {
        "name": "default",
        "versions": ["1"],
        "platform": "prime-anc",
        "inputs": [
            {"name": name, "datatype": "FP32", "shape": [-1, 2] if rank == 2 else [-1]}
            for name, rank in INPUT_RANK.items()
        ],
        "outputs": [{"name": OUTPUT, "datatype": "FP32", "shape": [N_TAPS]}],
    },
    "InferenceModelReady": {"name": "default", "ready": True},
}


def _part(name: str) -> Json:
    example = {"name": "default", "version": "1"}[name]
    return {"name": name, "in": "path", "required": True, "schema": _TEXT, "example": example}


def _get(name: str, summary: str, schema: str, problems: str) -> Json:
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {
                "description": summary,
                "content": {
                    JSON: {"schema": _reference(schema), "examples": {"an answer": {"value": _EXAMPLES[schema]}}}
                },
            },
            **_problems(f"{problems} {_ANY}"),
        },
    }


def _infer(name: str) -> Json:
    inputs = ", ".join(f"`{each}`" for each in INPUT_RANK)
    return {
        "operationId": name,
        "summary": "Spectra in, filter out (Open Inference Protocol v2)",
        "description": f"Inputs {inputs}, output `{OUTPUT}`. Binary tensors follow the JSON object.",
        "requestBody": {
            "required": True,
            "content": {
                JSON: {
                    "schema": _reference("InferenceRequest"),
                    "examples": {"two spectra": {"value": _REQUEST_EXAMPLE}},
                },
                **binary_body(
                    open_inference.__doc__,
                    "two spectra, abridged",
                    _BINARY_EXAMPLE + np.array([0.5, 0, 0.25, 0, 0.9, 0, -0.3, 0], "<f4").tobytes(),
                    f"At least {_BINS} bins each. `{HEADER_LENGTH}: {len(_BINARY_EXAMPLE)}` goes with it.",
                ),
            },
        },
        "responses": {
            "200": {
                "description": "The filter",
                "headers": {each: {"schema": _TEXT} for each in (HEADER_LENGTH, "Server-Timing")},
                "content": {
                    JSON: {
                        "schema": _reference("InferenceAnswer"),
                        "examples": {"a filter": {"value": _ANSWER_EXAMPLE}},
                    },
                    BINARY: {
                        "schema": _TEXT | {"format": "binary", "description": "The JSON object, then 2048 float32"}
                    },
                },
            },
            **_problems(_INFER),
        },
    }


def _problems(codes: str) -> Json:
    """Responses by status, an example for each code."""
    responses: Json = {}
    for code in sorted(set(codes.split()), key=list(PROBLEMS).index):
        status, title = PROBLEMS[code]
        content: Json = {JSON: {"schema": _reference("InferenceError"), "examples": {}}}
        headers: Json = {"Server-Timing": {"schema": _TEXT}}
        response = responses.setdefault(str(status), {"description": title, "headers": headers, "content": content})
        example = {"error": f"{code}: what was found, and what was expected"}
        response["content"][JSON]["examples"][code] = {"value": example}
        if code in RETRY_AFTER_S:
            response["headers"]["Retry-After"] = {"schema": {"type": "integer"}, "description": "Seconds"}
        if status in (401, 405):
            response["headers"]["WWW-Authenticate" if status == 401 else "Allow"] = {"schema": _TEXT}
    return responses


def _reference(schema: str) -> Json:
    return {"$ref": f"#/components/schemas/{schema}"}

"""The OpenAPI document, written from the same tables that the service runs on."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, get_args

import numpy as np
from pydantic.json_schema import models_json_schema

from service.admission.deadlines import DEADLINE
from service.calibration import take_wire
from service.calibration.takes import CalibrationBody, ProbeTake
from service.designs import DEFAULT_MAX_GAIN_DB, MAX_GAIN_RANGE_DB
from service.errors import PROBLEM_MEDIA_TYPE, PROBLEMS, RETRY_AFTER_S, Problem
from service.formats import wire
from service.formats.open_inference import InferenceRequest
from service.formats.options import DEFAULT_UPDATES
from service.formats.schemas import CALIBRATION_FIELDS, MAX_ITEMS, DesignBody, DesignItems, EvaluateBody, Profile
from service.http.advice import WARNINGS
from service.http.negotiation import BINARY, JSON
from service.openapi import v2
from service.openapi.answers import (
    ANSWERS,
    CALIBRATION_EXAMPLE,
    DESIGN_EXAMPLE,
    EVALUATION_EXAMPLE,
    STATE_EXAMPLES,
)
from service.openapi.binary import binary_body
from service.openapi.v2 import DEADLINE_REFERENCE
from service.settings import MAX_DEADLINE_MS, MIN_DEADLINE_MS, Settings
from synthesis.calibration import MIN_SAMPLES
from synthesis.calibration_verdict import REASONS
from synthesis.gauss_newton import MAX_UPDATES

TITLE = "PRIME-ANC"
Json = dict[str, Any]

_BODY = (
    "malformed-request malformed-json unauthorised unknown-model not-acceptable length-required too-large "
    "unsupported-media-type unsupported-encoding missing-field unknown-field invalid-field out-of-range wrong-rate "
    "unequal-grids unusable-paths no-finite-filter headers-too-large internal-error not-ready overloaded "
    "over-quota deadline-passed model-unavailable too-slow too-many-connections method-not-allowed"
)
_CALIBRATION = (
    "malformed-request malformed-json unauthorised unknown-model not-acceptable length-required too-large "
    "unsupported-media-type unsupported-encoding missing-field unknown-field invalid-field out-of-range wrong-rate "
    "unusable-paths headers-too-large internal-error overloaded over-quota deadline-passed model-unavailable "
    "too-slow too-many-connections method-not-allowed"
)
_BINARY_BODY = "bad-magic bad-version bad-flags bad-length bad-checksum"
_UNREAD_BODY = "length-required too-large unsupported-encoding"
_ANY = "malformed-request method-not-allowed too-slow headers-too-large internal-error too-many-connections"

PATHS_EXAMPLE: Json = {
    "primary": {"impulse_response": [0.0, 0.0, 0.0, 0.5, 0.25, -0.125]},
    "secondary": {"impulse_response": [0.0, 0.9, -0.3, 0.1]},
    "sample_rate": 48_000,
}

TAKES_EXAMPLE: Json = {
    "takes": [
        {"gain": 0.0, "x": {"wav": "UklGRjZYBABXQVZF"}, "e": {"wav": "UklGRjZYBABXQVZF"}},
        {"gain": 0.35, "x": {"float32": "zczMPQAAAL8="}, "e": {"float32": "CtcjPc3MTL4="}},
    ],
    "sample_rate": 48_000,
}

_RESPONSES = [np.array(PATHS_EXAMPLE[path]["impulse_response"], np.float32) for path in ("primary", "secondary")]
_DESIGN_BODY = wire.encode(_RESPONSES[0], _RESPONSES[1])
_TAKES_BODY = take_wire.encode(
    [
        ProbeTake(gain, np.array(x, np.float32), np.array(e, np.float32))
        for gain, x, e in ((0.0, [0.1, -0.5], [0.05, -0.2]), (0.35, [0.1, -0.5], [0.04, -0.1]))
    ]
)

ITEM_PROBLEM_EXAMPLE = Problem("unusable-paths", "what was found, and what was expected", "primary").document()


def document(settings: Settings) -> Json:
    """The whole document. Security is stated as the settings ask for it."""
    bodies = (DesignBody, DesignItems, EvaluateBody, CalibrationBody, InferenceRequest)
    _, definitions = models_json_schema(
        [(body, "validation") for body in bodies], ref_template="#/components/schemas/{model}"
    )
    schemas = definitions["$defs"] | ANSWERS | v2.SCHEMAS
    components: Json = {
        "schemas": schemas,
        "parameters": {"Deadline": _deadline()},
        "securitySchemes": {
            "key": {"type": "http", "scheme": "bearer", "description": "An API key."},
            "management": {"type": "http", "scheme": "bearer", "description": "A key of the operator's."},
        },
    }
    managed: Json = {"security": [{"management": []}]}
    guarded: Json = {"security": [{"key": []}]} if settings.api_keys or settings.api_keys_file else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": version("prime-anc"), "description": _description(settings)},
        "paths": {
            "/synthesize": {"post": _design("synthesize", "Paths in, filter out (k = 0)", []) | guarded},
            "/refine": {
                "post": _design("refine", "The same, then up to k Gauss-Newton updates", _refine_options())
                | guarded
            },
            "/calibrate": {"post": _calibrate(settings) | guarded},
            "/evaluate": {"post": _evaluate() | guarded},
            "/models": {
                "get": _get(
                    "list_models",
                    "What is published and what is resident",
                    "ModelList",
                    "unauthorised over-quota not-acceptable model-unavailable",
                )
                | guarded
            },
            "/models/{name}": {
                "get": _named(
                    "show_model",
                    "One published version",
                    "ModelDescription",
                    "unauthorised over-quota not-acceptable unknown-model model-unavailable",
                )
                | guarded
            },
            "/models/reload": {
                "post": _get(
                    "reload_models",
                    "Follow every alias and name to what it stands for now",
                    "Reloaded",
                    f"unauthorised not-acceptable model-unavailable {_UNREAD_BODY}",
                )
                | managed
            },
            "/models/{name}/load": {
                "post": _named(
                    "load_model",
                    "Load, verify and warm up what a name stands for, then let it take over",
                    "Loaded",
                    f"unauthorised unknown-model not-acceptable model-unavailable {_UNREAD_BODY}",
                )
                | managed
            },
            "/models/{name}/unload": {
                "post": _named(
                    "unload_model",
                    "Retire a version, or all of a name's, after the designs under way",
                    "Unloaded",
                    f"unauthorised unknown-model not-acceptable default-model {_UNREAD_BODY}",
                )
                | managed
            },
            "/health/live": {"get": _get("live", "Whether the event loop answers", "Live", "")},
            "/health/ready": {
                "get": _get(
                    "ready",
                    "Whether the default model is loaded, warm and checked",
                    "Ready",
                    "not-ready model-unavailable",
                )
            },
            "/metrics": {"get": _metrics()},
            **v2.paths(guarded),
        },
        "components": components,
    }


def _description(settings: Settings) -> str:
    problems = "\n".join(f"| {status} | `{code}` | {title} |" for code, (status, title) in PROBLEMS.items())
    warnings = "\n".join(f"| `{code}` | {meaning} |" for code, meaning in WARNINGS.items())
    return (
        "Designs 2048-tap control filters for active noise control at 48 kHz from a listener's measured acoustic "
        f"paths. Bodies may have up to {settings.max_body_bytes} bytes and must declare their length.\n\n"
        f"Problems (`{PROBLEM_MEDIA_TYPE}`; `type` ends in the code):\n\n"
        f"| | code | |\n|---|---|---|\n{problems}\n\n"
        f"Warnings:\n\n| code | |\n|---|---|\n{warnings}\n"
    )


def _design(name: str, summary: str, options: list[Json]) -> Json:
    return {
        "operationId": name,
        "summary": summary,
        "description": "With a JSON body its options are fields; with a binary body they are query parameters. "
        f"The fields {', '.join(sorted(CALIBRATION_FIELDS))} of a calibration are taken and not read. A JSON body "
        f"may hold up to {MAX_ITEMS} requests as `items`, such as both ears: those of one model and method are "
        "designed as one batch, and the answer, JSON alone, holds a filter or a problem for each, in order.",
        "parameters": [*options, *_binary_options(), DEADLINE_REFERENCE],
        "requestBody": {
            "required": True,
            "content": {
                JSON: {
                    "schema": {"anyOf": [_reference("DesignBody"), _reference("DesignItems")]},
                    "examples": {
                        "impulse responses": {"value": PATHS_EXAMPLE},
                        "both ears": {"value": {"items": [PATHS_EXAMPLE, PATHS_EXAMPLE]}},
                    },
                },
                **binary_body(wire.__doc__, "impulse responses", _DESIGN_BODY),
            },
        },
        "responses": {
            "200": {
                "description": "The filter",
                "headers": _headers(
                    "Server-Timing",
                    "X-Model-Digest",
                    "X-Refine-Applied",
                    "X-Predicted-NR-dB",
                    "X-Predicted-AMP-dB",
                    "X-Warnings",
                ),
                "content": {
                    JSON: {
                        "schema": {"anyOf": [_reference("Design"), _reference("DesignAnswers")]},
                        "examples": {
                            "design": {"value": DESIGN_EXAMPLE},
                            "both ears": {"value": {"items": [DESIGN_EXAMPLE, ITEM_PROBLEM_EXAMPLE]}},
                        },
                    },
                    BINARY: {
                        "schema": {
                            "type": "string",
                            "format": "binary",
                            "description": "2048 little-endian float32; the X- headers come with this form only.",
                        }
                    },
                },
            },
            **_problems(f"{_BODY} {_BINARY_BODY}"),
        },
    }


def _calibrate(settings: Settings) -> Json:
    reasons = "\n".join(f"| `{code}` | {meaning} |" for code, meaning in REASONS.items())
    fields = CalibrationBody.model_json_schema()["properties"]
    only = "With a binary body only. "
    return {
        "operationId": "calibrate",
        "summary": "Probe recordings in, paths, coherence and a verdict out",
        "description": f"Bodies may have up to {settings.max_calibration_bytes} bytes; `multipart/form-data` is "
        f"not taken. Without a deadline of its own a calibration has one of {settings.calibration_deadline_ms:g} "
        "ms. With a JSON body its options are fields, with a binary body query parameters. The answer, of "
        f"either kind, is a body that `/refine` takes as it is.\n\nReasons:\n\n| code | |\n|---|---|\n{reasons}\n",
        "parameters": [
            *(
                _query(name, {key: each for key, each in fields[name].items() if key != "description"}, only)
                for name in ("model", "sign", "n_windows")
            ),
            DEADLINE_REFERENCE,
        ],
        "requestBody": {
            "required": True,
            "content": {
                JSON: {
                    "schema": _reference("CalibrationBody"),
                    "examples": {"two takes, abridged": {"value": TAKES_EXAMPLE}},
                },
                **binary_body(
                    take_wire.__doc__, "two takes, abridged", _TAKES_BODY, f"At least {MIN_SAMPLES} samples each."
                ),
            },
        },
        "responses": {
            "200": {
                "description": "The paths and the verdict",
                "headers": _headers("Server-Timing", "X-Verdict"),
                "content": {
                    JSON: {
                        "schema": _reference("Calibration"),
                        "examples": {"noisy takes": {"value": CALIBRATION_EXAMPLE}},
                    },
                    BINARY: {
                        "schema": {
                            "type": "string",
                            "format": "binary",
                            "description": "The paths and their coherence as `/refine` takes them. `X-Verdict`, "
                            "with this form only, holds `passed` or the codes of the reasons.",
                        }
                    },
                },
            },
            **_problems(f"{_CALIBRATION} {_BINARY_BODY}"),
        },
    }


def _evaluate() -> Json:
    example = PATHS_EXAMPLE | {"fir": DESIGN_EXAMPLE["fir"]}
    return {
        "operationId": "evaluate",
        "summary": "What a filter will do on these paths",
        "parameters": [DEADLINE_REFERENCE],
        "requestBody": {
            "required": True,
            "content": {JSON: {"schema": _reference("EvaluateBody"), "examples": {"a filter": {"value": example}}}},
        },
        "responses": {
            "200": {
                "description": "The prediction",
                "headers": _headers("Server-Timing"),
                "content": {
                    JSON: {
                        "schema": _reference("Evaluation"),
                        "examples": {"figures": {"value": EVALUATION_EXAMPLE}},
                    }
                },
            },
            **_problems(_BODY),
        },
    }


def _get(name: str, summary: str, schema: str, problems: str) -> Json:
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {
                "description": summary,
                "content": {
                    JSON: {
                        "schema": _reference(schema),
                        "examples": {"an answer": {"value": STATE_EXAMPLES[schema]}},
                    }
                },
            },
            **_problems(f"{problems} {_ANY}"),
        },
    }


def _named(operation: str, summary: str, schema: str, problems: str) -> Json:
    """An operation on what the address names."""
    name = {
        "name": "name",
        "in": "path",
        "required": True,
        "schema": {"type": "string"},
        "example": "default",
        "description": "`name` (its latest version), `name@version` or an alias",
    }
    return _get(operation, summary, schema, f"{problems} not-found") | {"parameters": [name]}


def _metrics() -> Json:
    return {
        "operationId": "metrics",
        "summary": "Metrics for Prometheus",
        "responses": {
            "200": {"description": "Text exposition", "content": {"text/plain": {"schema": {"type": "string"}}}},
            **_problems(_ANY),
        },
    }


def _refine_options() -> list[Json]:
    updates = {"type": "integer", "minimum": 0, "maximum": MAX_UPDATES, "default": DEFAULT_UPDATES}
    return [
        _query("k", updates, "Gauss-Newton updates at most"),
        _query(
            "profile",
            {"type": "string", "enum": list(get_args(Profile)), "default": "fast"},
            "`fast`: this project's own, with a ceiling on |W|. `fine`: the same on twice the points, for paths "
            "that no window of 8192 samples has smoothed; responses of more samples and spectra of more than 4097 "
            "bins get it unasked. `paper`: as published.",
        ),
    ]


def _binary_options() -> list[Json]:
    fields = DesignBody.model_json_schema()["properties"]
    low, high = MAX_GAIN_RANGE_DB
    gain = {"type": "number", "minimum": low, "maximum": high, "default": DEFAULT_MAX_GAIN_DB}
    only = "With a binary body only. "
    return [
        _query("model", {"type": "string"}, only + fields["model"]["description"]),
        _query("method", {"type": "string", "enum": fields["method"]["enum"], "default": "prime"}, only),
        _query("sign", {"type": "string", "enum": ["minus", "plus"], "default": "minus"}, only),
        _query("max_gain_db", gain, only + fields["max_gain_db"]["description"]),
    ]


def _query(name: str, schema: Json, description: str) -> Json:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description.strip()}


def _deadline() -> Json:
    return {
        "name": DEADLINE,
        "in": "header",
        "required": False,
        "schema": {"type": "number", "minimum": MIN_DEADLINE_MS, "maximum": MAX_DEADLINE_MS},
        "description": "Milliseconds from receipt within which the answer is of use. Where there is no time for "
        "all updates fewer are made (`refinement.stopped` is `deadline`); where there is none for a filter the "
        "answer is 503, at once.",
    }


def _headers(*names: str) -> Json:
    return {name: {"schema": {"type": "string"}} for name in names}


def _problems(codes: str) -> Json:
    """Responses by status, an example for each code."""
    responses: Json = {}
    for code in dict.fromkeys(codes.split()):
        status, title = PROBLEMS[code]
        response = responses.setdefault(
            str(status),
            {
                "description": title,
                "headers": _headers("Server-Timing"),
                "content": {PROBLEM_MEDIA_TYPE: {"schema": _reference("Problem"), "examples": {}}},
            },
        )
        if response["description"] != title:
            response["description"] += "; " + title[0].lower() + title[1:]
        example = Problem(code, "what was found, and what was expected").document()
        response["content"][PROBLEM_MEDIA_TYPE]["examples"][code] = {"value": example}
        if code in RETRY_AFTER_S:
            response["headers"]["Retry-After"] = {"schema": {"type": "integer"}, "description": "Seconds"}
        if status in (401, 405):
            response["headers"] |= _headers("WWW-Authenticate" if status == 401 else "Allow")
    return responses


def _reference(schema: str) -> Json:
    return {"$ref": f"#/components/schemas/{schema}"}

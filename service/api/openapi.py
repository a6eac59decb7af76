"""What the OpenAPI document says beyond FastAPI's own: bodies, examples, problems, codes."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, TypeAdapter

from prime_anc.answers import ProblemDocument
from prime_anc.fields import NUMBER_FORMAT
from prime_anc.measure.checks import REASONS
from prime_anc.requests.options import CURVES, option_fields
from prime_anc.requests.strict import StrictModel
from prime_anc.tasks.warnings import WARNINGS
from service.admission import DEADLINE_HEADER, MAX_BODY_BYTES, MAX_JSON_BYTES, MAX_RECORDINGS_BYTES
from service.api.examples import example
from service.api.state import JSON, TENSORS
from service.errors import PROBLEM_MEDIA_TYPE, PROBLEMS, RETRY_AFTER_S, HttpProblem
from service.settings import MAX_DEADLINE_MS, MIN_DEADLINE_MS, Settings

Json = dict[str, Any]
Responses = dict[int | str, Json]

# Codes of the problems of kinds of addresses.
ANY_CODES = "malformed-request method-not-allowed internal-error cross-site "
CLIENT_CODES = ANY_CODES + "unauthorised not-acceptable model-unavailable "
OPERATOR_CODES = ANY_CODES + "unauthorised "
WORK_CODES = (
    ANY_CODES
    + "too-slow malformed-json malformed-tensors unauthorised unknown-model not-acceptable length-required "
    "too-large unsupported-media-type unsupported-encoding missing-field unknown-field invalid-field out-of-range "
    "wrong-rate unequal-grids unusable-paths overloaded deadline-passed model-unavailable not-ready "
)
DESIGN_CODES = WORK_CODES + "no-finite-filter "

# The bodies and answers of described addresses, whose schemas the document takes. As FastAPI's own response models they
# would be built, for seconds, at the first request.
_BODIES: dict[str, type[StrictModel]] = {}
_ANSWERS: dict[str, Any] = {}
_REFERENCE = "#/components/schemas/{model}"

_DEADLINE: Json = {
    "name": DEADLINE_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "number", "format": NUMBER_FORMAT, "minimum": MIN_DEADLINE_MS, "maximum": MAX_DEADLINE_MS},
    "description": "Deadline in milliseconds from receipt. If there is not enough time for all updates, fewer are "
    "applied (`refinement.stopped` is `deadline`); if there is not enough for any filter, the answer is 503 at once.",
}
_TENSORS = (
    "As safetensors: 8 bytes of length, a JSON header, raw little-endian float32. A tensor's name is the position of "
    "its numbers in the body (`primary`, `conditions.0.primary`, `takes.0.x`); everything else is JSON text under the "
    "name `request` of the header's `__metadata__`. A path is `[n]` for an impulse response, or `[n, 2]` for a "
    "spectrum, real and imaginary parts."
)


def described(
    body: type[StrictModel] | None = None,
    *,
    codes: str,
    answer: Any = None,
    bodies: Json | None = None,
    headers: tuple[str, ...] = (),
    binary: tuple[str, str] | None = None,
) -> Json:
    """Return the arguments of a route that document it.

    Parameters
    ----------
    body
        Type of its body.
    codes
        Codes of its problems, separated by spaces.
    answer
        Type of its answer in JSON; None: text.
    bodies
        Examples of its body, by name.
    headers
        Headers of its answer besides `Server-Timing`.
    binary
        Media type and description of another form of the answer.
    """
    content: Json = {}
    if answer is not None:
        _ANSWERS[answer.__name__] = answer
        content[JSON] = {"schema": {"$ref": _REFERENCE.format(model=answer.__name__)}}
    if binary is not None:
        content[binary[0]] = {"schema": {"type": "string", "format": "binary", "description": binary[1]}}
    extra: Json = {}
    if body is not None:
        _BODIES[body.__name__] = body
        headers = ("Server-Timing", *headers)
        forms = {
            JSON: {"schema": {"$ref": _REFERENCE.format(model=body.__name__)}, "examples": bodies},
            TENSORS: {"schema": {"type": "string", "format": "binary", "description": _TENSORS}},
        }
        extra = {
            "requestBody": {"required": True, "content": forms},
            "parameters": [*_option_parameters(body), _DEADLINE],
        }
    texts = {name: {"schema": {"type": "string"}} for name in headers}
    return {
        "response_model": None,
        "response_class": PlainTextResponse if answer is None else JSONResponse,
        "responses": {200: {"headers": texts, "content": content}, **_problem_responses(codes)},
        "openapi_extra": extra,
    }


def document(app: FastAPI, settings: Settings) -> Json:
    """Return the document of an application.

    Parameters
    ----------
    app
        With all routes.
    settings
        For required keys and deadlines.
    """
    found = get_openapi(
        title=app.title,
        version=app.version,
        routes=app.routes,
        description=_description(settings),
        servers=app.servers,
    )
    schemas = found.setdefault("components", {}).setdefault("schemas", {})
    for body in _BODIES.values():
        schema = body.model_json_schema(ref_template=_REFERENCE)
        schemas |= schema.pop("$defs", {}) | {body.__name__: schema}
    for name, answer in (_ANSWERS | {"ProblemDocument": ProblemDocument}).items():
        schema = TypeAdapter(answer).json_schema(mode="serialization", ref_template=_REFERENCE)
        schemas |= schema.pop("$defs", {}) | {name: schema}
    _add_examples(found)
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    _describe_defaults(schemas)
    _replace_number_constants(found)
    found["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key."},
        "management": {"type": "http", "scheme": "bearer", "description": "A management key."},
    }
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            if path.startswith("/models/") and method == "post":
                operation["security"] = [{"management": []}]
            elif settings.api_keys_file and not path.startswith(("/health", "/metrics")):
                operation["security"] = [{"key": []}]
            if "HTTPValidationError" in str(operation["responses"].get("422")):  # never returned
                del operation["responses"]["422"]
    return found


def _add_examples(found: Json) -> None:
    """Add an example to every answer, in place."""
    for operations in found["paths"].values():
        for operation in operations.values():
            content = operation["responses"]["200"].get("content", {}).get(JSON, {})
            name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            if name in _ANSWERS:
                content["examples"] = {"an answer": {"value": example(_ANSWERS[name])}}


def _option_parameters(body: type[BaseModel]) -> list[Json]:
    """Return a body's options as query parameters, without defaults: the body's value applies, if any."""
    properties = body.model_json_schema()["properties"]
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "schema": _of_query(name, properties[name]),
            "description": f"As the field of the body. {properties[name].get('description', '')}",
        }
        for name in option_fields(body)
    ]


def _of_query(name: str, schema: Json) -> Json:
    """Return the schema of a query parameter; a curve is text."""
    if name in CURVES:
        return {"type": "string", "description": CURVES[name].text_form.capitalize()}
    return {key: value for key, value in schema.items() if key not in ("description", "title", "default")}


def _problem_responses(codes: str) -> Responses:
    """Return responses by status, with an example per code."""
    responses: Responses = {}
    for code in dict.fromkeys(codes.split()):
        status, title = PROBLEMS[code]
        response = responses.setdefault(
            status,
            {
                "description": title,
                "headers": {"Server-Timing": {"schema": {"type": "string"}}},
                "content": {
                    PROBLEM_MEDIA_TYPE: {
                        "schema": {"$ref": "#/components/schemas/ProblemDocument"},
                        "examples": {},
                    }
                },
            },
        )
        if response["description"] != title:
            response["description"] += "; " + title[0].lower() + title[1:]
        detail = "what is wrong and what to do"
        response["content"][PROBLEM_MEDIA_TYPE]["examples"][code] = {"value": HttpProblem(code, detail).document()}
        if code in RETRY_AFTER_S:
            response["headers"]["Retry-After"] = {"schema": {"type": "integer"}, "description": "Seconds"}
        if status in (401, 405):
            response["headers"]["WWW-Authenticate" if status == 401 else "Allow"] = {"schema": {"type": "string"}}
    return responses


def _describe_defaults(schemas: Json) -> None:
    """Replace default values by words, in place: generated clients would send them, beside a query."""
    for schema in schemas.values():
        for described in schema.get("properties", {}).values():
            value, text = described.pop("default", ""), described.get("description", "")
            if value != "" and not isinstance(value, dict) and "default" not in text:
                described["description"] = f"{text} Default: {orjson.dumps(value).decode()}.".lstrip()


def _replace_number_constants(schema: Any) -> None:
    """Replace constant integers by ranges of one, in place: generators for Kotlin make texts of them."""
    if isinstance(schema, dict):
        if schema.get("type") == "integer" and "const" in schema:
            schema["minimum"] = schema["maximum"] = schema.pop("const")
        for inner in schema.values():
            _replace_number_constants(inner)
    elif isinstance(schema, list):
        for inner in schema:
            _replace_number_constants(inner)


def _description(settings: Settings) -> str:
    """Return the introduction of the document."""

    def table(rows: Any) -> str:
        return "\n".join(f"| `{code}` | {meaning} |" for code, meaning in rows.items())

    problems = "\n".join(f"| {status} | `{code}` | {title} |" for code, (status, title) in PROBLEMS.items())
    return (
        "Designs 2048-tap control filters for active noise control at 48 kHz from a listener's measured acoustic "
        'paths. In place of a list of numbers `{"float32": ".."}` is read too, base64 of little-endian float32. '
        f"Bodies must have a Content-Length: up to {MAX_JSON_BYTES} bytes of JSON, or as safetensors "
        f"{MAX_BODY_BYTES} bytes, {MAX_RECORDINGS_BYTES} with recordings. The default deadline is "
        f"{settings.deadline_ms:g} ms, or {settings.calibration_deadline_ms:g} ms with recordings.\n\n"
        f"Problems (`{PROBLEM_MEDIA_TYPE}`; `type` ends in the code):\n\n"
        f"| | code | |\n|---|---|---|\n{problems}\n\n"
        f"Warnings:\n\n| code | |\n|---|---|\n{table(WARNINGS)}\n\n"
        f"Faults of a calibration:\n\n| code | |\n|---|---|\n{table(REASONS)}\n"
    )

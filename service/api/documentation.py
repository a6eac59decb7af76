"""The OpenAPI document: FastAPI makes it of the handlers and of what is said here beyond their types."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

import orjson
from fastapi import FastAPI
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, TypeAdapter
from starlette.applications import Starlette

from prime_anc import answers
from prime_anc.fields import NUMBER_FORMAT
from prime_anc.measure.checks import REASONS
from service.admission.admission import DEADLINE_HEADER, MAX_JSON_BYTES, Gate
from service.api import examples, reading
from service.api.front import JSON, PREFIX, TAPS, TENSORS, gate_of, is_managing
from service.api.options import CURVES, option_fields
from service.api.reading import Address, read_document
from service.api.warnings import WARNINGS
from service.errors import PROBLEM_MEDIA_TYPE, PROBLEMS, RETRY_AFTER_S, HttpProblem
from service.settings import MAX_DEADLINE_MS, MIN_DEADLINE_MS, Settings

TITLE = "PRIME-ANC"

Json = dict[str, Any]
Responses = dict[int | str, Json]

_ANY = "malformed-request method-not-allowed too-slow internal-error cross-site "
_CLIENT = _ANY + "unauthorised not-acceptable model-unavailable "
_BODY = (
    _ANY + "malformed-json malformed-tensors unauthorised unknown-model not-acceptable length-required too-large "
    "unsupported-media-type unsupported-encoding missing-field unknown-field invalid-field out-of-range wrong-rate "
    "unequal-grids unusable-paths overloaded deadline-passed model-unavailable not-ready "
)
_DESIGN = _BODY + "no-finite-filter "
_OPERATOR = _ANY + "unauthorised not-acceptable length-required too-large unsupported-encoding "


@dataclass(frozen=True)
class Operation:
    """What the document says of an operation beyond the types and the text of its handler."""

    # Codes of its problems, separated by spaces.
    codes: str
    # Type of its answer in JSON.
    answer: Any = None
    # Examples of its body, by name.
    bodies: Json = field(default_factory=dict)
    headers: tuple[str, ...] = ()
    # Media type and description of another form of the answer.
    binary: tuple[str, str] | None = None


_FORMS: Json = {
    "headers": (
        *("Server-Timing", "X-Model-Digest", "X-Refine-Applied", "X-Predicted-NR-dB", "X-Predicted-AMP-dB"),
        "X-Warnings",
    ),
    "binary": (TAPS, "2048 little-endian float32; the X- headers come with this form only."),
}
_DESIGNED = Operation(_DESIGN, answers.DesignAnswer, examples.DESIGN_BODIES, **_FORMS)
_TIMED = ("Server-Timing",)
_MISSING_MODEL = "unknown-model not-found "
OPERATIONS = {
    "synthesize": _DESIGNED,
    "refine": _DESIGNED,
    "hybrid": Operation(_DESIGN, answers.HybridAnswer, examples.HYBRID_BODIES, _TIMED),
    "evaluate": Operation(_BODY, answers.EvaluationAnswer, examples.EVALUATE_BODIES, _TIMED),
    "calibrate": Operation(
        _BODY,
        answers.CalibrationAnswer,
        examples.CALIBRATION_BODIES,
        ("Server-Timing", "X-Verdict"),
        (
            TENSORS,
            "The paths and their coherence as `/refine` takes them. `X-Verdict`, with this form only, holds `passed` "
            "or the codes of the reasons.",
        ),
    ),
    "verify_filter": Operation(_DESIGN, answers.VerificationAnswer, examples.VERIFY_BODIES, _TIMED),
    "export": Operation(
        _BODY,
        answers.ExportAnswer,
        examples.EXPORT_BODIES,
        (*_TIMED, "X-Warnings"),
        (TAPS, "With `file`, that file, in its own media type."),
    ),
    "list_models": Operation(_CLIENT, answers.ModelList),
    "show_model": Operation(_CLIENT + _MISSING_MODEL, answers.ModelDescription),
    "reload_models": Operation(_OPERATOR + "model-unavailable", answers.ResidentModelsAnswer),
    "load_model": Operation(_OPERATOR + _MISSING_MODEL + "model-unavailable", answers.ModelReference),
    "unload_model": Operation(_OPERATOR + _MISSING_MODEL + "default-model", answers.UnloadedModels),
    "live": Operation(_ANY + "not-ready", answers.Live),
    "ready": Operation(_ANY + "not-ready model-unavailable", answers.Ready),
    "metrics": Operation(_ANY),
}

_DEADLINE: Json = {
    "name": DEADLINE_HEADER,
    "in": "header",
    "required": False,
    "schema": {"type": "number", "format": NUMBER_FORMAT, "minimum": MIN_DEADLINE_MS, "maximum": MAX_DEADLINE_MS},
    "description": "Deadline in milliseconds from receipt. If there is not enough time for all updates, fewer are "
    "applied (`refinement.stopped` is `deadline`); if there is not enough for any filter, the answer is 503 at once.",
}


def document(served: Starlette, settings: Settings) -> Json:
    """Make the document.

    Parameters
    ----------
    served
        Application with all addresses.
    settings
        Settings, for limits and required keys.
    """
    lasting = [{"url": PREFIX}]
    app = FastAPI(title=TITLE, version=version("prime-anc"), description=_description(settings), servers=lasting)
    for address in served.routes:
        if isinstance(address, Address) and not (settings.management_port is not None and _is_managing(address)):
            _add(app, address)
    found = app.openapi()
    schemas = found["components"]["schemas"]
    schemas["ProblemDocument"] = TypeAdapter(answers.ProblemDocument).json_schema()
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    _describe_defaults(schemas)
    _replace_number_constants(found)
    found["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key."},
        "management": {"type": "http", "scheme": "bearer", "description": "A management key."},
    }
    needs_key = settings.api_keys or settings.api_keys_file
    for path, operations in found["paths"].items():
        for method, operation in operations.items():
            gate = gate_of(method.upper(), path)
            if gate is Gate.OPERATOR:
                operation["security"] = [{"management": []}]
            elif gate is not Gate.OPEN and needs_key:
                operation["security"] = [{"key": []}]
            if "HTTPValidationError" in str(operation["responses"].get("422")):  # never returned
                del operation["responses"]["422"]
    return found


def _is_managing(address: Address) -> bool:
    return any(is_managing(gate_of(method, address.path), address.path) for method in address.methods or ())


def _add(app: FastAPI, address: Address) -> None:
    """Add the operation of an address."""
    operation_id = address.name
    operation = OPERATIONS[operation_id]
    summary = " ".join((address.handler.__doc__ or "").split()).partition(". ")[0].rstrip(".")
    content: Json = {}
    if operation.answer is not None:
        content[JSON] = {"examples": {"an answer": {"value": examples.example(operation.answer)}}}
    if operation.binary is not None:
        media_type, text = operation.binary
        content[media_type] = {"schema": {"type": "string", "format": "binary", "description": text}}
    headers = {name: {"schema": {"type": "string"}} for name in operation.headers}
    extra: Json = {}
    if address.kind is not None:
        extra = {"parameters": [_DEADLINE], "requestBody": {"content": {JSON: {"examples": operation.bodies}}}}
        if address.read is read_document:
            extra["parameters"] = [*_option_parameters(address.kind), _DEADLINE]
            form = {"type": "string", "format": "binary", "description": reading.__doc__}
            extra["requestBody"]["content"][TENSORS] = {"schema": form}
    app.add_api_route(
        address.path,
        address.handler,
        methods=list((address.methods or set()) - {"HEAD"}),
        operation_id=operation_id,
        summary=summary,
        response_model=operation.answer,
        response_class=PlainTextResponse if operation.answer is None else JSONResponse,
        responses={
            200: {"description": summary, "headers": headers, "content": content},
            **_problem_responses(operation.codes),
        },
        openapi_extra=extra,
    )


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
        f"{settings.max_body_bytes} bytes, {settings.max_calibration_bytes} with recordings. The default deadline is "
        f"{settings.deadline_ms:g} ms, or {settings.calibration_deadline_ms:g} ms with recordings.\n\n"
        f"Problems (`{PROBLEM_MEDIA_TYPE}`; `type` ends in the code):\n\n"
        f"| | code | |\n|---|---|---|\n{problems}\n\n"
        f"Warnings:\n\n| code | |\n|---|---|\n{table(WARNINGS)}\n\n"
        f"Faults of a calibration:\n\n| code | |\n|---|---|\n{table(REASONS)}\n"
    )

"""The parts of the OpenAPI document that types and docstrings do not say: FastAPI assembles the rest."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

import fastapi_offline
import orjson
from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from measurement.checks import REASONS
from service.admission.admission import DEADLINE_HEADER
from service.api.call import BINARY, JSON, NO_SNIFFING
from service.api.open_inference_codec import HEADER_LENGTH, InferenceError, InferenceRequest
from service.api.query_options import DEFAULT_UPDATES
from service.api.request_types import (
    ConditionsBody,
    DesignBody,
    DesignItems,
    EvaluateBody,
    ExportBody,
    ExportConditionsBody,
    Profile,
)
from service.api.warnings import WARNINGS
from service.calibration.takes import CalibrationBody
from service.calibration.verify_body import VerifyBody
from service.errors import PROBLEM_MEDIA_TYPE, PROBLEMS, RETRY_AFTER_S, HttpProblem
from service.settings import MAX_DEADLINE_MS, MIN_DEADLINE_MS, Settings
from synthesis.profiles import MAX_UPDATES

Json = dict[str, Any]
Responses = dict[int | str, Json]

TITLE = "PRIME-ANC"
BODIES: tuple[type[BaseModel], ...] = (
    DesignBody,
    ConditionsBody,
    DesignItems,
    EvaluateBody,
    ExportBody,
    ExportConditionsBody,
    CalibrationBody,
    VerifyBody,
    InferenceRequest,
)
ASSETS = Path(fastapi_offline.__file__).parent / "static"
"""Files of Swagger UI, so that `/docs` works without internet access."""


ANSWERS: dict[str, Any] = {"InferenceError": InferenceError}
"""Types of answers by component name. Their schemas are generated when the document is first requested, because
that takes longer than the rest of the startup."""


def schema_of(name: str) -> Json:
    """A reference to a component."""
    return {"$ref": f"#/components/schemas/{name}"}


def _schema(names: tuple[str, ...]) -> Json:
    """One of these components."""
    return schema_of(names[0]) if len(names) == 1 else {"anyOf": [schema_of(name) for name in names]}


def json_answer(kinds: tuple[Any, ...], description: str, examples: Json, headers: tuple[str, ...] = ()) -> Json:
    """The response 200 of an operation. kinds: possible types of its content."""
    ANSWERS.update({kind.__name__: kind for kind in kinds})
    content = {
        "schema": _schema(tuple(kind.__name__ for kind in kinds)),
        "examples": {name: {"value": value} for name, value in examples.items()},
    }
    return {
        "description": description,
        "headers": {name: {"schema": {"type": "string"}} for name in headers},
        "content": {JSON: content},
    }


def with_binary(answer: Json, description: str) -> Json:
    """The response 200 with a binary format in addition."""
    binary = {"schema": {"type": "string", "format": "binary", "description": description}}
    return answer | {"content": answer["content"] | {BINARY: binary}}


def json_body(schemas: tuple[str, ...], examples: Json) -> Json:
    """A request's body, of one of these components."""
    content = {
        JSON: {"schema": _schema(schemas), "examples": {name: {"value": value} for name, value in examples.items()}}
    }
    return {"required": True, "content": content}


def binary_form(layout: str | None, name: str, example: bytes, note: str = "") -> Json:
    """The binary format of a body. layout: description of its bytes. name, note: of the example, in hexadecimal."""
    described = f"Shown in hexadecimal; send the bytes themselves. {note}".strip()
    return {
        BINARY: {
            "schema": {"type": "string", "format": "binary", "description": layout},
            "examples": {name: {"description": described, "value": example.hex(" ", -4)}},
        }
    }


def problem_responses(codes: str, is_v2: bool = False) -> Responses:
    """Responses by status, with an example for each code."""
    responses: Responses = {}
    for code in dict.fromkeys(codes.split()):
        status, title = PROBLEMS[code]
        media_type, name = (JSON, "InferenceError") if is_v2 else (PROBLEM_MEDIA_TYPE, "ProblemDocument")
        response = responses.setdefault(
            status,
            {
                "description": title,
                "headers": {"Server-Timing": {"schema": {"type": "string"}}},
                "content": {media_type: {"schema": schema_of(name), "examples": {}}},
            },
        )
        if response["description"] != title:
            response["description"] += "; " + title[0].lower() + title[1:]
        detail = "what is wrong and what to do"
        example = {"error": f"{code}: {detail}"} if is_v2 else HttpProblem(code, detail).document()
        response["content"][media_type]["examples"][code] = {"value": example}
        if code in RETRY_AFTER_S:
            response["headers"]["Retry-After"] = {"schema": {"type": "integer"}, "description": "Seconds"}
        if status in (401, 405):
            response["headers"]["WWW-Authenticate" if status == 401 else "Allow"] = {"schema": {"type": "string"}}
    return responses


def parameter(name: str, schema: Json, description: str, place: str = "query") -> Json:
    """A parameter of an operation."""
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "schema": schema,
        "description": description,
        **({"example": {"name": "default", "version": "1"}[name]} if place == "path" else {}),
    }


def binary_options(body: type[BaseModel], names: tuple[str, ...]) -> list[Json]:
    """The fields of a JSON body that are query parameters with a binary body."""
    fields = body.model_json_schema()["properties"]
    return [
        parameter(
            name,
            {key: value for key, value in fields[name].items() if key not in ("description", "title")},
            f"With a binary body only. {fields[name].get('description', '')}".strip(),
        )
        for name in names
    ]


NAME = parameter("name", {"type": "string"}, "`name` (its latest version), `name@version` or an alias", "path")
VERSION = parameter("version", {"type": "string"}, "A version's number", "path")
JSON_LENGTH = parameter(HEADER_LENGTH, {"type": "integer", "minimum": 0}, "Bytes of the JSON object", "header")
DEADLINE = parameter(
    DEADLINE_HEADER,
    {"type": "number", "minimum": MIN_DEADLINE_MS, "maximum": MAX_DEADLINE_MS},
    "Deadline in milliseconds from receipt. If there is not enough time for all updates, fewer are applied "
    "(`refinement.stopped` is `deadline`); if there is not enough for any filter, the answer is 503 at once.",
    "header",
)
LEAVE_ONE_OUT = parameter(
    "leave_one_out",
    {"type": "boolean", "default": False},
    "Of several conditions, also predict for each what a filter designed on the others does there",
)
UPDATES = [
    LEAVE_ONE_OUT,
    parameter(
        "k",
        {"type": "integer", "minimum": 0, "maximum": MAX_UPDATES, "default": DEFAULT_UPDATES},
        "Largest number of Gauss-Newton updates",
    ),
    parameter(
        "profile",
        {"type": "string", "enum": list(get_args(Profile)), "default": "fast"},
        "`fast`: the default, with a ceiling on |W|. `fine`: the same on a grid with twice the points, which "
        "replaces it for responses of more than 4096 samples and spectra of more than 2049 bins. `paper`: as "
        "published.",
    ),
]


def describe(app: FastAPI, settings: Settings, keyed: set[str], managed: set[str]) -> None:
    """Add the OpenAPI document and the page `/docs` to the application.

    keyed, managed: operations that need an API key, or a management key.
    """
    made: Json = {}

    def document() -> Json:
        if not made:
            found = get_openapi(
                title=TITLE, version=version("prime-anc"), description=_description(settings), routes=app.routes
            )
            components = found.setdefault("components", {})
            components["schemas"] = _schemas()
            components["securitySchemes"] = {
                "key": {"type": "http", "scheme": "bearer", "description": "An API key."},
                "management": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A management key of the operator.",
                },
            }
            for route in app.routes:
                if isinstance(route, APIRoute) and route.include_in_schema:
                    operation = found["paths"][route.path][min(route.methods or {"GET"}).lower()]
                    operation["responses"]["200"] = route.responses[
                        200
                    ]  # restores null values, which FastAPI drops
            for operations in found["paths"].values():
                for operation in operations.values():
                    if operation["operationId"] in managed:
                        operation["security"] = [{"management": []}]
                    elif operation["operationId"] in keyed:
                        operation["security"] = [{"key": []}]
            made.update(found)
        return made

    app.openapi = document  # type: ignore[method-assign]
    app.mount("/docs/assets", StaticFiles(directory=ASSETS), name="docs-assets")

    @cache
    def encoded() -> bytes:
        return orjson.dumps(document())

    @app.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
    async def openapi() -> Response:
        # Half a second at the first request, which no other is to wait for.
        return Response(await asyncio.to_thread(encoded), media_type=JSON, headers=NO_SNIFFING)

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        root = request.scope.get("root_path", "")
        page = get_swagger_ui_html(
            openapi_url=f"{root}/openapi.json",
            title=TITLE,
            swagger_js_url=f"{root}/docs/assets/swagger-ui-bundle.js",
            swagger_css_url=f"{root}/docs/assets/swagger-ui.css",
            swagger_favicon_url=f"{root}/docs/assets/favicon.png",
        )
        script = bytes(page.body).partition(b"<script>")[2].partition(b"</script>")[0]
        digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
        page.headers["Content-Security-Policy"] = (
            f"default-src 'none'; script-src 'self' 'sha256-{digest}'; style-src 'self' 'unsafe-inline'; "
            "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return page


def _schemas() -> Json:
    """The components."""
    inputs: list[tuple[str, Literal["validation", "serialization"], TypeAdapter[Any]]]
    inputs = [(body.__name__, "validation", TypeAdapter(body)) for body in BODIES]
    inputs += [(name, "serialization", TypeAdapter(kind)) for name, kind in ANSWERS.items()]
    _, found = TypeAdapter.json_schemas(inputs, ref_template="#/components/schemas/{model}")
    definitions: Json = found["$defs"]
    return definitions


def _description(settings: Settings) -> str:
    def table(rows: Any) -> str:
        return "\n".join(f"| `{code}` | {meaning} |" for code, meaning in rows.items())

    problems = "\n".join(f"| {status} | `{code}` | {title} |" for code, (status, title) in PROBLEMS.items())
    return (
        "Designs 2048-tap control filters for active noise control at 48 kHz from a listener's measured acoustic "
        f"paths. Bodies must have a Content-Length: up to {settings.max_body_bytes} bytes, or "
        f"{settings.max_calibration_bytes} for calibrations. The default deadline is {settings.deadline_ms:g} ms, "
        f"or {settings.calibration_deadline_ms:g} ms for calibrations.\n\n"
        f"Problems (`{PROBLEM_MEDIA_TYPE}`; `type` ends in the code):\n\n"
        f"| | code | |\n|---|---|---|\n{problems}\n\n"
        f"Warnings:\n\n| code | |\n|---|---|\n{table(WARNINGS)}\n\n"
        f"Faults of a calibration:\n\n| code | |\n|---|---|\n{table(REASONS)}\n"
    )

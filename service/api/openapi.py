"""FastAPI's OpenAPI document with its page, which needs no internet, and a description of codes."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import fastapi_offline
import orjson
from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.staticfiles import StaticFiles
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response

from measurement.checks import REASONS
from service.admission.admission import MAX_JSON_BYTES, Gate
from service.api.answer_types import ProblemDocument
from service.api.front import JSON, gate_of
from service.api.open_inference_codec import InferenceError
from service.api.warnings import WARNINGS
from service.errors import PROBLEM_MEDIA_TYPE, PROBLEMS
from service.settings import Settings

TITLE = "PRIME-ANC"

# Files of Swagger UI, so that `/docs` works without internet access.
ASSETS = Path(fastapi_offline.__file__).parent / "static"


def add_document(app: FastAPI, settings: Settings) -> None:
    """Complete FastAPI's document, and serve it with its page.

    Parameters
    ----------
    app
        Application with all routes.
    settings
        Settings, for the required keys.
    """
    made = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = made()
            schemas = found["components"]["schemas"]
            for kind in (ProblemDocument, InferenceError):
                schemas[kind.__name__] = TypeAdapter(kind).json_schema()
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
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
        return app.openapi_schema  # type: ignore[return-value]

    app.openapi = document  # type: ignore[method-assign]
    app.mount("/docs/assets", StaticFiles(directory=ASSETS), name="docs-assets")

    @cache
    def encoded() -> bytes:
        return orjson.dumps(document())

    @app.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
    async def openapi() -> Response:
        # The first request takes half a second, which must not delay others.
        return Response(await asyncio.to_thread(encoded), media_type=JSON)

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


def description(settings: Settings) -> str:
    """Return the introduction of the document."""

    def table(rows: Any) -> str:
        return "\n".join(f"| `{code}` | {meaning} |" for code, meaning in rows.items())

    problems = "\n".join(f"| {status} | `{code}` | {title} |" for code, (status, title) in PROBLEMS.items())
    return (
        "Designs 2048-tap control filters for active noise control at 48 kHz from a listener's measured acoustic "
        f"paths. Bodies must have a Content-Length: up to {MAX_JSON_BYTES} bytes of JSON, or as safetensors "
        f"{settings.max_body_bytes} bytes, {settings.max_calibration_bytes} with recordings. The default deadline is "
        f"{settings.deadline_ms:g} ms, or {settings.calibration_deadline_ms:g} ms with recordings.\n\n"
        f"Problems (`{PROBLEM_MEDIA_TYPE}`; `type` ends in the code):\n\n"
        f"| | code | |\n|---|---|---|\n{problems}\n\n"
        f"Warnings:\n\n| code | |\n|---|---|\n{table(WARNINGS)}\n\n"
        f"Faults of a calibration:\n\n| code | |\n|---|---|\n{table(REASONS)}\n"
    )

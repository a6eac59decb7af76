"""GET /openapi.json and /docs: the OpenAPI document, made once when it is first requested, and its page."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from importlib.util import find_spec
from pathlib import Path

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from service.api.front import JSON
from service.settings import Settings


def add_document(app: Starlette, settings: Settings) -> None:
    """Serve the document of the application's addresses, and its page."""

    making: asyncio.Task[bytes] | None = None

    def encoded() -> bytes:
        # FastAPI, its models and the examples take as long to load as all else: a start does without.
        from service.api.documentation import document

        return orjson.dumps(document(app, settings))

    async def openapi(request: Request) -> Response:
        nonlocal making
        if making is None or (making.done() and (making.cancelled() or making.exception())):
            making = asyncio.create_task(asyncio.to_thread(encoded))  # takes a second, which must not delay others
        return Response(await asyncio.shield(making), media_type=JSON)

    async def docs(request: Request) -> Response:
        from fastapi.openapi.docs import get_swagger_ui_html

        from service.api.documentation import TITLE

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

    # Files of Swagger UI, so that the page works without internet access; found without loading the package.
    package = find_spec("fastapi_offline")
    assert package is not None
    assert package.origin is not None
    app.add_route("/openapi.json", openapi)
    app.add_route("/docs", docs)
    app.mount("/docs/assets", StaticFiles(directory=Path(package.origin).parent / "static"))

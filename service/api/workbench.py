"""GET /: the workbench, a page that needs only this service."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path

import orjson
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response

from prime_anc.hardware.filter_files import NEEDS as FILE_NEEDS
from prime_anc.hardware.targets import targets
from prime_anc.options import controller_schemas
from service.api.options import RefineOptions, option_fields
from service.api.request_types import DesignBody, ExportBody
from service.calibration.verify_body import VerifyBody

FOLDER = Path(str(files("service") / "page"))
KINDS = (".html", ".js", ".css", ".json")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def options_document() -> bytes:
    """Return what the page makes its controls from: the options, the kinds of requests, devices and files."""
    bodies: dict[str, type[BaseModel]] = {"refine": DesignBody, "export": ExportBody, "verify": VerifyBody}
    return orjson.dumps(
        {
            "design": RefineOptions.model_json_schema(),
            "controller": controller_schemas(),
            "of": {kind: sorted(option_fields(body)) for kind, body in bodies.items()},
            "targets": [asdict(target) for target in targets().values()],
            "files": {kind: asdict(needs) for kind, needs in FILE_NEEDS.items()},
        }
    )


def add_workbench(app: Starlette) -> None:
    """Add the page and its files, which are public; the page's requests need keys like any client's."""

    served = {path.name: path for path in FOLDER.iterdir() if path.suffix in KINDS}
    text, options = (FOLDER / "index.html").read_bytes(), cache(options_document)

    async def page(request: Request) -> Response:
        return HTMLResponse(text, headers=HEADERS)

    async def option_model(request: Request) -> Response:
        return Response(options(), headers=HEADERS, media_type="application/json")

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in served:
            raise HTTPException(404)
        return FileResponse(served[name], headers=HEADERS)

    app.add_route("/", page)
    app.add_route("/workbench/options.json", option_model)
    app.add_route("/workbench/{name}", file)

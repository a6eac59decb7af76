"""GET /: the workbench, a page that needs only this service."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from importlib.resources import files
from pathlib import Path

import orjson
from fastapi import APIRouter
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, Response

from prime_anc.hardware.filter_files import NEEDS as FILE_NEEDS
from prime_anc.hardware.targets import targets
from prime_anc.options import controller_schemas
from prime_anc.requests.bodies import DesignBody, ExportBody
from prime_anc.requests.options import RefineOptions, option_fields
from prime_anc.requests.verification import VerifyBody

FOLDER = Path(str(files("service") / "page"))
KINDS = (".html", ".js", ".css", ".json")

router = APIRouter(include_in_schema=False)

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@cache
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


_SERVED = {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*") if path.suffix in KINDS}


@router.get("/")
async def page() -> Response:
    """Answer the page."""
    return FileResponse(_SERVED["index.html"], headers=HEADERS)


@router.get("/guide")
async def guide() -> Response:
    """Answer the fitting guide, as text."""
    return FileResponse(FOLDER / "guide.md", headers=HEADERS, media_type="text/plain; charset=utf-8")


@router.get("/workbench/options.json")
def option_model() -> Response:
    """Answer what the page makes its controls from."""
    return Response(options_document(), headers=HEADERS, media_type="application/json")


@router.get("/workbench/{name:path}")
async def file(name: str) -> Response:
    """Answer a file of the page."""
    if name not in _SERVED:
        raise HTTPException(404)
    return FileResponse(_SERVED[name], headers=HEADERS)

"""GET /: the workbench, a page that needs no network but this service."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response

from synthesis.methods import METHODS

FOLDER = Path(str(files("workbench")))
KINDS = (".html", ".js", ".css", ".json")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def add_workbench(app: FastAPI) -> None:
    """Add the page and its files. Both are open to anybody; the requests that the page sends need keys as any
    client's."""

    methods = "".join(f'<option value="{name}">{name}</option>' for name in METHODS)
    served = {each.name: each for each in FOLDER.iterdir() if each.suffix in KINDS}
    text = (FOLDER / "index.html").read_text(encoding="utf-8").replace("<!-- methods -->", methods)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(text, headers=HEADERS)

    @app.get("/workbench/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if name not in served:
            raise HTTPException(404)
        return FileResponse(served[name], headers=HEADERS)

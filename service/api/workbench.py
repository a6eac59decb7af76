"""GET /: the workbench, a page that needs only this service."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response

from service.api.options import RefineOptions

FOLDER = Path(str(files("workbench")))
KINDS = (".html", ".js", ".css", ".json")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def with_options(page: str) -> str:
    """Fill the page's controls from the option model: choices, ranges and defaults."""
    for name, schema in RefineOptions.model_json_schema()["properties"].items():
        choices = "".join(f'<option value="{item}">{item}</option>' for item in schema.get("enum", ()))
        value = schema.get("default", "")
        default = f'value="{value:g}"' if isinstance(value, float) else f'value="{value}"'
        bounds = f'min="{schema.get("minimum", "")}" max="{schema.get("maximum", "")}" {default}'
        page = page.replace(f"<!-- {name} -->", choices)
        page = page.replace(f'data-option="{name}"', bounds).replace(f'data-default="{name}"', default)
    return page


def add_workbench(app: FastAPI) -> None:
    """Add the page and its files, which are public; the page's requests need keys like any client's."""

    served = {path.name: path for path in FOLDER.iterdir() if path.suffix in KINDS}
    text = with_options((FOLDER / "index.html").read_text(encoding="utf-8"))

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return HTMLResponse(text, headers=HEADERS)

    @app.get("/workbench/{name}", include_in_schema=False)
    async def file(name: str) -> Response:
        if name not in served:
            raise HTTPException(404)
        return FileResponse(served[name], headers=HEADERS)

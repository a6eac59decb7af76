"""Endpoints for models, health and metrics, including the operator's for loading and unloading models."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import orjson
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from model_store.controller import PublishedController
from model_store.store import ModelVersion
from service.api.front import JSON, Service
from service.api.json_answers import accepted, model_document
from service.api.reading import Addresses, refuse_encoding
from service.errors import HttpProblem

addresses = Addresses()

Name = Annotated[
    str, Field(description="`name` (its latest version), `name@version` or an alias", examples=["generic"])
]


def json_response(document: object) -> Response:
    """Return a JSON response with status 200."""
    return Response(orjson.dumps(document), media_type=JSON)


@addresses.get("/models")
async def list_models(request: Request) -> Response:
    """List all published versions, and which of them are in memory."""
    accepted(request.state.visit.accept)
    return json_response(await asyncio.to_thread(_published, request.state.visit.service))


@addresses.get("/models/{name}")
async def show_model(request: Request, name: Name) -> Response:
    """Describe one version, the latest without `@version`."""
    accepted(request.state.visit.accept)
    service = request.state.visit.service

    def description() -> dict[str, Any]:
        return _description(service, service.store.resolve(name))

    return json_response(await asyncio.to_thread(description))


@addresses.post("/models/reload")
async def reload_models(request: Request) -> Response:
    """Resolve all names and aliases in use again, the default model's first."""
    _negotiate_unread(request)
    models = request.state.visit.service.engine.models
    if failed := await models.reload():
        raise HttpProblem(
            "model-unavailable",
            f"{len(failed)} model references could not be loaded; their previous versions stay in use, unless "
            "they were deleted; see the service's log for the reason",
        )
    return json_response({"resident": [model_document(version) for version in models.versions()]})


@addresses.post("/models/{name}/load")
async def load_model(request: Request, name: Name) -> Response:
    """Resolve a name again, then load, verify, check and use that version."""
    _negotiate_unread(request)
    return json_response(model_document(await request.state.visit.service.engine.models.load(name)))


@addresses.post("/models/{name}/unload")
async def unload_model(request: Request, name: Name) -> Response:
    """Unload a version, or every resident version of a name, after running designs have finished."""
    _negotiate_unread(request)
    retired = request.state.visit.service.engine.models.unload(name)
    return json_response({"unloaded": [model_document(version) for version in retired]})


@addresses.get("/health/live")
async def live(request: Request) -> Response:
    """Tell whether the event loop answers, and no restart is needed."""
    request.state.visit.service.engine.require_live()
    return json_response({"status": "live"})


@addresses.get("/health/ready")
async def ready(request: Request) -> Response:
    """Tell whether the default model reproduces its golden case in time, and the service is not shutting down."""
    engine = request.state.visit.service.engine
    engine.require_ready()
    models = [model_document(version) for version in engine.models.versions()]
    return json_response({"status": "ready", "device": engine.device, "models": models})


@addresses.get("/metrics")
async def metrics(request: Request) -> Response:
    """Answer metrics in the Prometheus format that the scraper prefers."""
    content, media_type = request.state.visit.service.metrics.exposition(request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": media_type})


def _negotiate_unread(request: Request) -> None:
    """Check the headers of an endpoint that ignores its body."""
    refuse_encoding(request.headers)
    accepted(request.state.visit.accept)


def _published(service: Service) -> dict[str, Any]:
    return {
        "default": service.engine.models.default_model,
        "aliases": service.store.aliases(),
        "models": [_description(service, version) for version in service.store.list()],
        "controllers": [_manifest(service, item) for item in service.store.list(PublishedController.SUFFIX)],
        "broken": service.store.broken(),
    }


def _description(service: Service, version: ModelVersion) -> dict[str, Any]:
    """Return the public description of a version: its manifest, and whether it is in memory."""
    return _manifest(service, version) | {"resident": version in service.engine.models.versions()}


def _manifest(service: Service, version: ModelVersion) -> dict[str, Any]:
    """Return the public manifest of a version."""
    return service.store.manifest(str(version)).model_dump(mode="json") | model_document(version)

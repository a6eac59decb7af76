"""Endpoints for models, health and metrics, including those with which the operator loads and unloads models."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from model_store.store import ModelVersion
from service.api.context import Service, json_response, service_of
from service.api.json_answers import model_document
from service.api.negotiation import JSON, negotiate_answer, refuse_encoding
from service.errors import Problem


async def list_models(request: Request) -> Response:
    """All published versions, and which of them are in memory."""
    negotiate_answer(request, (JSON,))
    return json_response(await asyncio.to_thread(_published, service_of(request)))


async def show_model(request: Request) -> Response:
    """One version, the latest without `@version`."""
    negotiate_answer(request, (JSON,))
    service, reference = service_of(request), request.path_params["name"]

    def described() -> dict[str, Any]:
        return _description(service, service.store.resolve(reference))

    return json_response(await asyncio.to_thread(described))


async def load_model(request: Request) -> Response:
    """Resolves a name again, then loads, verifies, checks and uses that version."""
    _negotiate_unread(request)
    return json_response(model_document(await service_of(request).engine.models.load(request.path_params["name"])))


async def unload_model(request: Request) -> Response:
    """Unloads a version, or every resident version of a name, after running designs have finished."""
    _negotiate_unread(request)
    retired = service_of(request).engine.models.unload(request.path_params["name"])
    return json_response({"unloaded": [model_document(version) for version in retired]})


async def reload_models(request: Request) -> Response:
    """Resolves all names and aliases in use again, the default model's first."""
    _negotiate_unread(request)
    models = service_of(request).engine.models
    if failed := await models.reload():
        raise Problem(
            "model-unavailable",
            f"{len(failed)} model references could not be loaded; their previous versions stay in use; see the "
            "service's log for the reason",
        )
    return json_response({"resident": [model_document(version) for version in models.versions()]})


async def live(request: Request) -> Response:
    """Whether the event loop answers."""
    return json_response({"status": "live"})


async def ready(request: Request) -> Response:
    """Whether the default model reproduces its golden case in time, and the service is not shutting down."""
    engine = service_of(request).engine
    engine.require_ready()
    models = [model_document(version) for version in engine.models.versions()]
    return json_response({"status": "ready", "device": engine.device, "models": models})


async def metrics(request: Request) -> Response:
    """Metrics in the Prometheus format that the scraper prefers."""
    content, media_type = service_of(request).metrics.exposition(request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": media_type})


def _negotiate_unread(request: Request) -> None:
    """Check the headers of an endpoint that ignores its body."""
    refuse_encoding(request)
    negotiate_answer(request, (JSON,))


def _published(service: Service) -> dict[str, Any]:
    return {
        "default": service.engine.models.default_model,
        "aliases": service.store.aliases(),
        "models": [_description(service, version) for version in service.store.list()],
        "broken": service.store.broken(),
    }


def _description(service: Service, version: ModelVersion) -> dict[str, Any]:
    """The public description of a version: its manifest, and whether it is in memory."""
    document = model_document(version) | {"resident": version in service.engine.models.versions()}
    manifest = service.store.manifest(str(version))
    return document | manifest.model_dump(mode="json", exclude={"files", "name", "version"})

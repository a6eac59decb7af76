"""Endpoints for models, health and metrics, including those with which the operator loads and unloads models."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.responses import Response

from model_store.store import ModelVersion
from service.api.call import JSON, Call, Service, json_response
from service.api.json_answers import model_document
from service.errors import HttpProblem


async def list_models(call: Call) -> Response:
    """All published versions, and which of them are in memory."""
    call.answer_type((JSON,))
    return json_response(await asyncio.to_thread(_published, call.service))


async def show_model(call: Call) -> Response:
    """One version, the latest without `@version`."""
    call.answer_type((JSON,))
    service, reference = call.service, call.path_params["name"]

    def described() -> dict[str, Any]:
        return _description(service, service.store.resolve(reference))

    return json_response(await asyncio.to_thread(described))


async def load_model(call: Call) -> Response:
    """Resolves a name again, then loads, verifies, checks and uses that version."""
    _negotiate_unread(call)
    return json_response(model_document(await call.service.engine.models.load(call.path_params["name"])))


async def unload_model(call: Call) -> Response:
    """Unloads a version, or every resident version of a name, after running designs have finished."""
    _negotiate_unread(call)
    retired = call.service.engine.models.unload(call.path_params["name"])
    return json_response({"unloaded": [model_document(version) for version in retired]})


async def reload_models(call: Call) -> Response:
    """Resolves all names and aliases in use again, the default model's first."""
    _negotiate_unread(call)
    models = call.service.engine.models
    if failed := await models.reload():
        raise HttpProblem(
            "model-unavailable",
            f"{len(failed)} model references could not be loaded; their previous versions stay in use; see the "
            "service's log for the reason",
        )
    return json_response({"resident": [model_document(version) for version in models.versions()]})


async def live(call: Call) -> Response:
    """Whether the event loop answers, and no new process is needed for right filters."""
    call.service.engine.require_live()
    return json_response({"status": "live"})


async def ready(call: Call) -> Response:
    """Whether the default model reproduces its golden case in time, and the service is not shutting down."""
    engine = call.service.engine
    engine.require_ready()
    models = [model_document(version) for version in engine.models.versions()]
    return json_response({"status": "ready", "device": engine.device, "models": models})


async def metrics(call: Call) -> Response:
    """Metrics in the Prometheus format that the scraper prefers."""
    content, media_type = call.service.metrics.exposition(call.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": media_type})


def _negotiate_unread(call: Call) -> None:
    """Check the headers of an endpoint that ignores its body."""
    call.refuse_encoding()
    call.answer_type((JSON,))


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

"""Endpoints for models, health and metrics, including the operator's for loading and unloading models."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Request
from fastapi.responses import PlainTextResponse
from starlette.responses import Response

from model_store.controller import PublishedController
from model_store.store import ModelVersion
from service.api import answer_types, examples
from service.api.documentation import ANY_CODES, CLIENT_CODES, OPERATOR_CODES, described, problem_responses
from service.api.front import JSON, Service
from service.api.json_answers import accepted, model_document
from service.api.reading import refuse_encoding
from service.errors import HttpProblem

router = APIRouter()

Name = Annotated[
    str, Path(description="`name` (its latest version), `name@version` or an alias", examples=["generic"])
]


def json_response(document: object) -> Response:
    """Return a JSON response with status 200."""
    return Response(orjson.dumps(document), media_type=JSON)


@router.head("/models", include_in_schema=False)
@router.get(
    "/models",
    response_model=answer_types.ModelList,
    **described("Published models, and which are in memory", CLIENT_CODES, examples.MODEL_LIST),
)
async def list_models(request: Request) -> Response:
    """List all published versions, and which of them are in memory."""
    accepted(request.state.visit.accept)
    return json_response(await asyncio.to_thread(_published, request.state.visit.service))


@router.head("/models/{name}", include_in_schema=False)
@router.get(
    "/models/{name}",
    response_model=answer_types.ModelDescription,
    **described("One published version", CLIENT_CODES + "unknown-model not-found", examples.MODEL_DESCRIPTION),
)
async def show_model(request: Request, name: Name) -> Response:
    """Describe one version, the latest without `@version`."""
    accepted(request.state.visit.accept)
    service = request.state.visit.service

    def description() -> dict[str, Any]:
        return _description(service, service.store.resolve(name))

    return json_response(await asyncio.to_thread(description))


@router.post(
    "/models/reload",
    response_model=answer_types.ResidentModelsAnswer,
    **described(
        "Resolve all names and aliases again and load what they refer to",
        OPERATOR_CODES + "model-unavailable",
        examples.RELOADED,
    ),
)
async def reload_models(request: Request) -> Response:
    """Resolve all names and aliases in use again, the default model's first."""
    _negotiate_unread(request)
    models = request.state.visit.service.engine.models
    if failed := await models.reload():
        raise HttpProblem(
            "model-unavailable",
            f"{len(failed)} model references could not be loaded; their previous versions stay in use; see the "
            "service's log for the reason",
        )
    return json_response({"resident": [model_document(version) for version in models.versions()]})


@router.post(
    "/models/{name}/load",
    response_model=answer_types.ModelReference,
    **described(
        "Resolve a name again, then load, check and use that version",
        OPERATOR_CODES + "unknown-model model-unavailable not-found",
        examples.LOADED,
    ),
)
async def load_model(request: Request, name: Name) -> Response:
    """Resolve a name again, then load, verify, check and use that version."""
    _negotiate_unread(request)
    return json_response(model_document(await request.state.visit.service.engine.models.load(name)))


@router.post(
    "/models/{name}/unload",
    response_model=answer_types.UnloadedModels,
    **described(
        "Unload a version, or all versions of a name, after running designs",
        OPERATOR_CODES + "unknown-model default-model not-found",
        examples.UNLOADED,
    ),
)
async def unload_model(request: Request, name: Name) -> Response:
    """Unload a version, or every resident version of a name, after running designs have finished."""
    _negotiate_unread(request)
    retired = request.state.visit.service.engine.models.unload(name)
    return json_response({"unloaded": [model_document(version) for version in retired]})


@router.head("/health/live", include_in_schema=False)
@router.get(
    "/health/live",
    response_model=answer_types.Live,
    **described("Whether the event loop answers, and no restart is needed", ANY_CODES + "not-ready", examples.LIVE),
)
async def live(request: Request) -> Response:
    """Tell whether the event loop answers, and no restart is needed."""
    request.state.visit.service.engine.require_live()
    return json_response({"status": "live"})


@router.head("/health/ready", include_in_schema=False)
@router.get(
    "/health/ready",
    response_model=answer_types.Ready,
    **described(
        "Whether the default model is loaded and checked",
        ANY_CODES + "not-ready model-unavailable",
        examples.READY,
    ),
)
async def ready(request: Request) -> Response:
    """Tell whether the default model reproduces its golden case in time, and the service is not shutting down."""
    engine = request.state.visit.service.engine
    engine.require_ready()
    models = [model_document(version) for version in engine.models.versions()]
    return json_response({"status": "ready", "device": engine.device, "models": models})


@router.head("/metrics", include_in_schema=False)
@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    summary="Metrics for Prometheus",
    responses=problem_responses(ANY_CODES),
)
async def metrics(request: Request) -> Response:
    """Metrics in the Prometheus format that the scraper prefers."""
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

"""What is published and in memory; an operator loads and unloads it."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from model_store.listing import description, published
from prime_anc.answers import (
    ModelDescription,
    ModelList,
    ModelReference,
    ResidentModelsAnswer,
    UnloadedModels,
    document,
)
from service.api.openapi import CLIENT_CODES, OPERATOR_CODES, described
from service.api.responses import accepted, plain
from service.api.state import client_key, operator_key, service_of
from service.errors import HttpProblem
from service.models.resident_models import reference_of

reading = APIRouter(dependencies=[Depends(client_key)])
managing = APIRouter(dependencies=[Depends(operator_key)])

Name = Annotated[
    str, Field(description="`name` (its latest version), `name@version` or an alias", examples=["generic"])
]
_MISSING = "unknown-model not-found "


@reading.get("/models", **described(answer=ModelList, codes=CLIENT_CODES))
async def list_models(request: Request) -> Response:
    """List all published versions, and which of them are in memory."""
    accepted(request)
    engine = service_of(request).engine
    resident = engine.models.versions()
    return plain(await asyncio.to_thread(published, engine.store, engine.models.default_model, resident))


@reading.get("/models/{name}", **described(answer=ModelDescription, codes=CLIENT_CODES + _MISSING))
async def show_model(request: Request, name: Name) -> Response:
    """Describe one version, the latest without `@version`."""
    accepted(request)
    store, resident = service_of(request).engine.store, service_of(request).engine.models.versions()
    return plain(await asyncio.to_thread(lambda: description(store, store.resolve(name), resident)))


@managing.post(
    "/models/reload", **described(answer=ResidentModelsAnswer, codes=OPERATOR_CODES + "model-unavailable")
)
async def reload_models(request: Request) -> Response:
    """Resolve all names and aliases in use again, the default model's first."""
    models = service_of(request).engine.models
    if failed := await models.reload():
        raise HttpProblem(
            "model-unavailable",
            f"{len(failed)} model references could not be loaded; their previous versions stay in use, unless "
            "they were deleted; see the service's log for the reason",
        )
    return plain({"resident": [document(reference_of(version)) for version in models.versions()]})


@managing.post(
    "/models/{name}/load",
    **described(answer=ModelReference, codes=OPERATOR_CODES + _MISSING + "model-unavailable"),
)
async def load_model(request: Request, name: Name) -> Response:
    """Resolve a name again, then load, verify, check and use that version."""
    return plain(document(reference_of(await service_of(request).engine.models.load(name))))


@managing.post(
    "/models/{name}/unload", **described(answer=UnloadedModels, codes=OPERATOR_CODES + _MISSING + "default-model")
)
async def unload_model(request: Request, name: Name) -> Response:
    """Unload a version, or every resident version of a name, after running designs have finished."""
    retired = service_of(request).engine.models.unload(name)
    return plain({"unloaded": [document(reference_of(version)) for version in retired]})

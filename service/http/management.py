"""The operator's endpoints: models come and go while the service runs. They take keys of their own."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from service.errors import Problem
from service.formats.answers import model_document
from service.http.context import Service, is_managed, json_response, service_of
from service.http.negotiation import JSON, check_unread, chosen_answer


async def load_model(request: Request) -> Response:
    """POST /models/{name}/load: have in memory what the name stands for now."""
    service = _managed(request)
    version = await service.engine.residency.load(request.path_params["name"])
    return json_response(model_document(version))


async def unload_model(request: Request) -> Response:
    """POST /models/{name}/unload: retire a version, or every resident version of a name."""
    service = _managed(request)
    retired = service.engine.residency.unload(request.path_params["name"])
    return json_response({"unloaded": [model_document(version) for version in retired]})


async def reload_models(request: Request) -> Response:
    """POST /models/reload: follow every alias and name to what it stands for now, the default model's first."""
    residency = _managed(request).engine.residency
    if failed := await residency.reload():
        raise Problem(
            "model-unavailable",
            f"found {len(failed)} references that could not be followed, expected none; what they stood for before "
            "goes on serving, and the service's log says why",
        )
    return json_response({"resident": [model_document(version) for version in residency.versions()]})


def _managed(request: Request) -> Service:
    """The service, for who has a management key. Without any set up nobody has, but who comes by the management
    listener: a published model is the most that a client's request may load."""
    service = service_of(request)
    if not service.management_keys.are_asked_for and not is_managed(request):
        raise Problem(
            "unauthorised",
            "found no management key set up, expected the operator to set one",
            headers={"WWW-Authenticate": "Bearer"},
        )
    service.management_keys.holder(request)
    check_unread(request, service.settings.max_body_bytes)
    chosen_answer(request, (JSON,))
    return service

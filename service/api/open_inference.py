"""Endpoints of the Open Inference Protocol v2, for clients of other model servers."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Request
from pydantic import BaseModel
from starlette.responses import Response

from model_store.store import ModelVersion
from service.api import examples
from service.api import open_inference_codec as codec
from service.api.design import designed
from service.api.documentation import ANY_CODES, DEADLINE, problem_responses
from service.api.front import JSON, TAPS, Service, Visit
from service.api.models import json_response
from service.api.open_inference_codec import EXTENSIONS, HEADER_LENGTH, INPUT_RANK, OUTPUT, PLATFORM
from service.api.reading import (
    Document,
    ReadingRoute,
    as_document,
    parse_json,
    query_options,
    receive_body,
    refuse_type,
)
from synthesis.conventions import N_TAPS

PREFIX = "/v2"
_MODEL_CODES = ANY_CODES + "unauthorised not-found unknown-model model-unavailable "
_INFER_CODES = (
    _MODEL_CODES
    + "malformed-json bad-length length-required too-large unsupported-media-type unsupported-encoding "
    "missing-field unknown-field invalid-field out-of-range unequal-grids unusable-paths no-finite-filter "
    "not-ready overloaded deadline-passed"
)
_NAMED, _VERSION = "/models/{name}", "/models/{name}/versions/{version}"
Name = Annotated[
    str, Path(description="`name` (its latest version), `name@version` or an alias", examples=["generic"])
]
Version = Annotated[str, Path(description="A version's number", examples=["1"])]


class InferenceRoute(ReadingRoute):
    """A route whose body is the protocol's JSON object, followed by binary tensors."""

    async def read(self, request: Request, kind: type[BaseModel]) -> Document:
        """Read the JSON object, and add the bytes after it."""
        # HEADER_LENGTH, not the media type, tells where binary data begin. No page of another site can send that
        # header unasked, as it can a body without a media type.
        refuse_type(request.headers, (JSON, TAPS, "") if HEADER_LENGTH in request.headers else (JSON, TAPS))
        query_options(request.scope["query_string"], None)
        body = memoryview(await receive_body(request))
        end = codec.json_length(request.headers.get(HEADER_LENGTH), len(body))
        request.scope["state"]["attached"] = body[end:]
        return as_document(parse_json(body[:end]), kind)


router = APIRouter(prefix=PREFIX)
infer_router = APIRouter(prefix=PREFIX, route_class=InferenceRoute)


def _described(operation: str, summary: str, codes: str, example: dict[str, Any]) -> dict[str, Any]:
    answer = {"description": summary, "content": {JSON: {"examples": {"an answer": {"value": example}}}}}
    responses = {200: answer, **problem_responses(codes, is_v2=True, model=codec.InferenceError)}
    return {"operation_id": f"v2_{operation}", "summary": summary, "responses": responses}


@router.head("", include_in_schema=False)
@router.get(
    "",
    response_model=codec.InferenceServer,
    **_described("server", "This server and its extensions", ANY_CODES, examples.INFERENCE_SERVER),
)
async def server(request: Request) -> Response:
    """Describe this server and the extensions that it supports."""
    return json_response({"name": PLATFORM, "version": version("prime-anc"), "extensions": EXTENSIONS})


@router.head("/health/live", include_in_schema=False)
@router.get(
    "/health/live",
    response_model=codec.InferenceLive,
    **_described(
        "live",
        "Whether the event loop answers, and no restart is needed",
        ANY_CODES + "not-ready",
        examples.INFERENCE_LIVE,
    ),
)
async def live(request: Request) -> Response:
    """Tell whether the event loop answers, and no restart is needed."""
    request.state.visit.service.engine.require_live()
    return json_response({"live": True})


@router.head("/health/ready", include_in_schema=False)
@router.get(
    "/health/ready",
    response_model=codec.InferenceLive,
    **_described(
        "ready",
        "Whether the service is ready for designs",
        ANY_CODES + "not-ready model-unavailable",
        examples.INFERENCE_LIVE,
    ),
)
async def ready(request: Request) -> Response:
    """Tell whether the service is ready for designs."""
    request.state.visit.service.engine.require_ready()
    return json_response({"live": True, "ready": True})


_TENSORS_OF = "The tensors of a model"


@router.head(_NAMED, include_in_schema=False)
@router.get(
    _NAMED,
    response_model=codec.InferenceModel,
    **_described("model", _TENSORS_OF, _MODEL_CODES, examples.INFERENCE_MODEL),
)
async def model(request: Request, name: Name) -> Response:
    """Describe the tensors of a model; all models have the same."""
    found, versions = await asyncio.to_thread(_published, request.state.visit.service, name)
    return json_response(
        {
            "name": found.name,
            "versions": [str(number) for number in versions],
            "platform": PLATFORM,
            "inputs": [
                {"name": name, "datatype": "FP32", "shape": [-1, 2] if rank == 2 else [-1]}
                for name, rank in INPUT_RANK.items()
            ],
            "outputs": [{"name": OUTPUT, "datatype": "FP32", "shape": [N_TAPS]}],
        }
    )


@router.head(_VERSION, include_in_schema=False)
@router.get(
    _VERSION,
    response_model=codec.InferenceModel,
    **_described("model_version", _TENSORS_OF, _MODEL_CODES, examples.INFERENCE_MODEL),
)
async def model_version(request: Request, name: Name, version: Version) -> Response:
    """Describe the tensors of one version of a model."""
    return await model(request, f"{name}@{version}")


_READY = "Whether a model is ready for inference"


@router.head(_NAMED + "/ready", include_in_schema=False)
@router.get(
    _NAMED + "/ready",
    response_model=codec.InferenceModelReady,
    **_described("model_ready", _READY, _MODEL_CODES + "not-ready", examples.INFERENCE_MODEL_READY),
)
async def model_ready(request: Request, name: Name) -> Response:
    """Tell whether a model is published and the service is ready."""
    service = request.state.visit.service
    service.engine.require_ready()
    found, _ = await asyncio.to_thread(_published, service, name)
    return json_response({"name": found.name, "ready": True})


@router.head(_VERSION + "/ready", include_in_schema=False)
@router.get(
    _VERSION + "/ready",
    response_model=codec.InferenceModelReady,
    **_described("model_ready_version", _READY, _MODEL_CODES + "not-ready", examples.INFERENCE_MODEL_READY),
)
async def model_ready_version(request: Request, name: Name, version: Version) -> Response:
    """Tell whether one version of a model is published and the service is ready."""
    return await model_ready(request, f"{name}@{version}")


_INFER: dict[str, Any] = _described(
    "infer", "Spectra in, filter out (Open Inference Protocol v2)", _INFER_CODES, examples.INFERENCE_ANSWER
) | {
    "response_model": codec.InferenceAnswer,
    "openapi_extra": {
        "parameters": [
            {
                "name": HEADER_LENGTH,
                "in": "header",
                "required": False,
                "schema": {"type": "integer", "minimum": 0},
                "description": "Bytes of the JSON object",
            },
            DEADLINE,
        ],
        "requestBody": {
            "content": {TAPS: {"schema": {"type": "string", "format": "binary", "description": codec.__doc__}}}
        },
    },
}
_INFER["responses"][200]["headers"] = {
    name: {"schema": {"type": "string"}} for name in (HEADER_LENGTH, "Server-Timing")
}
_INFER["responses"][200]["content"][TAPS] = {
    "schema": {"type": "string", "format": "binary", "description": "The JSON object, then 2048 float32"}
}
InferenceBody = Annotated[codec.InferenceRequest, Body(openapi_examples=examples.INFERENCE_BODIES)]


@infer_router.post(_NAMED + "/infer", **_INFER)
async def infer(request: Request, body: InferenceBody, name: Name) -> Response:
    """Design a filter for the inputs `primary` and `secondary`, optionally `reference_psd` and `coherence`; the
    output is `fir`. Binary tensors follow the JSON object."""
    visit: Visit = request.state.visit
    visit.design_method = body.parameters.method
    requested = codec.read_inference(body, request.scope["state"]["attached"], name)
    visit.decoded()
    answered = await designed(request, requested)
    content, json_length, times = codec.encode_answer(body, answered, visit)
    designs = [(answered.model, answered.design)]
    if json_length is None:
        return visit.response(content, times, designs=designs)
    return visit.response(content, times, TAPS, {HEADER_LENGTH: str(json_length)}, designs)


@infer_router.post(_VERSION + "/infer", **_INFER | {"operation_id": "v2_infer_version"})
async def infer_version(request: Request, body: InferenceBody, name: Name, version: Version) -> Response:
    """Design a filter with one version of a model."""
    return await infer(request, body, f"{name}@{version}")


def _published(service: Service, reference: str) -> tuple[ModelVersion, list[int]]:
    """Return a version, and the numbers of all versions of its model."""
    found = service.store.resolve(reference)
    return found, sorted({version.version for version in service.store.list() if version.name == found.name})

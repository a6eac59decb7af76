"""Endpoints of the Open Inference Protocol v2, for clients of other model servers."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

import orjson
from starlette.requests import Request
from starlette.responses import Response

from model_store.store import ModelVersion
from service.api import open_inference_codec as codec
from service.api.context import Call, Service, json_response, service_of, timed_response
from service.api.negotiation import BINARY, JSON, body_type
from service.api.open_inference_codec import EXTENSIONS, HEADER_LENGTH, INPUT_RANK, OUTPUT, PLATFORM
from service.api.query_options import read_options
from service.api.request_types import validated
from service.errors import Problem
from synthesis.conventions import N_TAPS

PREFIX = "/v2"


def problem_response(problem: Problem) -> Response:
    """A problem in the protocol's format: one text that starts with the stable code."""
    plain = problem.response()
    headers = {name: value for name, value in plain.headers.items() if not name.startswith("content-")}
    content = orjson.dumps({"error": f"{problem.code}: {problem.detail}"})
    return Response(content, plain.status_code, headers=headers, media_type=JSON)


async def server(request: Request) -> Response:
    """This server and the extensions that it supports."""
    return json_response({"name": PLATFORM, "version": version("prime-anc"), "extensions": EXTENSIONS})


async def live(request: Request) -> Response:
    """Whether the event loop answers."""
    return json_response({"live": True})


async def ready(request: Request) -> Response:
    """Whether the service is ready for designs."""
    service_of(request).engine.require_ready()
    return json_response({"live": True, "ready": True})


async def model(request: Request) -> Response:
    """The tensors of a model; all models have the same."""
    found, versions = await asyncio.to_thread(_published, service_of(request), _reference(request))
    return json_response(
        {
            "name": found.name,
            "versions": [str(each) for each in versions],
            "platform": PLATFORM,
            "inputs": [
                {"name": name, "datatype": "FP32", "shape": [-1, 2] if rank == 2 else [-1]}
                for name, rank in INPUT_RANK.items()
            ],
            "outputs": [{"name": OUTPUT, "datatype": "FP32", "shape": [N_TAPS]}],
        }
    )


async def model_ready(request: Request) -> Response:
    """Whether a model is published and the service is ready."""
    service = service_of(request)
    service.engine.require_ready()
    found, _ = await asyncio.to_thread(_published, service, _reference(request))
    return json_response({"name": found.name, "ready": True})


async def infer(request: Request) -> Response:
    """Inputs `primary` and `secondary`, optionally `reference_psd` and `coherence`; output `fir`. Binary tensors
    follow the JSON object."""
    call = Call(request)
    body_type(request, (JSON, BINARY, ""))  # HEADER_LENGTH, not the media type, tells where binary data begin
    read_options(request.query_params, (), 0)
    body = memoryview(await call.receive())
    end = codec.json_length(request.headers.get(HEADER_LENGTH), len(body))
    asked = validated(codec.InferenceRequest, await call.parse(body[:end]))
    request.state.method = asked.parameters.method
    wanted = codec.design_request(asked, body[end:], _reference(request))
    call.watch.decoded()
    answered = await wanted.answered(call)
    content, json_length, times = codec.encode_answer(asked, answered, call.watch)
    call.service.observe_times(times)
    call.service.metrics.observe_design(answered.answer)
    if json_length is None:
        return timed_response(content, times)
    return timed_response(content, times, BINARY, **{HEADER_LENGTH: str(json_length)})


def _reference(request: Request) -> str:
    """The model named in the URL, as a reference of the store."""
    name, number = request.path_params["name"], request.path_params.get("version")
    return name if number is None else f"{name}@{number}"


def _published(service: Service, reference: str) -> tuple[ModelVersion, list[int]]:
    """A version, and the numbers of all of its model's versions."""
    found = service.store.resolve(reference)
    return found, sorted({each.version for each in service.store.list() if each.name == found.name})

"""Endpoints of the Open Inference Protocol v2, for clients of other model servers."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

import orjson
from starlette.responses import Response

from model_store.store import ModelVersion
from service.api import open_inference_codec as codec
from service.api.call import BINARY, JSON, Call, Service, json_response, timed_response
from service.api.open_inference_codec import EXTENSIONS, HEADER_LENGTH, INPUT_RANK, OUTPUT, PLATFORM
from service.api.query_options import read_options
from service.api.request_types import validated
from service.errors import HttpProblem
from synthesis.conventions import N_TAPS

PREFIX = "/v2"


def problem_response(problem: HttpProblem) -> Response:
    """A problem in the protocol's format: one text that starts with the stable code."""
    plain = problem.response()
    headers = {name: value for name, value in plain.headers.items() if not name.startswith("content-")}
    content = orjson.dumps({"error": f"{problem.code}: {problem.detail}"})
    return Response(content, plain.status_code, headers=headers, media_type=JSON)


async def server(call: Call) -> Response:
    """This server and the extensions that it supports."""
    return json_response({"name": PLATFORM, "version": version("prime-anc"), "extensions": EXTENSIONS})


async def live(call: Call) -> Response:
    """Whether the event loop answers, and no new process is needed for right filters."""
    call.service.engine.require_live()
    return json_response({"live": True})


async def ready(call: Call) -> Response:
    """Whether the service is ready for designs."""
    call.service.engine.require_ready()
    return json_response({"live": True, "ready": True})


async def model(call: Call) -> Response:
    """The tensors of a model; all models have the same."""
    found, versions = await asyncio.to_thread(_published, call.service, _reference(call))
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


async def model_ready(call: Call) -> Response:
    """Whether a model is published and the service is ready."""
    service = call.service
    service.engine.require_ready()
    found, _ = await asyncio.to_thread(_published, service, _reference(call))
    return json_response({"name": found.name, "ready": True})


async def infer(call: Call) -> Response:
    """Inputs `primary` and `secondary`, optionally `reference_psd` and `coherence`; output `fir`. Binary tensors
    follow the JSON object."""
    # HEADER_LENGTH, not the media type, tells where binary data begin. No page of another site can send that header
    # unasked, as it can a body without a media type.
    call.body_type((JSON, BINARY, "") if HEADER_LENGTH in call.headers else (JSON, BINARY))
    read_options(call.scope["query_string"], (), 0)
    body = memoryview(await call.receive_body())
    end = codec.json_length(call.headers.get(HEADER_LENGTH), len(body))
    asked = validated(codec.InferenceRequest, await call.parse(body[:end]))
    call.design_method = asked.parameters.method
    wanted = codec.design_request(asked, body[end:], _reference(call))
    call.decoded()
    answered = await wanted.answered(call)
    content, json_length, times = codec.encode_answer(asked, answered, call)
    call.observe(times, [(answered.model, answered.design)])
    if json_length is None:
        return timed_response(content, times)
    return timed_response(content, times, BINARY, **{HEADER_LENGTH: str(json_length)})


def _reference(call: Call) -> str:
    """The model named in the URL, as a reference of the store."""
    name, number = call.path_params["name"], call.path_params.get("version")
    return name if number is None else f"{name}@{number}"


def _published(service: Service, reference: str) -> tuple[ModelVersion, list[int]]:
    """A version, and the numbers of all of its model's versions."""
    found = service.store.resolve(reference)
    return found, sorted({each.version for each in service.store.list() if each.name == found.name})

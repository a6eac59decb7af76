"""The endpoints of the Open Inference Protocol v2, for clients that speak to any model server."""

from __future__ import annotations

import asyncio
from functools import partial
from importlib.metadata import version

import orjson
from starlette.requests import Request
from starlette.responses import Response

from model_store.store import ModelVersion
from service.errors import Problem
from service.formats import answers, open_inference
from service.formats.open_inference import EXTENSIONS, HEADER_LENGTH, INPUT_RANK, OUTPUT
from service.formats.options import read_options
from service.http import advice
from service.http.context import Service, admitted, charge, design_body, json_response, service_of
from service.http.negotiation import BINARY, JSON, body_type, until_gone
from synthesis.conventions import N_TAPS
from synthesis.errors import SynthesisError

PREFIX = "/v2"
SERVER_NAME = "prime-anc"


def refusal(problem: Problem) -> Response:
    """A problem in the protocol's form: one text, which starts with the stable code."""
    plain = problem.response()
    headers = {name: value for name, value in plain.headers.items() if not name.startswith("content-")}
    content = orjson.dumps({"error": f"{problem.code}: {problem.detail}"})
    return Response(content, plain.status_code, headers=headers, media_type=JSON)


async def server(request: Request) -> Response:
    """GET /v2: what this server is and which extensions it speaks."""
    return json_response({"name": SERVER_NAME, "version": version("prime-anc"), "extensions": EXTENSIONS})


async def live(request: Request) -> Response:
    """GET /v2/health/live: the event loop answers."""
    return json_response({"live": True})


async def ready(request: Request) -> Response:
    """GET /v2/health/ready: the default model is resident, warmed up and checked."""
    service_of(request).engine.readiness.require()
    return json_response({"live": True, "ready": True})


async def model(request: Request) -> Response:
    """GET /v2/models/{name}[/versions/{version}]: the tensors of a model, which are those of every model."""
    service = service_of(request)
    charge(request, service)
    found, versions = await asyncio.to_thread(_published, service, _reference(request))
    return json_response(
        {
            "name": found.name,
            "versions": [str(each) for each in versions],
            "platform": SERVER_NAME,
            "inputs": [
                {"name": name, "datatype": "FP32", "shape": [-1, 2] if rank == 2 else [-1]}
                for name, rank in INPUT_RANK.items()
            ],
            "outputs": [{"name": OUTPUT, "datatype": "FP32", "shape": [N_TAPS]}],
        }
    )


async def model_ready(request: Request) -> Response:
    """GET /v2/models/{name}[/versions/{version}]/ready: it is published, and the service is ready to load it."""
    service = service_of(request)
    charge(request, service)
    service.engine.readiness.require()
    found, _ = await asyncio.to_thread(_published, service, _reference(request))
    return json_response({"name": found.name, "ready": True})


async def infer(request: Request) -> Response:
    """POST /v2/models/{name}[/versions/{version}]/infer: spectra in, filter out."""
    service, watch, gone = service_of(request), answers.Stopwatch(), partial(until_gone, request)
    due = admitted(request, service, watch)
    body_type(request, (JSON, BINARY, ""))  # the header below, not the type, says what the body is
    read_options(request.query_params, (), 0)
    body = await design_body(request, service, due)
    watch.body_read()
    end = open_inference.json_length(request.headers.get(HEADER_LENGTH), len(body))
    asked = open_inference.read_request(await service.side_lane.load(memoryview(body)[:end], due, gone))
    recipe = open_inference.recipe_of(asked, _reference(request))
    request.state.method = recipe.method
    ear = open_inference.read_ear(asked, memoryview(body)[end:])
    watch.decoded()
    (design,) = await service.engine.design(recipe.for_ear(ear), [ear], due, gone)
    if isinstance(design, SynthesisError):
        raise design
    content, json_length, times = open_inference.answer(
        asked, design, advice.advise(ear, design.figures, design.replaces), watch
    )
    service.metrics.observe_times(times)
    service.metrics.observe_design(design)
    headers = {"Server-Timing": answers.server_timing(times)}
    if json_length is None:
        return Response(content, headers=headers, media_type=JSON)
    return Response(content, headers=headers | {HEADER_LENGTH: str(json_length)}, media_type=BINARY)


def _reference(request: Request) -> str:
    """The model that the address names, as the store refers to it."""
    name, number = request.path_params["name"], request.path_params.get("version")
    return name if number is None else f"{name}@{number}"


def _published(service: Service, reference: str) -> tuple[ModelVersion, list[int]]:
    """A version, and the numbers of all of its model's versions."""
    found = service.store.resolve(reference)
    return found, sorted({each.version for each in service.store.list() if each.name == found.name})

"""The Open Inference Protocol v2 in JSON, for clients of other model servers.

    primary, secondary   FP32 [bins, 2]   spectra: real and imaginary part per bin
    feedback             FP32 [bins, 2]   optional
    coherence            FP32 [bins]      optional
    reference_psd        FP32 [bins]      optional
    weight               FP32 [conditions]   optional
    fir                  FP32 [2048]      the answer

For one filter for several conditions, the first four have a further dimension in front, [conditions,
bins, 2] and [conditions, bins]. Numbers are in `data`, flat or in rows.

https://github.com/kserve/open-inference-protocol (specification/protocol/inference_rest.md)
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from itertools import chain
from time import perf_counter
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from pydantic import BaseModel, BeforeValidator, Field, WithJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from model_store.store import ModelVersion
from service.api.design import designed
from service.api.front import JSON, Service, Times, Visit
from service.api.json_answers import Answered, dumped, prediction_document, refinement_document
from service.api.models import Name, json_response
from service.api.options import CURVES, RefineOptions
from service.api.paths import floats
from service.api.problem import DesignRequest, design_request
from service.api.reading import (
    Addresses,
    Document,
    body_fields,
    media_type_of,
    parse_json,
    query_options,
    receive_body,
    validate_object,
)
from service.api.request_types import DesignItem
from service.api.strict import Absent, StrictModel
from service.errors import HttpProblem
from synthesis.conventions import N_TAPS, SAMPLE_RATE_HZ
from synthesis.options import DEFAULT_MAX_GAIN_DB, NUMBER_FORMAT
from synthesis.types import MAX_CONDITIONS, Float32

_PLATFORM = "prime-anc"
OUTPUT = "fir"
INPUT_RANK = {"primary": 2, "secondary": 2, "feedback": 2, "coherence": 1, "reference_psd": 1, "weight": 1}
"""Dimensions of the inputs of one condition."""
PER_CONDITION = ("primary", "secondary", "feedback", "coherence")
REQUIRED = ("primary", "secondary")

_DATA = {
    "type": "array",
    "items": {"type": "number", "format": NUMBER_FORMAT},
    "description": "Row by row; rows may also be lists of their own",
}


def _curve_of(name: str) -> BeforeValidator:
    """Return the validator of a curve: a parameter of this protocol is a single value, so it is text."""
    reader = CURVES[name]
    return BeforeValidator(lambda value: (reader.of_text if isinstance(value, str) else reader.of_json)(value))


class InferenceInput(StrictModel):
    """One input tensor."""

    name: Literal["primary", "secondary", "feedback", "coherence", "reference_psd", "weight"]
    shape: list[int] = Field(min_length=1, max_length=3)
    """[bins, 2] of a path, [bins] of a quantity per bin; of several conditions, with their number in front."""
    datatype: Literal["FP32"]
    data: Annotated[Any, WithJsonSchema(_DATA)] = None


class InferenceOutput(StrictModel):
    """The requested output."""

    name: Literal["fir"]
    parameters: dict[str, Any] = Field(default_factory=dict)
    """Ignored: the taps are in `data`, whatever `binary_data` asks for."""


class InferenceParameters(RefineOptions):
    """Parameters of the request: the options of `/refine` but the model, which the URL names."""

    max_gain_db: Annotated[Any, _curve_of("max_gain_db"), WithJsonSchema({"type": "string"})] = DEFAULT_MAX_GAIN_DB
    """Ceiling on |W| in dB: a number, as text too, or a curve, `frequency:gain` pairs such as `100:12,1000:24`."""
    band_weights: Annotated[Any, _curve_of("band_weights"), WithJsonSchema({"type": "string"})] = None
    """Weights of bands in the mean noise reduction, a curve as text."""
    binary_data_output: bool = False
    """Ignored: the taps are in `data`."""


class InferenceRequest(StrictModel):
    """The JSON object of an inference request."""

    id: Absent[Annotated[str, Field(max_length=1024)]] = None
    """Returned with the answer."""
    model_name: Absent[str] = None
    """Ignored: the URL names the model."""
    parameters: InferenceParameters = Field(default_factory=InferenceParameters)
    inputs: list[InferenceInput] = Field(min_length=2, max_length=len(INPUT_RANK))
    outputs: list[InferenceOutput] = Field(default_factory=list, max_length=1)


addresses = Addresses()
_MODEL, _VERSION = "/v2/models/{name}", "/v2/models/{name}/versions/{version}"
Version = Annotated[str, Field(description="A version's number", examples=["1"])]


async def _read(request: Request, kind: type[BaseModel]) -> Document:
    """Read the body, whose options are in it alone."""
    media_type_of(request.headers, (JSON,))
    query_options(request.scope["query_string"], None)
    return body_fields(parse_json(await receive_body(request)), kind)


@addresses.get("/v2")
async def server(request: Request) -> Response:
    """Describe this server and the extensions that it supports."""
    return json_response({"name": _PLATFORM, "version": version("prime-anc"), "extensions": ["parameters"]})


@addresses.get("/v2/health/live")
async def live(request: Request) -> Response:
    """Tell whether the event loop answers, and no restart is needed."""
    request.state.visit.service.engine.require_live()
    return json_response({"live": True})


@addresses.get("/v2/health/ready")
async def ready(request: Request) -> Response:
    """Tell whether the service is ready for designs."""
    request.state.visit.service.engine.require_ready()
    return json_response({"live": True, "ready": True})


@addresses.get(_MODEL)
async def model(request: Request, name: Name) -> Response:
    """Describe the tensors of a model; all models have the same."""
    found, versions = await asyncio.to_thread(_published, request.state.visit.service, name)
    return json_response(
        {
            "name": found.name,
            "versions": [str(number) for number in versions],
            "platform": _PLATFORM,
            "inputs": [
                {"name": name, "datatype": "FP32", "shape": [-1, 2] if rank == 2 else [-1]}
                for name, rank in INPUT_RANK.items()
            ],
            "outputs": [{"name": OUTPUT, "datatype": "FP32", "shape": [N_TAPS]}],
        }
    )


@addresses.get(_VERSION)
async def model_version(request: Request, name: Name, version: Version) -> Response:
    """Describe the tensors of one version of a model."""
    return await model(request, f"{name}@{version}")


@addresses.get(_MODEL + "/ready")
async def model_ready(request: Request, name: Name) -> Response:
    """Tell whether a model is published and the service is ready."""
    service = request.state.visit.service
    service.engine.require_ready()
    found, _ = await asyncio.to_thread(_published, service, name)
    return json_response({"name": found.name, "ready": True})


@addresses.get(_VERSION + "/ready")
async def model_ready_version(request: Request, name: Name, version: Version) -> Response:
    """Tell whether one version of a model is published and the service is ready."""
    return await model_ready(request, f"{name}@{version}")


@addresses.post(_MODEL + "/infer", _read)
async def infer(request: Request, body: InferenceRequest, name: Name) -> Response:
    """Design a filter for the inputs `primary` and `secondary`, optionally `reference_psd` and `coherence`; the
    output is `fir`."""
    visit: Visit = request.state.visit
    visit.design_method = body.parameters.method
    requested = read_inference(body, name)
    visit.decoded()
    answered = await designed(request, requested)
    content, times = _encoded(body, answered, visit)
    return visit.response(content, times, designs=[(answered.model, answered.design)])


@addresses.post(_VERSION + "/infer", _read)
async def infer_version(request: Request, body: InferenceRequest, name: Name, version: Version) -> Response:
    """Design a filter with one version of a model."""
    return await infer(request, body, f"{name}@{version}")


def _published(service: Service, reference: str) -> tuple[ModelVersion, list[int]]:
    """Return a version, and the numbers of all versions of its model."""
    found = service.store.resolve(reference)
    return found, sorted({version.version for version in service.store.list() if version.name == found.name})


def read_inference(request: InferenceRequest, model: str) -> DesignRequest:
    """Convert a request to a design.

    Parameters
    ----------
    request
        Checked request.
    model
        The reference in the URL.

    Raises
    ------
    HttpProblem
        The request is invalid.
    """
    if request.parameters.model is not None:
        raise HttpProblem(
            "unknown-field", "parameters.model: the URL names the model; remove it", "parameters.model"
        )
    tensors: dict[str, Float32] = {}
    for place, tensor in enumerate(request.inputs):
        if tensor.name in tensors:
            raise HttpProblem(
                "invalid-field", f"inputs: {tensor.name} is repeated; send it once", f"inputs.{place}"
            )
        tensors[tensor.name] = _numbers(tensor, f"inputs.{place}")
    for name in REQUIRED:
        if name not in tensors:
            raise HttpProblem("missing-field", f"inputs: {name} is missing; send it", "inputs")
    names = request.parameters.model_fields_set - {"binary_data_output"}
    document: dict[str, Any] = {name: getattr(request.parameters, name) for name in names}
    document |= {"sample_rate": SAMPLE_RATE_HZ, "model": model}
    if "reference_psd" in tensors:
        document["reference_psd"] = tensors["reference_psd"]
    n = _n_conditions(request.inputs)
    conditions = [
        {
            name: item if name == "coherence" else item.view(np.complex64)
            for name in PER_CONDITION
            if name in tensors
            for item in [tensors[name].reshape(n or 1, -1)[place]]
        }
        for place in range(n or 1)
    ]
    weights = tensors.get("weight")
    if n:
        document["conditions"] = [
            condition | ({} if weights is None else {"weight": float(weights[place])})
            for place, condition in enumerate(conditions)
        ]
    else:
        document |= conditions[0]
    return design_request(validate_object(DesignItem, document))


def _n_conditions(inputs: Sequence[InferenceInput]) -> int:
    """Return the leading dimension of the shapes, 0 if there is none; HttpProblem if the shapes disagree."""
    numbers = {
        item.name: item.shape[0] if len(item.shape) > INPUT_RANK[item.name] else 0
        for item in inputs
        if item.name in PER_CONDITION
    }
    n = numbers["primary"]
    if n > MAX_CONDITIONS:
        raise HttpProblem("out-of-range", f"inputs: {n} conditions; send 1 to {MAX_CONDITIONS}", "inputs")
    if set(numbers.values()) != {n}:
        found = ", ".join(f"{name} {number}" for name, number in numbers.items())
        raise HttpProblem(
            "invalid-field", f"inputs: conditions in front of the shapes: {found}; send as many", "inputs"
        )
    weights = [item.shape[0] for item in inputs if item.name == "weight"]
    if weights and weights[0] != max(n, 1):
        raise HttpProblem("invalid-field", f"inputs: {weights[0]} weights for {max(n, 1)} conditions", "inputs")
    return n


def _n_elements(tensor: InferenceInput, field: str) -> int:
    """Return the number of elements; HttpProblem if the shape is invalid for this input."""
    shape = tensor.shape
    rank = INPUT_RANK[tensor.name]
    ranks = (rank, rank + 1) if tensor.name in PER_CONDITION else (rank,)
    if len(shape) not in ranks or min(shape) < 1 or (rank == 2 and shape[-1] != 2):
        expected = "[bins, 2] or [conditions, bins, 2]" if rank == 2 else "[bins] or [conditions, bins]"
        expected = "[conditions]" if tensor.name == "weight" else expected
        raise HttpProblem("invalid-field", f"{field}.shape: {shape} is invalid; send {expected}", f"{field}.shape")
    return math.prod(shape)


def _numbers(tensor: InferenceInput, field: str) -> Float32:
    """Read the numbers of `data`, flat."""
    n = _n_elements(tensor, field)
    data, field = tensor.data, f"{field}.data"
    if data is None:
        raise HttpProblem("missing-field", f"{field}: the numbers are missing; send them", field)
    if isinstance(data, list) and data and all(type(item) is list for item in data):
        if [len(data), *{len(item) for item in data}] != tensor.shape:
            raise HttpProblem("invalid-field", f"{field}: the rows do not have the shape {tensor.shape}", field)
        data = list(chain.from_iterable(data))
    values = floats(data, field)
    if len(values) != n:
        raise HttpProblem("invalid-field", f"{field}: {len(values)} numbers, but shape has {n}", field)
    return values


def _encoded(request: InferenceRequest, answered: Answered, visit: Visit) -> tuple[bytes, Times]:
    """Encode the answer; also return the times."""
    began, design, model = perf_counter(), answered.design, answered.model
    taps = orjson.Fragment(dumped(answered.taps))
    times = visit.spent_ms(design.times_ms, began)
    output = {"name": OUTPUT, "datatype": "FP32", "shape": [N_TAPS], "data": taps}
    document = {
        "model_name": model.name,
        "model_version": str(model.version),
        "outputs": [output | {"parameters": _parameters(answered, times)}],
    }
    if request.id is not None:
        document["id"] = request.id
    return dumped(document), times


def _parameters(answered: Answered, times: Times) -> dict[str, Any]:
    """Return the fields of `/refine`'s JSON answer besides the taps.

    The protocol's parameters are single values: names are dotted, and lists are JSON text.
    """
    design = answered.design
    found: dict[str, Any] = {
        "method": design.method,
        "sign": answered.sign,
        "digest": answered.model.digest,
        "warnings": ", ".join(warning["code"] for warning in answered.warnings),
    }
    found |= _dotted("refinement", refinement_document(design))
    found |= _dotted("prediction", prediction_document(design.prediction, answered.has_level))
    if design.loop is not None:
        found |= _dotted("loop", asdict(design.loop))
    return found | _dotted("timings_ms", times)


def _dotted(prefix: str, members: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in members.items():
        if isinstance(value, dict):
            found |= _dotted(f"{prefix}.{name}", value)
        elif isinstance(value, list | np.ndarray):
            found[f"{prefix}.{name}"] = dumped(value).decode()
        elif value is not None:
            found[f"{prefix}.{name}"] = value
    return found

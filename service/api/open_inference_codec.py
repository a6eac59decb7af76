"""The Open Inference Protocol v2 and its binary tensor extension: request and answer types, and their codec.

    primary, secondary   FP32 [bins, 2]   spectra: real and imaginary part per bin
    feedback             FP32 [bins, 2]   optional
    coherence            FP32 [bins]      optional
    reference_psd        FP32 [bins]      optional
    weight               FP32 [conditions]   optional
    fir                  FP32 [2048]      the answer

For one filter for several conditions, the first four have a further dimension in front, [conditions,
bins, 2] and [conditions, bins].

The JSON object describes every tensor. Its numbers are in `data`, flat or in rows, or, if the tensor has a
parameter `binary_data_size`, follow the object as little-endian float32, in the order of the tensors; the header
`Inference-Header-Content-Length` is then the length of the object in bytes.

https://github.com/kserve/open-inference-protocol (specification/protocol/inference_rest.md) and
https://github.com/triton-inference-server/server (docs/protocol/extension_binary_data.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from time import perf_counter
from typing import Annotated, Any, Literal, NotRequired

import numpy as np
import orjson
from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, with_config
from typing_extensions import TypedDict

from service.api.answer_types import Taps
from service.api.front import Times, Visit
from service.api.json_answers import Answered, dumped, prediction_document, refinement_document
from service.api.options import CURVES, RefineOptions
from service.api.paths import floats
from service.api.problem import DesignRequest, design_request
from service.api.reading import validated
from service.api.request_types import DesignItem
from service.api.strict import Absent, StrictModel
from service.errors import HttpProblem
from synthesis.conventions import N_TAPS, SAMPLE_RATE_HZ
from synthesis.options import DEFAULT_MAX_GAIN_DB
from synthesis.types import MAX_CONDITIONS, Float32

HEADER_LENGTH = "Inference-Header-Content-Length"
EXTENSIONS = ("binary_tensor_data", "parameters")
PLATFORM = "prime-anc"
OUTPUT = "fir"
INPUT_RANK = {"primary": 2, "secondary": 2, "feedback": 2, "coherence": 1, "reference_psd": 1, "weight": 1}
"""Dimensions of the inputs of one condition."""
PER_CONDITION = ("primary", "secondary", "feedback", "coherence")
REQUIRED = ("primary", "secondary")

_NUMBERS: dict[str, Any] = {"type": "array", "items": {"type": "number", "format": "float"}}
_DATA = {
    **_NUMBERS,
    "description": "Row by row; rows may also be lists of their own",
}


_NUMBER_OR_TEXT = {"anyOf": [{"type": "number", "format": "float"}, {"type": "string"}]}


def _curve_of(name: str) -> BeforeValidator:
    """Return the validator of a curve: a parameter of this protocol is a single value, so it is text."""
    reader = CURVES[name]
    return BeforeValidator(lambda value: (reader.of_text if isinstance(value, str) else reader.of_json)(value))


class InputParameters(StrictModel):
    """Parameters of an input."""

    binary_data_size: Absent[Annotated[int, Field(ge=0)]] = None
    """Bytes of this tensor after the JSON object."""


class InferenceInput(StrictModel):
    """One input tensor."""

    name: Literal["primary", "secondary", "feedback", "coherence", "reference_psd", "weight"]
    shape: list[int] = Field(min_length=1, max_length=3)
    """[bins, 2] of a path, [bins] of a quantity per bin; of several conditions, with their number in front."""
    datatype: Literal["FP32"]
    parameters: InputParameters = Field(default_factory=InputParameters)
    data: Annotated[Any, WithJsonSchema(_DATA)] = None


class OutputParameters(StrictModel):
    """Parameters of the output."""

    binary_data: Absent[bool] = None
    """Whether the taps follow the JSON object in binary; default: `binary_data_output`."""


class InferenceOutput(StrictModel):
    """The requested output."""

    name: Literal["fir"]
    parameters: OutputParameters = Field(default_factory=OutputParameters)


class InferenceParameters(RefineOptions):
    """Parameters of the request: the options of `/refine` but the model, which the URL names."""

    max_gain_db: Annotated[Any, _curve_of("max_gain_db"), WithJsonSchema(_NUMBER_OR_TEXT)] = DEFAULT_MAX_GAIN_DB
    """Ceiling on |W| in dB: a number, or a curve as text, `frequency:gain` pairs such as `100:12,1000:24`."""
    band_weights: Annotated[Any, _curve_of("band_weights"), WithJsonSchema({"type": "string"})] = None
    """Weights of bands in the mean noise reduction, a curve as text."""
    binary_data_output: bool = False
    """Whether the taps follow the JSON object in binary."""


class InferenceRequest(StrictModel):
    """The JSON object of an inference request."""

    id: Absent[Annotated[str, Field(max_length=1024)]] = None
    """Returned with the answer."""
    model_name: Absent[str] = None
    """Ignored: the URL names the model."""
    parameters: InferenceParameters = Field(default_factory=InferenceParameters)
    inputs: list[InferenceInput] = Field(min_length=2, max_length=len(INPUT_RANK))
    outputs: list[InferenceOutput] = Field(default_factory=list, max_length=1)

    @property
    def wants_bytes(self) -> bool:
        """Return whether the taps are requested in binary."""
        chosen = self.outputs[0].parameters.binary_data if self.outputs else None
        return self.parameters.binary_data_output if chosen is None else chosen


_documented = with_config(ConfigDict(use_attribute_docstrings=True))


@_documented
class InferenceServer(TypedDict):
    """This server."""

    name: str
    version: str
    extensions: list[Literal["binary_tensor_data", "parameters"]]


@_documented
class InferenceLive(TypedDict):
    """live: the event loop responds, and no restart is needed. ready: the service is ready for designs."""

    live: Literal[True]
    ready: NotRequired[Literal[True]]


@_documented
class TensorDescription(TypedDict):
    """Name, type and shape of a tensor."""

    name: str
    datatype: Literal["FP32"]
    shape: list[int]


@_documented
class InferenceModel(TypedDict):
    """The tensors of a model."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorDescription]
    outputs: list[TensorDescription]


@_documented
class InferenceModelReady(TypedDict):
    """The model is ready for inference."""

    name: str
    ready: Literal[True]


@_documented
class InferenceTaps(TypedDict):
    """The filter."""

    name: Literal["fir"]
    datatype: Literal["FP32"]
    shape: Annotated[list[int], Field(min_length=1, max_length=1)]
    parameters: dict[str, Any]
    """The rest of the answer of `/refine`, with dotted names and with lists as JSON text: `method`, `sign`,
    `digest`, `warnings` (codes), `refinement.*`, `prediction.*`, `timings_ms.*`."""
    data: NotRequired[Taps]


@_documented
class InferenceAnswer(TypedDict):
    """The answer to an inference request."""

    model_name: str
    model_version: str
    outputs: Annotated[list[InferenceTaps], Field(min_length=1, max_length=1)]
    id: NotRequired[str]


@_documented
class InferenceError(TypedDict):
    """An error."""

    error: str
    """The code of the problem, a colon, and its detail."""


def json_length(header: str | None, n_bytes: int) -> int:
    """Return the length of the JSON object in the body, in bytes; HttpProblem if the header is invalid."""
    if header is None:
        return n_bytes
    if not (header.isascii() and header.isdigit() and len(header) <= 18 and int(header) <= n_bytes):
        raise HttpProblem(
            "malformed-request",
            f"{HEADER_LENGTH}: {header[:40]!a} is not a whole number up to the body's {n_bytes} bytes",
        )
    return int(header)


def read_inference(request: InferenceRequest, attached: memoryview, model: str) -> DesignRequest:
    """Convert a request to a design.

    Parameters
    ----------
    request
        The JSON object.
    attached
        The bytes after it, which are copied.
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
        size = tensor.parameters.binary_data_size
        if size is None:
            tensors[tensor.name] = _from_json(tensor, f"inputs.{place}")
        else:
            tensors[tensor.name] = _from_bytes(tensor, attached[:size], f"inputs.{place}")
            attached = attached[size:]
    if len(attached):
        raise HttpProblem(
            "bad-length",
            f"the body has {len(attached)} bytes more than the sum of binary_data_size; correct one of them",
        )
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
    return design_request(validated(DesignItem, document))


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


def _from_json(tensor: InferenceInput, field: str) -> Float32:
    """Read the numbers of `data`, flat."""
    n = _n_elements(tensor, field)
    data, field = tensor.data, f"{field}.data"
    if data is None:
        raise HttpProblem(
            "missing-field", f"{field}: neither data nor binary_data_size is given; send one of them", field
        )
    if isinstance(data, list) and data and all(type(item) is list for item in data):
        if [len(data), *{len(item) for item in data}] != tensor.shape:
            raise HttpProblem("invalid-field", f"{field}: the rows do not have the shape {tensor.shape}", field)
        data = list(chain.from_iterable(data))
    values = floats(data, field)
    if len(values) != n:
        raise HttpProblem("invalid-field", f"{field}: {len(values)} numbers, but shape has {n}", field)
    return values


def _from_bytes(tensor: InferenceInput, data: memoryview, field: str) -> Float32:
    """Read little-endian float32, copied, since they may be unaligned after the JSON object."""
    n = _n_elements(tensor, field)
    if tensor.data is not None:
        raise HttpProblem(
            "invalid-field", f"{field}: there are both data and binary_data_size; send one of them", field
        )
    if tensor.parameters.binary_data_size != 4 * n or len(data) != 4 * n:
        raise HttpProblem(
            "bad-length",
            f"{field}: a binary_data_size of {tensor.parameters.binary_data_size} and {len(data)} bytes for the "
            f"{n} numbers of shape; send 4 bytes for each",
            field,
        )
    return np.frombuffer(data, "<f4").copy()


def encode_answer(request: InferenceRequest, answered: Answered, visit: Visit) -> tuple[bytes, int | None, Times]:
    """Encode the answer; also return the length of its JSON object if taps follow it, and the times."""
    began, design, model = perf_counter(), answered.design, answered.model
    output: dict[str, Any] = {"name": OUTPUT, "datatype": "FP32", "shape": [N_TAPS]}
    document = {"model_name": model.name, "model_version": str(model.version), "outputs": [output]}
    if request.id is not None:
        document["id"] = request.id
    attached = b""
    if request.wants_bytes:
        attached = answered.taps.astype("<f4", copy=False).tobytes()
    else:
        output["data"] = orjson.Fragment(dumped(answered.taps))
    times = visit.spent_ms(design.times_ms, began)
    output["parameters"] = _parameters(answered, times)
    if request.wants_bytes:
        output["parameters"]["binary_data_size"] = len(attached)
    body = dumped(document)
    return body + attached, len(body) if request.wants_bytes else None, times


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
    found |= _dotted("prediction", prediction_document(design.prediction))
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

"""The Open Inference Protocol v2 and its binary tensor extension: from a request's bytes to an ear, and back.

    primary, secondary   FP32 [bins, 2]   spectra: real and imaginary part of each bin
    reference_psd        FP32 [bins]      optional
    coherence            FP32 [bins]      optional
    fir                  FP32 [2048]      the answer

The JSON object describes every tensor. Its numbers stand in `data`, flat or in rows, or, where the tensor has a
parameter `binary_data_size`, in little-endian float32 behind the object, in the order of the tensors; the header
`Inference-Header-Content-Length` then says how long the object is.

https://github.com/kserve/open-inference-protocol (specification/protocol/inference_rest.md) and
https://github.com/triton-inference-server/server (docs/protocol/extension_binary_data.md).
"""

from __future__ import annotations

from time import perf_counter
from typing import Annotated, Any, Literal

import numpy as np
import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema

from service.designs import DEFAULT_MAX_GAIN_DB, MAX_GAIN_RANGE_DB, Design, Ear, Float32, Path, Recipe, Sign
from service.errors import Problem
from service.formats import checks
from service.formats.answers import Stopwatch, Times, Warnings, prediction_document
from service.formats.json_numbers import LongList
from service.formats.options import DEFAULT_UPDATES
from service.formats.schemas import Method, Profile, from_validation, narrow, numbers
from service.formats.wire import encode_taps
from synthesis.conventions import N_TAPS
from synthesis.gauss_newton import MAX_UPDATES

HEADER_LENGTH = "Inference-Header-Content-Length"
EXTENSIONS = ("binary_tensor_data", "parameters")
OUTPUT = "fir"
INPUT_RANK = {"primary": 2, "secondary": 2, "reference_psd": 1, "coherence": 1}
REQUIRED = ("primary", "secondary")

_NUMBERS: dict[str, Any] = {"type": "array", "items": {"type": "number"}}
_DATA = {"anyOf": [_NUMBERS, {"type": "array", "items": _NUMBERS}], "description": "Row by row, flat or in rows"}


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)


class InputParameters(_Strict):
    """Of one input."""

    binary_data_size: int | None = Field(default=None, ge=0)
    """Bytes of this tensor behind the JSON object."""


class InferenceInput(_Strict):
    """One input tensor."""

    name: Literal["primary", "secondary", "reference_psd", "coherence"]
    shape: list[int] = Field(min_length=1, max_length=2)
    """[bins, 2] of a path, [bins] of the others."""
    datatype: Literal["FP32"]
    parameters: InputParameters = InputParameters()
    data: Annotated[Any, WithJsonSchema(_DATA)] = None


class OutputParameters(_Strict):
    """Of the output."""

    binary_data: bool | None = None
    """Whether the taps come as bytes behind the JSON object; without it, `binary_data_output` says so."""


class InferenceOutput(_Strict):
    """The output asked for."""

    name: Literal["fir"]
    parameters: OutputParameters = OutputParameters()


class InferenceParameters(_Strict):
    """Of the request: the options of `/refine`."""

    k: int = Field(default=DEFAULT_UPDATES, ge=0, le=MAX_UPDATES)
    """Gauss-Newton updates at most."""
    method: Method = "prime"
    profile: Profile = "fast"
    sign: Sign = "minus"
    max_gain_db: float = Field(default=DEFAULT_MAX_GAIN_DB, ge=MAX_GAIN_RANGE_DB[0], le=MAX_GAIN_RANGE_DB[1])
    binary_data_output: bool = False
    """Whether the taps come as bytes behind the JSON object."""


class InferenceRequest(_Strict):
    """The JSON object of an inference request."""

    id: str | None = Field(default=None, max_length=1024)
    """Given back with the answer."""
    model_name: str | None = None
    """Taken and not read: the address names the model."""
    parameters: InferenceParameters = InferenceParameters()
    inputs: list[InferenceInput] = Field(min_length=2, max_length=4)
    outputs: list[InferenceOutput] = Field(default=[], max_length=1)

    @property
    def wants_bytes(self) -> bool:
        """Whether the taps are to come as bytes."""
        chosen = self.outputs[0].parameters.binary_data if self.outputs else None
        return self.parameters.binary_data_output if chosen is None else chosen


def json_length(header: str | None, n_bytes: int) -> int:
    """How many of a body's bytes are the JSON object; Problem for a header that cannot be."""
    if header is None:
        return n_bytes
    if not (header.isascii() and header.isdigit() and len(header) <= 18 and int(header) <= n_bytes):
        raise Problem(
            "malformed-request",
            f"found {HEADER_LENGTH}: {header[:40]!a}, expected a whole number up to the body's {n_bytes} bytes",
        )
    return int(header)


def read_request(document: object) -> InferenceRequest:
    """Validate the JSON object, or raise Problem."""
    if not isinstance(document, dict):
        raise Problem("invalid-field", "found another JSON value, expected an object")
    try:
        return InferenceRequest.model_validate(document)
    except ValidationError as error:
        raise from_validation(error) from None


def read_ear(request: InferenceRequest, attached: memoryview) -> Ear:
    """The tensors of a request, or Problem. attached: what follows the JSON object. Everything is copied."""
    tensors: dict[str, Float32] = {}
    for place, tensor in enumerate(request.inputs):
        if tensor.name in tensors:
            raise Problem(
                "invalid-field", f"inputs: found {tensor.name} twice, expected it once", f"inputs.{place}"
            )
        size = tensor.parameters.binary_data_size
        if size is None:
            tensors[tensor.name] = _from_json(tensor, f"inputs.{place}")
        else:
            tensors[tensor.name] = _from_bytes(tensor, attached[:size], f"inputs.{place}")
            attached = attached[size:]
    if len(attached):
        raise Problem("bad-length", f"found {len(attached)} bytes more than the inputs' binary_data_size add up to")
    for name in REQUIRED:
        if name not in tensors:
            raise Problem("missing-field", f"inputs: found no {name}, expected it to be given", "inputs")
    paths: dict[str, Path] = {name: tensors[name].view(np.complex64) for name in REQUIRED}
    for name, path in paths.items():
        checks.check_path(path, name)
    coherence, reference_psd = tensors.get("coherence"), tensors.get("reference_psd")
    checks.check_together(paths["primary"], paths["secondary"], coherence, reference_psd)
    options = request.parameters
    return Ear(
        paths["primary"], paths["secondary"], coherence, reference_psd, options.sign, float(options.max_gain_db)
    )


def recipe_of(request: InferenceRequest, model: str) -> Recipe:
    """What is asked for, of the model that the address names."""
    options = request.parameters
    return Recipe(model, options.method, options.k, options.profile)


def _n_elements(tensor: InferenceInput, field: str) -> int:
    """How many numbers the shape speaks of, once it is one that the input may have."""
    shape = tensor.shape
    rank = INPUT_RANK[tensor.name]
    if len(shape) != rank or shape[0] < 1 or (rank == 2 and shape[1] != 2):
        expected = "[bins, 2]" if rank == 2 else "[bins]"
        raise Problem("invalid-field", f"{field}.shape: found {shape}, expected {expected}", f"{field}.shape")
    return shape[0] * (shape[1] if rank == 2 else 1)


def _from_json(tensor: InferenceInput, field: str) -> Float32:
    """The numbers of `data`, flat."""
    n = _n_elements(tensor, field)
    data, field = tensor.data, f"{field}.data"
    if data is None:
        raise Problem("missing-field", f"{field}: found neither data nor binary_data_size, expected one", field)
    if isinstance(data, LongList) and data.values is not None and data.values.shape == tuple(tensor.shape):
        values = data.values.reshape(-1)
    else:
        values = numbers(data, field)
    if len(values) != n:
        raise Problem("invalid-field", f"{field}: found {len(values)} numbers, expected the {n} of shape", field)
    return narrow(values, np.float32, field)


def _from_bytes(tensor: InferenceInput, data: memoryview, field: str) -> Float32:
    """Little-endian float32, copied: behind a JSON object of any length they need not lie on a multiple of four."""
    n = _n_elements(tensor, field)
    if tensor.data is not None:
        raise Problem("invalid-field", f"{field}: found both data and binary_data_size, expected one", field)
    if tensor.parameters.binary_data_size != 4 * n or len(data) != 4 * n:
        raise Problem(
            "bad-length",
            f"{field}: found a binary_data_size of {tensor.parameters.binary_data_size} and {len(data)} bytes, "
            f"expected 4 for each of the {n} numbers of shape",
            field,
        )
    return np.frombuffer(data, "<f4").copy()


def answer(
    request: InferenceRequest, design: Design, warnings: Warnings, watch: Stopwatch
) -> tuple[bytes, int | None, Times]:
    """The body of the answer, the length of the JSON object in it where taps follow it, and the times."""
    output: dict[str, Any] = {"name": OUTPUT, "datatype": "FP32", "shape": [N_TAPS]}
    document: dict[str, Any] = {
        "model_name": design.model.name,
        "model_version": str(design.model.version),
        "outputs": [output],
    }
    if request.id is not None:
        document["id"] = request.id
    began = perf_counter()
    attached = b""
    if request.wants_bytes:
        attached = encode_taps(design.taps)
    else:
        output["data"] = orjson.Fragment(orjson.dumps(design.taps, option=orjson.OPT_SERIALIZE_NUMPY))
    times = watch.times_ms(design.times_ms, began)
    output["parameters"] = _parameters(design, warnings, times)
    if request.wants_bytes:
        output["parameters"]["binary_data_size"] = len(attached)
    body = orjson.dumps(document)
    return body + attached, len(body) if request.wants_bytes else None, times


def _parameters(design: Design, warnings: Warnings, times: Times) -> dict[str, Any]:
    """What the JSON answer of `/refine` says besides the taps. The protocol's parameters are single values: names
    are dotted, and lists are written as JSON text."""
    groups = {
        "refinement": design.refinement,
        "prediction": prediction_document(design.figures),
        "timings_ms": times,
    }
    found: dict[str, Any] = {
        "method": design.recipe.method,
        "sign": design.sign,
        "digest": design.model.digest,
        "warnings": ", ".join(each["code"] for each in warnings),
    }
    for group, members in groups.items():
        found |= _dotted(group, members)
    return found


def _dotted(prefix: str, members: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in members.items():
        if isinstance(value, dict):
            found |= _dotted(f"{prefix}.{name}", value)
        elif isinstance(value, list | np.ndarray):
            found[f"{prefix}.{name}"] = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).decode()
        elif value is not None:
            found[f"{prefix}.{name}"] = value.item() if isinstance(value, np.generic) else value
    return found

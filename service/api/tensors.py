"""The binary form of bodies: safetensors, 8 bytes of length, a JSON header, raw little-endian float32.

A tensor's name is the place of its numbers in the body (`primary`, `conditions.0.primary`, `takes.0.x`). What is no
array is JSON text under the name `request` of the header's `__metadata__`. A path is `[n]` for an impulse response,
or `[n, 2]` for a spectrum, real and imaginary parts.

https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from service.errors import HttpProblem
from synthesis.types import Float32

MEDIA_TYPE = "application/x-safetensors"

# More than the JSON of any request that has its numbers in tensors.
MAX_HEADER_BYTES = 2**20

# 16 requests of 16 conditions with five tensors each.
MAX_TENSORS = 2048

_LENGTH_BYTES = 8
_PLACE = re.compile(r"[a-z_0-9]{1,40}(\.[a-z_0-9]{1,40}){0,5}")


def decode(body: bytes | bytearray) -> dict[str, Any]:
    """Read a body as the document that JSON would be, with arrays in the places of tensors.

    Parameters
    ----------
    body
        All of it; it must not be changed afterwards, since arrays are views of it where they can be.

    Returns
    -------
    dict
        The fields of `request`, and an array for each tensor: float32, or complex64 for a path `[n, 2]`.

    Raises
    ------
    HttpProblem
        `malformed-tensors` if this is no safetensors file of float32 tensors.
    """
    header, values = _header(body)
    document = _request(header.pop("__metadata__", {}))
    if len(header) > MAX_TENSORS:
        raise _malformed(f"it holds {len(header)} tensors; send at most {MAX_TENSORS}")
    n_used = 0
    for name, description in header.items():
        begin, end, shape = _description(name, description, len(values))
        n_used += end - begin
        _put(document, name, _array(values[begin:end], shape))
    if n_used != len(values):
        raise _malformed(f"its tensors have {n_used} bytes, but {len(values)} follow the header; send those alone")
    return document


def encode(tensors: Mapping[str, Float32], request: Mapping[str, object]) -> bytes:
    """Write a body that `decode` reads.

    Parameters
    ----------
    tensors
        By their places.
    request
        All other fields.
    """
    header: dict[str, Any] = {"__metadata__": {"request": orjson.dumps(request).decode()}}
    place = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [place, place + tensor.nbytes]}
        place += tensor.nbytes
    text = orjson.dumps(header)
    text += b" " * (-len(text) % _LENGTH_BYTES)
    parts = [np.ascontiguousarray(tensor, "<f4").tobytes() for tensor in tensors.values()]
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text + b"".join(parts)


def _malformed(what: str) -> HttpProblem:
    return HttpProblem("malformed-tensors", f"the body is not a safetensors file of a request: {what}")


def _header(body: bytes | bytearray) -> tuple[dict[str, Any], memoryview]:
    """The header, and the bytes that follow it."""
    n_bytes = int.from_bytes(body[:_LENGTH_BYTES], "little")
    end = _LENGTH_BYTES + n_bytes
    if len(body) < end:
        raise _malformed(f"it has {len(body)} bytes, fewer than the {end} of its header; send all of it")
    if n_bytes > MAX_HEADER_BYTES:
        raise _malformed(f"its header has {n_bytes} bytes; send at most {MAX_HEADER_BYTES}, and numbers as tensors")
    try:
        header = orjson.loads(memoryview(body)[_LENGTH_BYTES:end])
    except orjson.JSONDecodeError as error:
        raise _malformed(f"its header is no JSON ({error})") from None
    if not isinstance(header, dict):
        raise _malformed("its header is no JSON object")
    return header, memoryview(body)[end:]


def _request(metadata: object) -> dict[str, Any]:
    """The fields that are not tensors."""
    text = metadata.get("request", "{}") if isinstance(metadata, dict) else None
    try:
        request = orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError as error:
        raise _malformed(f"`request` of its metadata is no JSON ({error})") from None
    if not isinstance(request, dict):
        raise _malformed("`request` of its metadata is no JSON object as text")
    return request


def _description(name: str, description: object, n_bytes: int) -> tuple[int, int, list[int]]:
    """First byte, last byte and shape of a tensor."""
    match description:
        case {"dtype": "F32", "shape": [*shape], "data_offsets": [int(begin), int(end)]}:
            is_whole = all(type(n) is int and 0 <= n <= n_bytes for n in shape)
            if is_whole and 0 <= begin <= end <= n_bytes and end - begin == 4 * math.prod(shape):
                return begin, end, shape
    raise _malformed(
        f"tensor {name[:40]!a} is not described as "
        '{"dtype": "F32", "shape": [..], "data_offsets": [begin, end]} within the body'
    )


def _array(values: memoryview, shape: list[int]) -> NDArray[Any]:
    """Float32 in the shape, complex64 for [n, 2]."""
    array = np.frombuffer(values, "<f4")
    if not array.flags.aligned:
        array = array.copy()
    if len(shape) == 2 and shape[1] == 2:
        return array.view(np.complex64)
    return array.reshape(shape)


def _put(document: dict[str, Any], name: str, array: NDArray[Any]) -> None:
    """Put an array where its name says; objects and lists on the way that are not there are made."""
    if not _PLACE.fullmatch(name):
        raise _malformed(f"{name[:40]!a} is no place of a request such as conditions.0.primary")
    parts = name.split(".")
    inner: Any = document
    for parent, following in pairwise(parts):
        made: Any = [] if following.isdigit() else {}
        if isinstance(inner, dict):
            inner = inner.setdefault(parent, made)
        elif isinstance(inner, list) and parent == str(len(inner)):
            inner.append(made)
            inner = made
        elif isinstance(inner, list) and parent.isdigit() and int(parent) < len(inner):
            inner = inner[int(parent)]
        else:
            raise _misplaced(name)
    if not isinstance(inner, dict) or parts[-1] in inner:
        raise _misplaced(name)
    inner[parts[-1]] = array


def _misplaced(name: str) -> HttpProblem:
    return _malformed(f"the place of {name!a} is taken, or what comes before it is missing")

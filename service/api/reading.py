"""Bodies of requests, in any form and with the query's options, as the types that handlers declare.

Bodies are JSON or safetensors: 8 bytes of length, a JSON header, raw little-endian float32. A tensor's name is the
position of its numbers in the body (`primary`, `conditions.0.primary`, `takes.0.x`). Everything else is JSON text under
the name `request` of the header's `__metadata__`. A path is `[n]` for an impulse response, or `[n, 2]` for a spectrum,
real and imaginary parts. https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator
from functools import lru_cache
from itertools import pairwise
from time import perf_counter
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import orjson
from fastapi import Depends
from numpy.typing import NDArray
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from prime_anc.method.curve import Curve
from prime_anc.requests.controllers import put_published
from prime_anc.requests.options import CURVES, DECIMAL, FromText, option_fields
from prime_anc.requests.reading import Document, body_fields, validate
from prime_anc.requests.strict import StrictModel, shown
from service.admission import DEADLINE_HEADER, MAX_JSON_BYTES, declared_length, json_too_large
from service.api.state import JSON, TENSORS, Policy, RequestState, service_of, state_of
from service.errors import HttpProblem

# Limits on what JSON becomes in the event loop, counted before it is parsed. Sixteen conditions have a few hundred
# objects, lists and names; two paths and two quantities on the largest grid have 196,614 numbers.
MAX_ELEMENTS, MAX_NUMBERS = 4096, 200_000
_LIMITS = {b"{": MAX_ELEMENTS, b"[": MAX_ELEMENTS, b":": MAX_ELEMENTS, b",": MAX_NUMBERS}

# Values of `charset`, as lists because a parameter without one has none.
_UTF_8 = (["utf-8"], ['"utf-8"'])

# Limit on a safetensors header: more than the JSON of any request with its numbers in tensors.
MAX_HEADER_BYTES = 2**20

# More than 64 takes and 16 conditions with a few tensors each.
MAX_TENSORS = 512

# More fields than any query has.
MAX_QUERY_FIELDS = 64

# Time (s) within which a body has to arrive.
RECEIVE_S = 10.0

_LENGTH_BYTES = 8
_PLACE = re.compile(r"[a-z_0-9]{1,40}(\.[a-z_0-9]{1,40}){0,5}")

_WHOLE = re.compile(r"-?[0-9]{1,3}")


def body_of(kind: type[StrictModel], policy: Policy) -> Any:
    """Return the dependency that gives a handler its body, as the type `kind`.

    The body counts against the memory of its key until the answer is made.
    """

    async def body(request: Request) -> AsyncIterator[StrictModel]:
        state, memory = state_of(request), service_of(request).admission.memory
        media_type = media_type_of(request.headers, (JSON, TENSORS))
        options = query_options(request.scope["query_string"], kind)
        state.set_deadline(request, policy)
        if policy.is_light:  # what its body says cannot help
            service_of(request).engine.queue.require_room(state.key, state.due)
        n_bytes = declared_length(request.headers, policy.max_bytes)
        if media_type == JSON and n_bytes > MAX_JSON_BYTES:
            raise json_too_large(n_bytes)
        memory.reserve(state.key, n_bytes)
        try:
            content = await receive_body(request, state, n_bytes)
            document = body_fields(parse_json(content) if media_type == JSON else parse_tensors(content), kind)
            _add(document, options)
            await _put_published(request, document, kind)
            found = validate(kind, document)
            state.decoded()
            yield found
        finally:
            memory.release(state.key, n_bytes)

    return Depends(body)


async def _put_published(request: Request, document: Document, kind: type[StrictModel]) -> None:
    """Replace the reference of a published controller by the controller."""
    if isinstance(document.get("controller"), str) and getattr(kind, "takes_published", False):
        found = await service_of(request).engine.models.controller(document["controller"])
        if found is not None:
            put_published(document, kind, lambda reference: found)


def media_type_of(headers: Headers, accepted: tuple[str, ...]) -> str:
    """Return the media type of a body, or refuse it.

    Parameters
    ----------
    headers
        Headers of the request.
    accepted
        Media types; "" means a body without one.

    Returns
    -------
    str
        The media type of the body.

    Raises
    ------
    HttpProblem
        The type is not accepted, or the body is encoded.
    """
    refuse_encoding(headers)
    given = headers.get("content-type", "")
    if given in accepted:
        return given
    media_type, *parameters = (part.strip().lower() for part in given.split(";"))
    named = [[part.strip() for part in parameter.split("=", 1)] for parameter in parameters]
    if media_type not in accepted or any(name == "charset" and value not in _UTF_8 for name, *value in named):
        expected = " or ".join(filter(None, accepted))
        raise HttpProblem(
            "unsupported-media-type", f"Content-Type: {given[:80]!a} is not supported; send {expected}"
        )
    return media_type


def refuse_encoding(headers: Headers) -> None:
    """Raise HttpProblem for a Content-Encoding."""
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        detail = f"Content-Encoding: {encoding[:40]!a} is not supported; send the body uncompressed, or as tensors"
        raise HttpProblem("unsupported-encoding", detail)


async def receive_body(request: Request, state: RequestState, n_bytes: int) -> bytearray:
    """Receive the whole body, of a declared length; decoding begins.

    Raises
    ------
    HttpProblem
        `too-slow` if it is not complete within the service's limit or by the deadline.
    ClientDisconnect
    """
    within_s, left_s = RECEIVE_S, max(state.due - perf_counter(), 0.0)
    try:
        async with asyncio.timeout(None) as limit:
            loop = asyncio.get_running_loop()
            # A body that has arrived with its head needs no timer.
            start_timer = loop.call_soon(limit.reschedule, loop.time() + min(within_s, left_s))
            try:
                body = await _received(request, n_bytes)
            finally:
                start_timer.cancel()
    except TimeoutError:
        waited, remedy = f"{within_s:g} s", "send it faster"
        if left_s < within_s:
            waited, remedy = f"the {left_s:.3g} s left before its deadline", f"raise {DEADLINE_HEADER}, or {remedy}"
        raise HttpProblem(
            "too-slow",
            f"the body of {n_bytes} bytes was not complete after {waited}; {remedy}",
            headers={"Connection": "close"},
        ) from None
    state.received = perf_counter()
    return body


async def _received(request: Request, n_bytes: int) -> bytearray:
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > n_bytes:
            raise HttpProblem(
                "too-large",
                f"the body is longer than the {n_bytes} bytes of its Content-Length; declare its full length",
            )
        if not message.get("more_body", False):
            return body


def parse_json(body: bytes | bytearray) -> object:
    """Parse JSON.

    Raises
    ------
    HttpProblem
        It is not JSON, or has too many bytes or elements for the event loop.
    MemoryError
        There is not enough memory.
    """
    if len(body) > MAX_JSON_BYTES:
        raise json_too_large(len(body))
    try:
        return _bounded_json(body)
    except orjson.JSONDecodeError as error:
        if "Not enough memory" in str(error):
            raise MemoryError from None
        is_number = error.doc.startswith(("NaN", "Infinity"), error.pos)
        remedy = "send finite numbers, no NaN or Infinity" if is_number else "send a JSON object"
        raise HttpProblem("malformed-json", f"the body is not JSON: {error}; {remedy}") from None
    except SystemError as error:  # out of memory while parsing
        raise MemoryError from error


def _bounded_json(text: bytes | bytearray) -> Any:
    """Parse JSON of few enough elements for the event loop; HttpProblem, or orjson's errors."""
    for mark, most in _LIMITS.items():
        if text.count(mark) > most:
            found = "numbers" if mark == b"," else "objects, lists or names"
            raise HttpProblem(
                "invalid-field", f"the body has more than {most} {found}; send numbers in base64 or as tensors"
            )
    return orjson.loads(text)


def parse_tensors(body: bytes | bytearray) -> Document:
    """Read a binary body as the equivalent JSON document, with arrays for tensors.

    Parameters
    ----------
    body
        The whole body, which must not be changed afterwards, since arrays may be views of it.

    Returns
    -------
    Document
        The fields of `request`, and an array per tensor: float32, or complex64 for a path `[n, 2]`.

    Raises
    ------
    HttpProblem
        `malformed-tensors` if it is not a safetensors file of float32 tensors.
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


def _malformed(what: str) -> HttpProblem:
    return HttpProblem("malformed-tensors", f"the body is not a safetensors file of a request: {what}")


def _header(body: bytes | bytearray) -> tuple[dict[str, Any], memoryview]:
    """Return the header, and the bytes that follow it."""
    n_bytes = int.from_bytes(body[:_LENGTH_BYTES], "little")
    end = _LENGTH_BYTES + n_bytes
    if len(body) < end:
        raise _malformed(f"it has {len(body)} bytes, fewer than the {end} of its header; send all of it")
    if n_bytes > MAX_HEADER_BYTES:
        raise _malformed(f"its header has {n_bytes} bytes; send at most {MAX_HEADER_BYTES}, and numbers as tensors")
    try:
        header = _bounded_json(body[_LENGTH_BYTES:end])
    except orjson.JSONDecodeError as error:
        raise _malformed(f"its header is no JSON ({error})") from None
    if not isinstance(header, dict):
        raise _malformed("its header is no JSON object")
    return header, memoryview(body)[end:]


def _request(metadata: object) -> dict[str, Any]:
    """Return the fields that are not tensors."""
    text = metadata.get("request", "{}") if isinstance(metadata, dict) else None
    try:
        request = _bounded_json(text.encode()) if isinstance(text, str) else None
    except orjson.JSONDecodeError as error:
        raise _malformed(f"`request` of its metadata is no JSON ({error})") from None
    if not isinstance(request, dict):
        raise _malformed("`request` of its metadata is no JSON object as text")
    return request


def _description(name: str, description: object, n_bytes: int) -> tuple[int, int, list[int]]:
    """Return first byte, end (the byte after the last) and shape of a tensor."""
    match description:
        case {"dtype": "F32", "shape": [*shape], "data_offsets": [int(begin), int(end)]}:
            is_whole = 1 <= len(shape) <= 2 and all(type(n) is int and 0 <= n <= n_bytes for n in shape)
            if is_whole and 0 <= begin <= end <= n_bytes and end - begin == 4 * math.prod(shape):
                return begin, end, shape
    raise _malformed(
        f"tensor {name[:40]!a} is not described as "
        '{"dtype": "F32", "shape": [..], "data_offsets": [begin, end]} within the body'
    )


def _array(values: memoryview, shape: list[int]) -> NDArray[Any]:
    """Return float32 in the shape, complex64 for [n, 2]."""
    array = np.frombuffer(values, "<f4")
    if not array.flags.aligned:
        array = array.copy()
    if len(shape) == 2 and shape[1] == 2:
        return array.view(np.complex64)
    return array.reshape(shape)


def _put(document: dict[str, Any], name: str, array: NDArray[Any]) -> None:
    """Put an array at the position of its name, creating objects and lists on the way."""
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


@lru_cache(64)  # clients repeat the same options
def query_options(query: bytes, kind: type[BaseModel] | None) -> dict[str, object]:
    """Read the options in a query string, checking only their names.

    Parameters
    ----------
    query
        Query string as sent.
    kind
        Class of the body; None: no option is known.

    Raises
    ------
    HttpProblem
        An option is unknown or repeated.
    """
    known = {} if kind is None else option_fields(kind)
    found: dict[str, object] = {}
    try:
        fields = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        raise HttpProblem("invalid-field", f"the query has more than {MAX_QUERY_FIELDS} fields") from None
    for name, text in fields:
        if name not in known:
            expected = ", ".join(known) or "none"
            raise HttpProblem(
                "unknown-field",
                f"the query option {name[:40]!a} is unknown here; use one of: {expected}",
                ascii(name[:40])[1:-1],
            )
        if name in found:
            raise HttpProblem("invalid-field", f"{name}: the query option is repeated; send it once", name)
        found[name] = _value(text, known[name])
    return found


def _value(text: str, field: FieldInfo) -> object:
    """Convert a text to a value; the text itself, which validation refuses, if it is invalid."""
    for item in field.metadata:
        if isinstance(item, FromText):
            return item.read(text)
    kind = field.annotation
    if kind is bool:
        return {"true": True, "false": False}.get(text, text)
    if kind is float and DECIMAL.fullmatch(text):
        return float(text)
    if "int" in str(kind) and _WHOLE.fullmatch(text):
        return int(text)
    return text


def _add(document: Document, options: dict[str, object]) -> None:
    """Add the query's options to a request, in place; HttpProblem for a different value."""
    for name, value in options.items():
        sent = document.setdefault(name, value)
        if (CURVES[name].of_json(sent) if isinstance(value, Curve) else sent) != value:
            raise HttpProblem(
                "invalid-field", f"{name}: the body has {shown(sent)}, the query another value; send it once", name
            )

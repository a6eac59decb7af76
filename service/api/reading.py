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
from collections.abc import Awaitable, Callable
from functools import lru_cache
from itertools import pairwise
from time import perf_counter
from typing import Any, TypeVar, get_type_hints
from urllib.parse import parse_qsl

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from prime_anc.method.curve import Curve
from service.admission.admission import DEADLINE_HEADER, MAX_JSON_BYTES, json_too_large
from service.api.front import JSON, TENSORS, Visit
from service.api.options import CURVES, DECIMAL, FromText, option_fields
from service.api.strict import as_problem, shown
from service.errors import HttpProblem

Document = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)
Handler = TypeVar("Handler", bound=Callable[..., Awaitable[Response]])
# Reads the fields of a body of the given type.
Reader = Callable[[Request, type[BaseModel]], Awaitable[Document]]

# Fields of calibrations' and designs' answers and of the page's files that requests ignore, so that clients can send
# these on, alone or merged.
ANSWER_FIELDS = frozenset(
    {"label", "spectra", "bands", "verdict", "method", "refinement", "prediction", "loop", "warnings", "timings_ms"}
    | {"max_gain_db", "max_louder_db"}  # of a filter, which only designs and exports need
)

# Largest number of members of an object, ten times that of the largest request: every unknown one is an error.
MAX_MEMBERS = 256

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

_LENGTH_BYTES = 8
_PLACE = re.compile(r"[a-z_0-9]{1,40}(\.[a-z_0-9]{1,40}){0,5}")

_WHOLE = re.compile(r"-?[0-9]{1,3}")


class Address(Route):
    """An address whose handler gets its body, in whichever form it was sent, as the type that it declares."""

    def __init__(self, path: str, method: str, handler: Callable[..., Awaitable[Response]], read: Reader) -> None:
        kind = get_type_hints(handler).get("body")

        async def answer(request: Request) -> Response:
            if kind is None:
                return await handler(request, **request.path_params)
            document = await read(request, kind)
            return await handler(request, validate(kind, document), **request.path_params)

        super().__init__(path, answer, methods=[method], name=handler.__name__)
        self.handler, self.kind, self.read = handler, kind, read

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match as Starlette does, and note this address in the scope, for metrics."""
        match, found = super().matches(scope)
        if match is not Match.NONE:
            found["route"] = self
        return match, found


class Addresses(list[Address]):
    """Addresses of one part of the interface, in the order of their declaration."""

    def get(self, path: str) -> Callable[[Handler], Handler]:
        """Declare the handler of an address for GET and HEAD."""
        return self._declaring(path, "GET", read_document)

    def post(self, path: str, read: Reader | None = None) -> Callable[[Handler], Handler]:
        """Declare the handler of an address for POST; `read` reads its body, by default JSON or tensors."""
        return self._declaring(path, "POST", read or read_document)

    def _declaring(self, path: str, method: str, read: Reader) -> Callable[[Handler], Handler]:
        def declare(handler: Handler) -> Handler:
            self.append(Address(path, method, handler, read))
            return handler

        return declare


async def read_document(request: Request, kind: type[BaseModel]) -> Document:
    """Read a body of JSON or tensors, with the options of the query string."""
    media_type = media_type_of(request.headers, (JSON, TENSORS))
    options = query_options(request.scope["query_string"], kind)
    content = await receive_body(request)
    document = body_fields(parse_json(content) if media_type == JSON else parse_tensors(content), kind)
    if options:
        _add(document, options)
    if isinstance(document.get("controller"), str) and getattr(kind, "takes_published", False):
        await _put_published(request, document)
    return document


async def _put_published(request: Request, document: Document) -> None:
    """Replace the reference of a published controller by the controller, in the request's sign."""
    visit: Visit = request.state.visit
    found = await visit.service.engine.models.controller(document["controller"])
    if found is not None:
        rows = np.array(found.sos)
        rows[0, :3] *= -1 if document.get("sign") == "plus" else 1
        others = found.model_dump(include={"sample_rate", "latency_us", "number_format"})
        document["controller"] = {"sos": rows} | others


def fields_of(document: object, kind: type[BaseModel] | None = None) -> dict[str, Any]:
    """Return the fields of an object that are not null.

    Parameters
    ----------
    document
        A request, or a part of one.
    kind
        Type of the request, which ignores fields of answers that it does not have; None: a part of a request.

    Raises
    ------
    HttpProblem
        It is not an object, or has too many members.
    """
    if not isinstance(document, dict):
        raise HttpProblem("invalid-field", f"{shown(document)} is not a JSON object; send one")
    if len(document) > MAX_MEMBERS:
        found = f"an object has {len(document)} members; no request has more than {MAX_MEMBERS}"
        raise HttpProblem("invalid-field", found)
    ignored = frozenset() if kind is None else ANSWER_FIELDS - kind.model_fields.keys()
    return {name: value for name, value in document.items() if value is not None and name not in ignored}


def validate_object(kind: type[Model], document: object) -> Model:
    """Validate an object, whose members may be null; raise an HttpProblem as `validate` does."""
    return validate(kind, fields_of(document))


def validate(kind: type[Model], document: Document) -> Model:
    """Validate the fields of an object; raise one of pydantic's errors as an HttpProblem, an unknown field first.

    A misspelt field is missing too.
    """
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = min(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden")
        raise as_problem(first, kind) from None


def body_fields(document: object, kind: type[BaseModel]) -> Document:
    """Return a body without unused fields of answers; HttpProblem if it is not an object."""
    fields = fields_of(document, kind)
    if not fields:
        raise HttpProblem("missing-field", "the body is empty; send the fields of the request")
    return fields


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


async def receive_body(request: Request) -> bytearray:
    """Receive the whole body; decoding begins.

    Raises
    ------
    HttpProblem
        `too-slow` if it is not complete within the service's limit or by the deadline.
    ClientDisconnect
    """
    visit: Visit = request.state.visit
    within_s = visit.service.settings.receive_timeout_s
    left_s = max(visit.due - perf_counter(), 0.0)
    try:
        async with asyncio.timeout(None) as limit:
            loop = asyncio.get_running_loop()
            # A body that has arrived with its head needs no timer.
            start_timer = loop.call_soon(limit.reschedule, loop.time() + min(within_s, left_s))
            try:
                body = await _received(request, visit.n_body_bytes)
            finally:
                start_timer.cancel()
    except TimeoutError:
        waited, remedy = f"{within_s:g} s", "send it faster"
        if left_s < within_s:
            waited, remedy = f"the {left_s:.3g} s left before its deadline", f"raise {DEADLINE_HEADER}, or {remedy}"
        raise HttpProblem(
            "too-slow",
            f"the body of {visit.n_body_bytes} bytes was not complete after {waited}; {remedy}",
            headers={"Connection": "close"},
        ) from None
    visit.received = perf_counter()
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

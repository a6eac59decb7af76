"""From the bytes of a body to the document that FastAPI validates, whatever its form."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import Any

import orjson
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from service.admission.admission import MAX_JSON_BYTES, json_too_large
from service.api import tensors
from service.api.options import with_query
from service.api.request_types import present
from service.api.visit import JSON, visit_of
from service.errors import HttpProblem

Document = dict[str, Any]

# Braces, brackets and names in one body, counted before it is parsed: each becomes an object in the event loop. Two
# paths of 32,769 bins as rows of [real, imaginary] have 65,538 brackets; sixteen requests have a few thousand names.
MAX_ELEMENTS = 70_000
_ELEMENTS = (b"{", b"[", b":")

_UTF_8 = (["utf-8"], ['"utf-8"'])


class Reading(Request):
    """A request whose body was read already, as FastAPI asks for it."""

    def __init__(self, request: Request, document: Document) -> None:
        super().__init__(request.scope, request.receive)
        self._document = document

    async def body(self) -> Any:
        """The document, in every form of the body."""
        return self._document

    async def json(self) -> Any:
        """The same, which FastAPI asks for where the body is JSON."""
        return self._document


class ReadingRoute(APIRoute):
    """A route whose handler gets its body as the type that it declares, whichever form was sent."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, behind the reading of the body."""
        handle = super().get_route_handler()
        kind = body_type(self)

        async def read(request: Request) -> Response:
            return await handle(Reading(request, await self.read(request, kind)))

        return read

    async def read(self, request: Request, kind: type[BaseModel]) -> Document:
        """Read the body of JSON or tensors, with the options of the query string."""
        media_type = refuse_type(request.headers, (JSON, tensors.MEDIA_TYPE))
        query = request.scope["query_string"]
        with_query({}, query, kind)  # refused before the body is there
        content = await receive_body(request)
        document = parse_json(content) if media_type == JSON else tensors.decode(content)
        return with_query(as_document(document, kind), query, kind)


def body_type(route: APIRoute) -> type[BaseModel]:
    """The type of the body that a route's handler declares."""
    assert route.body_field is not None
    kind: Any = route.body_field.field_info.annotation
    return kind


def as_document(document: object, kind: type[BaseModel]) -> Document:
    """A body without fields of answers that it has no use for; HttpProblem if it is no object."""
    fields = present(document, kind)
    if not fields:
        raise HttpProblem("missing-field", "the body is empty; send the fields of the request")
    return fields


def refuse_type(headers: Headers, accepted: tuple[str, ...]) -> str:
    """Read the media type of a body.

    Parameters
    ----------
    headers
        Of the request.
    accepted
        Media types; "" stands for a body without one.

    Returns
    -------
    str
        One of those accepted.

    Raises
    ------
    HttpProblem
        It is another one, or the body has a Content-Encoding.
    """
    refuse_encoding(headers)
    given = headers.get("content-type", "")
    if given in accepted:
        return given
    media_type, *parameters = (part.strip().lower() for part in given.split(";"))
    named = [[each.strip() for each in parameter.split("=", 1)] for parameter in parameters]
    if media_type not in accepted or any(name == "charset" and value not in _UTF_8 for name, *value in named):
        expected = " or ".join(filter(None, accepted))
        raise HttpProblem(
            "unsupported-media-type", f"Content-Type: {given[:80]!a} is not supported; send {expected}"
        )
    return media_type


def refuse_encoding(headers: Headers) -> None:
    """HttpProblem for any Content-Encoding."""
    encoding = headers.get("content-encoding")
    if encoding is not None:
        raise HttpProblem(
            "unsupported-encoding",
            f"Content-Encoding: {encoding[:40]!a} is not supported; send the body uncompressed",
        )


async def receive_body(request: Request) -> bytearray:
    """Receive the whole body; decoding begins.

    Raises
    ------
    HttpProblem
        `too-slow` if it is not complete within the service's limit or by the deadline.
    ClientDisconnect
    """
    visit = visit_of(request)
    within_s = visit.service.settings.receive_timeout_s
    left_s = max(visit.due - perf_counter(), 0.0)
    try:
        async with asyncio.timeout(None) as limit:
            loop = asyncio.get_running_loop()
            # A body that has arrived with its head needs no timer.
            start_timer = loop.call_soon(limit.reschedule, loop.time() + min(within_s, left_s))
            try:
                body = await _received(request, visit.admitted.n_body_bytes)
            finally:
                start_timer.cancel()
    except TimeoutError:
        waited = f"{within_s:g} s" if within_s <= left_s else f"the {left_s:.3g} s left before its deadline"
        raise HttpProblem(
            "too-slow",
            f"the body of {visit.admitted.n_body_bytes} bytes was not complete after {waited}; send it faster",
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


def parse_json(body: bytes | bytearray | memoryview) -> object:
    """Parse JSON.

    Raises
    ------
    HttpProblem
        It is none, or has too many bytes or elements for the event loop.
    MemoryError
        There is not enough memory.
    """
    if len(body) > MAX_JSON_BYTES:
        raise json_too_large(len(body))
    text = bytes(body) if isinstance(body, memoryview) else body
    if any(text.count(each) > MAX_ELEMENTS for each in _ELEMENTS):
        raise HttpProblem("invalid-field", f"the body has more than {MAX_ELEMENTS} objects, lists or names")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if "Not enough memory" in str(error):
            raise MemoryError from None
        is_number = error.doc.startswith(("NaN", "Infinity"), error.pos)
        remedy = "send finite numbers, no NaN or Infinity" if is_number else "send a JSON object"
        raise HttpProblem("malformed-json", f"the body is not JSON: {error}; {remedy}") from None
    except SystemError as error:  # there was no memory for what was parsed
        raise MemoryError from error

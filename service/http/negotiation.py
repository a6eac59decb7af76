"""What may come in and what may go out: media types and lengths."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from time import perf_counter

from starlette.requests import ClientDisconnect, Request

from service.errors import Problem

JSON = "application/json"
BINARY = "application/octet-stream"

LATE_TOLD_WITHIN_S = 0.5
"""Senders of bodies that are late at one moment, as a crowd that came together is, are told at any time in this,
but for the first few: all at once they kept everybody else waiting. The socket itself waits for longer
(`guarded_protocol.LINGER_S`)."""

FEW_LATE = 8
"""As many are told at once: to spread them would spare nobody anything."""

_late_at: deque[float] = deque(maxlen=FEW_LATE)
"""When the last few were late, of the whole process, whose cores they share."""

_UTF_8 = (["utf-8"], ['"utf-8"'])


def chosen_answer(request: Request, offered: tuple[str, ...] = (JSON, BINARY)) -> str:
    """The media type of the answer: the first of those offered that the Accept header likes best."""
    accept = ",".join(request.headers.getlist("accept")).strip()
    if not accept or accept == "*/*":
        return offered[0]
    if accept in offered:
        return accept
    qualities = {media_type: _quality(accept, media_type) for media_type in offered}
    best = max(offered, key=lambda media_type: qualities[media_type])
    if qualities[best] <= 0:
        raise Problem("not-acceptable", f"found Accept: {accept[:80]!a}, expected {' or '.join(offered)}")
    return best


def _quality(accept: str, media_type: str) -> float:
    """Quality (0 to 1) that an Accept header gives a media type; its most specific range decides."""
    ranges = (media_type, media_type.split("/")[0] + "/*", "*/*")
    found: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = (each.strip().lower() for each in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        found[name] = max(found.get(name, 0.0), quality)
    return next((found[each] for each in ranges if each in found), 0.0)


def body_type(request: Request, taken: tuple[str, ...] = (JSON, BINARY)) -> str:
    """The media type of the body; Problem for another one and for any Content-Encoding. An empty one that is taken
    is that of a body without a type."""
    refuse_encoding(request)
    given = request.headers.get("content-type", "")
    media_type, *parameters = (part.strip().lower() for part in given.split(";"))
    named = [[each.strip() for each in parameter.split("=", 1)] for parameter in parameters]
    if media_type not in taken or any(name == "charset" and value not in _UTF_8 for name, *value in named):
        expected = " or ".join(filter(None, taken))
        raise Problem("unsupported-media-type", f"found Content-Type: {given[:80]!a}, expected {expected}")
    return media_type


def refuse_encoding(request: Request) -> None:
    """Problem for any Content-Encoding."""
    encoding = request.headers.get("content-encoding")
    if encoding is not None:
        raise Problem("unsupported-encoding", f"found Content-Encoding: {encoding[:40]!a}, expected none")


def check_unread(request: Request, limit: int) -> None:
    """Of a request that needs no body: where it has one all the same, it must be one that would be taken."""
    refuse_encoding(request)
    if {"content-length", "transfer-encoding"} & set(request.headers):
        declared_length(request, limit)


def declared_length(request: Request, limit: int) -> int:
    """Bytes of a body that is yet to be read: they must be declared, and no more than `limit`."""
    declared = request.headers.get("content-length")
    if declared is None:
        raise Problem("length-required", "found no Content-Length, expected the body's length in bytes")
    if not (declared.isascii() and declared.isdigit()):
        raise Problem("malformed-request", f"found Content-Length: {declared[:40]!a}, expected a whole number")
    if len(declared) > 18 or int(declared) > limit:
        raise Problem("too-large", f"found a body of {declared[:18]} bytes, expected at most {limit}")
    return int(declared)


async def read_body(request: Request, limit: int, within_s: float, due: float) -> bytearray:
    """The whole body. Its length must be declared and within `limit` bytes before any of it is read, and all of it
    must come within `within_s` seconds and before the answer is `due`, as `perf_counter` counts."""
    n_bytes = declared_length(request, limit)
    left_s = max(due - perf_counter(), 0.0)
    try:
        async with asyncio.timeout(min(within_s, left_s)):
            return await _received(request, limit)
    except TimeoutError:
        await _turn()
        after = f"{within_s:g} s" if within_s <= left_s else f"the {left_s:.3g} s that its deadline left for it"
        raise Problem(
            "too-slow",
            f"found the body of {n_bytes} bytes not complete after {after}, expected it within that",
            headers={"Connection": "close"},
        ) from None


async def _turn() -> None:
    """Returns when who is late now is to be told: at once, unless several were late lately."""
    now = perf_counter()
    is_crowd = len(_late_at) == FEW_LATE and now < _late_at[0] + LATE_TOLD_WITHIN_S
    _late_at.append(now)
    if is_crowd:
        await asyncio.sleep(random.uniform(0, LATE_TOLD_WITHIN_S))


async def _received(request: Request, limit: int) -> bytearray:
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > limit:
            raise Problem("too-large", f"found more than {limit} bytes, expected at most that")
        if not message.get("more_body", False):
            return body


async def until_gone(request: Request) -> None:
    """Returns when the client has gone. For requests whose body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

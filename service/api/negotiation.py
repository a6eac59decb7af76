"""Media types of bodies and answers, and how a body is received."""

from __future__ import annotations

import asyncio
import random
from time import perf_counter

from starlette.requests import ClientDisconnect, Request

from service.admission.admission import Admitted
from service.errors import Problem

JSON = "application/json"
BINARY = "application/octet-stream"

LATE_TOLD_WITHIN_S = 0.5
"""Answers to late bodies are delayed by a random time up to this, so that a thousand slow senders that started
together do not delay other requests. The socket stays open longer (`connection_guard.LINGER_S`)."""

_UTF_8 = (["utf-8"], ['"utf-8"'])


def negotiate_answer(request: Request, offered: tuple[str, ...] = (JSON, BINARY)) -> str:
    """The media type of the answer: the first of those offered with the highest quality in the Accept header."""
    accept = ",".join(request.headers.getlist("accept")).strip()
    if not accept or accept == "*/*":
        return offered[0]
    if accept in offered:
        return accept
    qualities = {media_type: _quality(accept, media_type) for media_type in offered}
    best = max(offered, key=lambda media_type: qualities[media_type])
    if qualities[best] <= 0:
        raise Problem(
            "not-acceptable",
            f"Accept: {accept[:80]!a} excludes the available media types; accept {' or '.join(offered)}",
        )
    return best


def _quality(accept: str, media_type: str) -> float:
    """Quality (0 to 1) of a media type in an Accept header; the most specific range applies."""
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


def body_type(request: Request, accepted: tuple[str, ...] = (JSON, BINARY)) -> str:
    """The media type of the body, "" if not given; Problem if it is not accepted, or for any Content-Encoding."""
    refuse_encoding(request)
    given = request.headers.get("content-type", "")
    if given in accepted:
        return given
    media_type, *parameters = (part.strip().lower() for part in given.split(";"))
    named = [[each.strip() for each in parameter.split("=", 1)] for parameter in parameters]
    if media_type not in accepted or any(name == "charset" and value not in _UTF_8 for name, *value in named):
        expected = " or ".join(filter(None, accepted))
        raise Problem("unsupported-media-type", f"Content-Type: {given[:80]!a} is not supported; send {expected}")
    return media_type


def refuse_encoding(request: Request) -> None:
    """Problem for any Content-Encoding."""
    encoding = request.headers.get("content-encoding")
    if encoding is not None:
        raise Problem(
            "unsupported-encoding",
            f"Content-Encoding: {encoding[:40]!a} is not supported; send the body uncompressed",
        )


async def receive_body(request: Request, admitted: Admitted, within_s: float) -> bytearray:
    """The whole body; Problem if it is not complete within `within_s` seconds or by the deadline."""
    left_s = max(admitted.due - perf_counter(), 0.0)
    try:
        async with asyncio.timeout(min(within_s, left_s)):
            return await _received(request, admitted.n_body_bytes)
    except TimeoutError:
        await asyncio.sleep(random.uniform(0, LATE_TOLD_WITHIN_S))
        limit = f"{within_s:g} s" if within_s <= left_s else f"the {left_s:.3g} s left before its deadline"
        raise Problem(
            "too-slow",
            f"the body of {admitted.n_body_bytes} bytes was not complete after {limit}; send it faster",
            headers={"Connection": "close"},
        ) from None


async def _received(request: Request, n_bytes: int) -> bytearray:
    body = bytearray()
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > n_bytes:
            raise Problem(
                "too-large",
                f"the body is longer than the {n_bytes} bytes of its Content-Length; declare its full length",
            )
        if not message.get("more_body", False):
            return body


async def wait_for_disconnect(request: Request) -> None:
    """Return when the client has disconnected. For requests whose body has been received."""
    while (await request.receive())["type"] != "http.disconnect":
        pass

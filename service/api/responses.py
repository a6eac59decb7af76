"""Answers as responses: negotiation of media types, encoding, times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np
import orjson
from starlette.requests import Request
from starlette.responses import Response

from prime_anc.answers import Answer, Warning_, document
from prime_anc.method.errors import InvalidPaths
from service.api.state import JSON, state_of
from service.errors import HttpProblem

Times = dict[str, float | None]


def accepted(request: Request, offered: tuple[str, ...] = (JSON,)) -> str:
    """Choose the media type of an answer.

    Parameters
    ----------
    request
        With its `Accept` headers.
    offered
        Media types, the preferred one first.

    Returns
    -------
    str
        The first offered type of the highest quality.

    Raises
    ------
    HttpProblem
        `not-acceptable`.
    """
    return _accepted(",".join(request.headers.getlist("accept")), offered)


@lru_cache(64)  # clients repeat the same values
def _accepted(accept: str, offered: tuple[str, ...]) -> str:
    if not accept.strip():
        return offered[0]
    qualities = {media_type: _quality(accept, media_type) for media_type in offered}
    best = max(offered, key=lambda media_type: qualities[media_type])
    if qualities[best] <= 0:
        raise HttpProblem(
            "not-acceptable",
            f"Accept: {accept[:80]!a} excludes the available media types; accept {' or '.join(offered)}",
        )
    return best


def _quality(accept: str, media_type: str) -> float:
    """Return the quality (0 to 1) of a media type in an Accept header; the most specific range applies."""
    ranges = (media_type, media_type.split("/")[0] + "/*", "*/*")
    found: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = (item.strip().lower() for item in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip() == "q":
                try:
                    quality = float(value)
                except ValueError:
                    quality = 0.0
        found[name] = max(found.get(name, 0.0), quality)
    return next((found[item] for item in ranges if item in found), 0.0)


def answered(
    request: Request, answer: Answer, observe: Callable[[Times], None] = lambda times: None, **more_ms: float
) -> Response:
    """Encode an answer as JSON with all its times, which include that of the encoding.

    Parameters
    ----------
    request
        What is answered.
    answer
        With the stages that were timed in its `timings_ms`.
    observe
        Counts the times in metrics.
    more_ms
        Further stages.
    """
    began = perf_counter()
    fields = document(answer)
    times = fields.pop("timings_ms")
    content = _dumped(fields)
    times = completed(request, times | more_ms, began)
    observe(times)
    return timed(content[:-1] + b',"timings_ms":' + orjson.dumps(times) + b"}", times)


def completed(request: Request, stages_ms: Mapping[str, float | None], encoding_began: float) -> Times:
    """Return all times of a request, from those of its stages and the start of the encoding (`perf_counter`, s)."""
    state, now = state_of(request), perf_counter()
    return {
        **stages_ms,
        "decode": state.decode_ms + (stages_ms.get("decode") or 0.0),
        "encode": 1e3 * (now - encoding_began),
        "total": 1e3 * (now - state.began),
    }


def timed(
    content: bytes, times_ms: Times, media_type: str = JSON, headers: Mapping[str, str] | None = None
) -> Response:
    """Make a response of status 200 with `Server-Timing`."""
    timing = ", ".join([f"{name};dur={spent:.4f}" for name, spent in times_ms.items() if spent is not None])
    return Response(content, headers={"Server-Timing": timing} | dict(headers or {}), media_type=media_type)


def plain(fields: object) -> Response:
    """Encode an answer without times."""
    return Response(orjson.dumps(fields), media_type=JSON)


def warning_headers(warnings: Sequence[Warning_]) -> dict[str, str]:
    """Return the header of a binary answer with the codes of its warnings, if there are any."""
    return {"X-Warnings": ", ".join([item.code for item in warnings])} if warnings else {}


def _dumped(answer: Any) -> bytes:
    """Encode JSON; InvalidPaths if a number is not finite, which JSON could only express as null."""
    body = orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"null" in body and not _is_finite(answer):
        raise InvalidPaths(
            "the figures that follow from these numbers are not finite; send what was measured, in its own unit"
        )
    return body


def _is_finite(value: Any) -> bool:
    """Return whether all numbers in nested dictionaries, lists and arrays are finite."""
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float | np.floating | np.ndarray) or bool(np.isfinite(value).all())

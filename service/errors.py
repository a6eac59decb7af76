"""Problems as clients see them, and the only table from a domain error to an HTTP status."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import orjson
from starlette.responses import Response

from model_store.errors import InvalidName, ModelStoreError, UnknownModel
from synthesis.errors import InvalidOption, InvalidPaths, NonFiniteFilter

PROBLEM_MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:prime-anc:problem:"

PROBLEMS: dict[str, tuple[int, str]] = {
    "malformed-request": (400, "The request is not well-formed HTTP"),
    "malformed-json": (400, "The body is not JSON"),
    "bad-magic": (400, "The binary body does not start with its magic"),
    "bad-version": (400, "The binary body has an unknown version"),
    "bad-flags": (400, "The binary header sets bits that have no meaning"),
    "bad-length": (400, "The body's length does not match its header"),
    "bad-checksum": (400, "The payload does not match its CRC-32"),
    "unauthorised": (401, "A known API key is needed"),
    "not-found": (404, "There is nothing at this address"),
    "unknown-model": (404, "No such model or version is published"),
    "method-not-allowed": (405, "This address does not answer that method"),
    "not-acceptable": (406, "The answer cannot take the form asked for"),
    "default-model": (409, "The default model stays in memory"),
    "too-slow": (408, "The request took too long to arrive"),
    "length-required": (411, "The body needs a Content-Length"),
    "too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "The body's media type is not understood"),
    "unsupported-encoding": (415, "A Content-Encoding is not taken"),
    "missing-field": (422, "A field is missing"),
    "unknown-field": (422, "A field is not known"),
    "invalid-field": (422, "A field has an unusable value"),
    "out-of-range": (422, "A number is outside its range"),
    "wrong-rate": (422, "The sample rate is not 48 kHz"),
    "unequal-grids": (422, "Quantities that share a grid differ in length"),
    "unusable-paths": (422, "No filter can be designed for these paths"),
    "no-finite-filter": (422, "The design did not end in a finite filter"),
    "over-quota": (429, "This key is over its quota"),
    "headers-too-large": (431, "The request's headers are too large"),
    "internal-error": (500, "The service has failed"),
    "not-ready": (503, "The service is not ready"),
    "overloaded": (503, "The deadline cannot be met"),
    "deadline-passed": (503, "The deadline has passed"),
    "too-many-connections": (503, "Too many connections are open"),
    "model-unavailable": (503, "The model cannot be loaded"),
}
"""Every problem: stable code -> (status, title)."""

RETRY_AFTER_S = {
    "over-quota": 1,
    "not-ready": 2,
    "overloaded": 1,
    "deadline-passed": 1,
    "too-many-connections": 1,
    "model-unavailable": 60,
}
"""What `Retry-After` advises where no estimate is at hand: about what a warm-up, a queue, a person with a new
checkpoint take."""


@dataclass(eq=False)
class Problem(Exception):
    """A refusal to a client (RFC 9457).

    code: key of PROBLEMS. detail: what was found and what was expected, and nothing of this machine.
    field: the offending field of the request, dotted, where there is one. headers: of the reply.
    """

    code: str
    detail: str
    field: str | None = None
    headers: Mapping[str, str] | None = None

    @property
    def status(self) -> int:
        """The HTTP status."""
        return PROBLEMS[self.code][0]

    def document(self) -> dict[str, object]:
        """The members of the problem document."""
        status, title = PROBLEMS[self.code]
        members: dict[str, object] = {
            "type": TYPE_PREFIX + self.code,
            "title": title,
            "status": status,
            "detail": self.detail,
        }
        if self.field is not None:
            members["field"] = self.field
        return members

    def response(self) -> Response:
        """The whole reply: body, media type, `Retry-After` where waiting helps."""
        headers = dict(self.headers or {})
        if self.code in RETRY_AFTER_S:
            headers.setdefault("Retry-After", str(RETRY_AFTER_S[self.code]))
        return Response(orjson.dumps(self.document()), self.status, headers=headers, media_type=PROBLEM_MEDIA_TYPE)


def retry_after(wait_s: float) -> dict[str, str]:
    """The header, in whole seconds and at least one."""
    return {"Retry-After": str(max(math.ceil(wait_s), 1))}


def from_domain(error: Exception) -> Problem | None:
    """The problem that a domain error amounts to; None: a defect of ours.

    An invalid name is an unknown model: nothing of that name can be published. Whatever else keeps a model from
    being used is an operator's to mend and names files, so the engine logs it and clients are told no more than
    that.
    """
    field = getattr(error, "field", None)
    if isinstance(error, InvalidPaths):
        return Problem("unusable-paths", str(error), field)
    if isinstance(error, InvalidOption):
        return Problem("invalid-field", str(error), field)
    if isinstance(error, NonFiniteFilter):
        return Problem("no-finite-filter", str(error), field)
    if isinstance(error, UnknownModel | InvalidName):
        return Problem(
            "unknown-model", "found no model of that name and version, expected a published one", "model"
        )
    if isinstance(error, ModelStoreError):
        return Problem("model-unavailable", "found a damaged store or checkpoint, expected a whole one", "model")
    return None

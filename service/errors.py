"""Problem documents (RFC 9457), and the only mapping from errors of other packages to HTTP statuses."""

from __future__ import annotations

import errno
import math
from collections.abc import Mapping

import orjson
from starlette.responses import Response

from model_store.errors import InvalidName, ModelNotFound, ModelStoreError
from prime_anc.requests.errors import RequestError
from prime_anc.tasks.errors import request_error

PROBLEM_MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:prime-anc:problem:"

# All problems: stable code -> (status, title).
PROBLEMS: dict[str, tuple[int, str]] = {
    "malformed-request": (400, "The request is not well-formed HTTP"),
    "malformed-json": (400, "The body is not JSON"),
    "malformed-tensors": (400, "The body is not a safetensors file of a request"),
    "unauthorised": (401, "A valid API key is required"),
    "cross-site": (403, "The request comes from the page of another site"),
    "not-found": (404, "There is nothing at this address"),
    "unknown-model": (404, "No such model or version is published"),
    "method-not-allowed": (405, "This address does not support the method"),
    "not-acceptable": (406, "The answer is not available in an accepted media type"),
    "default-model": (409, "The default model cannot be unloaded"),
    "too-slow": (408, "The request took too long to arrive"),
    "length-required": (411, "A Content-Length header is required"),
    "too-large": (413, "The body is too large"),
    "unsupported-media-type": (415, "The body's media type is not supported"),
    "unsupported-encoding": (415, "Content-Encoding is not supported"),
    "missing-field": (422, "A field is missing"),
    "unknown-field": (422, "A field is unknown"),
    "invalid-field": (422, "A field has an invalid value"),
    "out-of-range": (422, "A number is outside its range"),
    "wrong-rate": (422, "The sample rate is not 48 kHz"),
    "unequal-grids": (422, "Quantities on the same frequency grid differ in length"),
    "unusable-paths": (422, "No filter can be designed for these paths"),
    "no-finite-filter": (422, "The designed filter is not finite"),
    "internal-error": (500, "Internal error"),
    "not-ready": (503, "The service is not ready"),
    "overloaded": (503, "The deadline cannot be met"),
    "deadline-passed": (503, "The deadline has passed"),
    "model-unavailable": (503, "The model cannot be loaded"),
}

# `Retry-After` (s) without an estimate: typical times of a warm-up, a queue, and a replaced checkpoint.
RETRY_AFTER_S = {
    "not-ready": 2,
    "overloaded": 1,
    "deadline-passed": 1,
    "model-unavailable": 60,
}


class HttpProblem(RequestError):
    """A problem that is answered to the client (RFC 9457)."""

    def __init__(
        self, code: str, detail: str, field: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Create the problem; `headers`: of its response."""
        super().__init__(code, detail, field)
        self.headers = headers

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        return PROBLEMS[self.code][0]

    def document(self) -> dict[str, object]:
        """Return the problem document."""
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
        """Make the response, with `Retry-After` if waiting helps."""
        headers = dict(self.headers or {})
        if self.code in RETRY_AFTER_S:
            headers.setdefault("Retry-After", str(RETRY_AFTER_S[self.code]))
        return Response(orjson.dumps(self.document()), self.status, headers=headers, media_type=PROBLEM_MEDIA_TYPE)


def retry_after(wait_s: float) -> dict[str, str]:
    """Return the `Retry-After` header: whole seconds, at least one."""
    return {"Retry-After": str(max(math.ceil(wait_s), 1))}


def to_problem(error: Exception) -> HttpProblem | None:
    """Return the problem of a known error; None for an unexpected one, which is a defect of the service.

    An invalid name is reported as an unknown model. Other errors of the store name files, which clients must not see.
    """
    if isinstance(error, HttpProblem):
        return error
    if (found := request_error(error)) is not None:
        return HttpProblem(found.code, found.detail, found.field)
    if isinstance(error, ModelNotFound | InvalidName):
        return HttpProblem("unknown-model", "no such model or version is published; see GET /models", "model")
    if isinstance(error, ModelStoreError):
        return HttpProblem(
            "model-unavailable", "the checkpoint or the store cannot be read; contact the operator", "model"
        )
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return HttpProblem("overloaded", "there is not enough memory for this request; retry later, or send less")
    return None

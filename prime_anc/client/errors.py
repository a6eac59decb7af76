"""Exceptions for the service's problem documents (RFC 9457)."""

from __future__ import annotations

import json
from typing import Any


class ClientError(Exception):
    """Any failure of a request."""


class NotReached(ClientError):
    """No answer: no connection, a broken connection, or a timeout."""


class UnknownAnswer(ClientError):
    """An answer of status 200 that does not come from the service, for example a proxy's login page."""


class Refused(ClientError):
    """The service answered with a problem.

    Attributes: HTTP status; code, a stable name (`unusable-paths`); detail of the fault; field of the request, or None.
    """

    def __init__(self, status: int, code: str, detail: str, field: str | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.field = field


class Unauthorised(Refused):
    """401: no key, or an unknown one."""


class UnknownModel(Refused):
    """404: no such model or version is published."""


class InvalidRequest(Refused):
    """422: an argument is out of range, unknown or without effect."""


class UnusablePaths(Refused):
    """422: paths that no filter can be designed for."""


class OverQuota(Refused):
    """429: this key is over its quota."""


class ServiceFault(Refused):
    """500: a defect of the service."""


class Unavailable(Refused):
    """503, or a proxy's 502 or 504: not ready or overloaded, and still so after the retries."""


_BY_STATUS: dict[int, type[Refused]] = {
    401: Unauthorised,
    404: UnknownModel,
    422: InvalidRequest,
    429: OverQuota,
    500: ServiceFault,
    **dict.fromkeys((502, 503, 504), Unavailable),
}
_ABOUT_PATHS = {"unusable-paths", "unequal-grids", "no-finite-filter"}


def from_answer(status: int, body: bytes) -> Refused:
    """Make the exception for a refused request; an answer without a problem document comes from a proxy."""
    try:
        return from_document(status, json.loads(body))
    except (ValueError, TypeError, KeyError):
        detail = f"the answer is not a problem document: {body[:80]!a}"
        return _BY_STATUS.get(status, Refused)(status, "no-problem-document", detail)


def from_document(status: int, document: dict[str, Any]) -> Refused:
    """Make the exception for a problem document; TypeError or KeyError for anything else."""
    code, detail, field = str(document["type"]).rsplit(":", 1)[-1], document["detail"], document.get("field")
    kind = UnusablePaths if code in _ABOUT_PATHS else _BY_STATUS.get(status, Refused)
    return kind(status, code, str(detail), field)

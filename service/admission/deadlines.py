"""`X-Deadline-Ms`: until when an answer is of use."""

from __future__ import annotations

import re

from starlette.requests import Request

from service.errors import Problem
from service.settings import MAX_DEADLINE_MS, MIN_DEADLINE_MS

DEADLINE_HEADER = "X-Deadline-Ms"

_DECIMAL = re.compile(
    r"[0-9]{1,6}(\.[0-9]{1,40})?"
)  # float() would also take "1_0", " 3" and other scripts' digits


def deadline_s(request: Request, default_ms: float) -> float:
    """Seconds from its receipt within which a request is to be answered: the header's, or the default."""
    given = request.headers.getlist(DEADLINE_HEADER)
    if not given:
        return default_ms / 1e3
    if len(given) > 1:
        raise Problem("invalid-field", f"{DEADLINE_HEADER}: the header is repeated; send it once", DEADLINE_HEADER)
    value = float(given[0]) if _DECIMAL.fullmatch(given[0]) else -1.0
    if not MIN_DEADLINE_MS <= value <= MAX_DEADLINE_MS:
        raise Problem(
            "out-of-range",
            f"{DEADLINE_HEADER}: {given[0][:40]!a} is not a number from {MIN_DEADLINE_MS:g} to {MAX_DEADLINE_MS:g}",
            DEADLINE_HEADER,
        )
    return value / 1e3

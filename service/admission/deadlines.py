"""Until when an answer is worth something: what a request says of it, or the operator's default."""

from __future__ import annotations

import re

from starlette.requests import Request

from service.errors import Problem
from service.settings import MAX_DEADLINE_MS, MIN_DEADLINE_MS

DEADLINE = "X-Deadline-Ms"
_DECIMAL = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")


def deadline_s(request: Request, default_ms: float) -> float:
    """Seconds from its receipt within which a request is to be answered: `X-Deadline-Ms`, or the default."""
    given = request.headers.getlist(DEADLINE)
    if not given:
        return default_ms / 1e3
    if len(given) > 1:
        raise Problem("invalid-field", f"{DEADLINE}: found it {len(given)} times, expected it once", DEADLINE)
    value = float(given[0]) if _DECIMAL.fullmatch(given[0]) else -1.0
    if not MIN_DEADLINE_MS <= value <= MAX_DEADLINE_MS:
        raise Problem(
            "out-of-range",
            f"{DEADLINE}: found {given[0][:40]!a}, expected {MIN_DEADLINE_MS:g} to {MAX_DEADLINE_MS:g} ms",
            DEADLINE,
        )
    return value / 1e3

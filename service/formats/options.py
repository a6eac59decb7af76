"""The options in a query string: strict, and each named once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import NamedTuple, get_args

from starlette.datastructures import QueryParams

from service.designs import DEFAULT_MAX_GAIN_DB, MAX_GAIN_RANGE_DB, Sign
from service.errors import Problem
from service.formats.schemas import Method, Profile
from synthesis.calibration import MAX_N_WINDOWS, N_WINDOWS
from synthesis.gauss_newton import MAX_UPDATES

REFINE = ("k", "profile")
"""Options of `/refine` with either kind of body."""

BINARY = ("model", "method", "sign", "max_gain_db")
"""Options that a JSON body carries itself."""

CALIBRATE = ("model", "sign", "n_windows")
"""Options of `/calibrate` with a binary body."""

DEFAULT_UPDATES = 3

# float() would also take "1_0", " 3" and other scripts' digits. As many places as a float's shortest text has.
_DECIMAL = re.compile(r"-?[0-9]{1,3}(\.[0-9]{1,40})?")


class Options(NamedTuple):
    """All options, at their defaults where the query does not give them."""

    k: int
    profile: str
    model: str | None
    method: str
    sign: Sign
    max_gain_db: float
    n_windows: int


def read_options(query: QueryParams, allowed: Iterable[str], default_updates: int) -> Options:
    """Read the query string; Problem for an option that is not allowed here, given twice or unusable."""
    allowed = tuple(allowed)
    given: dict[str, str] = {}
    for name, value in query.multi_items():
        if name not in allowed:
            expected = ", ".join(allowed) or "none"
            raise Problem(
                "unknown-field",
                f"found the query option {name[:40]!a}, expected {expected}",
                ascii(name[:40])[1:-1],
            )
        if name in given:
            raise Problem("invalid-field", f"{name}: found it twice in the query, expected it once", name)
        given[name] = value
    return Options(
        k=_whole("k", given["k"], 0, MAX_UPDATES) if "k" in given else default_updates,
        profile=_choice("profile", given.get("profile", "fast"), get_args(Profile)),
        model=given.get("model"),
        method=_choice("method", given.get("method", "prime"), get_args(Method)),
        sign="plus" if _choice("sign", given.get("sign", "minus"), get_args(Sign)) == "plus" else "minus",
        max_gain_db=_gain(given["max_gain_db"]) if "max_gain_db" in given else DEFAULT_MAX_GAIN_DB,
        n_windows=_whole("n_windows", given.get("n_windows", str(N_WINDOWS)), 1, MAX_N_WINDOWS),
    )


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise Problem("invalid-field", f"{name}: found {value[:40]!a}, expected one of {', '.join(choices)}", name)
    return value


def _whole(name: str, text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and low <= int(text) <= high):
        raise Problem(
            "out-of-range", f"{name}: found {text[:40]!a}, expected a whole number from {low} to {high}", name
        )
    return int(text)


def _gain(text: str) -> float:
    low, high = MAX_GAIN_RANGE_DB
    value = float(text) if _DECIMAL.fullmatch(text) else math.nan
    if not low <= value <= high:
        raise Problem(
            "out-of-range", f"max_gain_db: found {text[:40]!a}, expected {low:g} to {high:g} dB", "max_gain_db"
        )
    return value

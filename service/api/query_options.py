"""Strict parsing of the options in a query string."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple, get_args
from urllib.parse import parse_qsl

from service.api.request_types import (
    MAX_GAIN_MARGIN_DB,
    MAX_PHASE_MARGIN_DEG,
    QUERY_OPTIONS,
    Profile,
    Sign,
    curve_of_text,
)
from service.calibration.takes import MAX_N_WINDOWS
from service.errors import HttpProblem
from synthesis.gain_curve import GainCurve
from synthesis.methods import METHODS
from synthesis.profiles import MAX_UPDATES
from synthesis.types import (
    DEFAULT_GAIN_MARGIN_DB,
    DEFAULT_MAX_GAIN_DB,
    DEFAULT_PHASE_MARGIN_DEG,
    MAX_LATENCY_SAMPLES,
)

SYNTHESIZE_OPTIONS = ("leave_one_out",)
REFINE_OPTIONS = QUERY_OPTIONS
"""Query options of `/synthesize` and `/refine` with JSON and binary bodies."""

BINARY_OPTIONS = (
    *("model", "method", "sign", "max_gain_db", "latency_samples", "min_gain_margin_db", "min_phase_margin_deg"),
)
"""Query options of designs with a binary body; a JSON body has fields for them."""

CALIBRATION_OPTIONS = ("model", "sign", "n_windows")
"""Query options of `/calibrate` with a binary body."""

DEFAULT_UPDATES = 3

_NUMBERS = {
    "latency_samples": (0.0, MAX_LATENCY_SAMPLES),
    "min_gain_margin_db": (DEFAULT_GAIN_MARGIN_DB, MAX_GAIN_MARGIN_DB),
    "min_phase_margin_deg": (DEFAULT_PHASE_MARGIN_DEG, MAX_PHASE_MARGIN_DEG),
}
"""Default and largest value; the smallest is 0."""

# float() would also accept "1_0", " 3" and non-ASCII digits. 40 decimal places exceed any shortest float.
_DECIMAL = re.compile(r"-?[0-9]{1,4}(\.[0-9]{1,40})?")


class Options(NamedTuple):
    """All options, with defaults for those that are not given."""

    k: int
    profile: str
    model: str | None
    method: str
    sign: Sign
    max_gain_db: float | GainCurve
    n_windows: int | None
    leave_one_out: bool
    latency_samples: float
    min_gain_margin_db: float
    min_phase_margin_deg: float


@lru_cache(64)  # clients send the same options again and again
def read_options(query: bytes, allowed: tuple[str, ...], default_updates: int) -> Options:
    """Read the query string; HttpProblem for an option that is unknown, repeated or invalid."""
    given: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in allowed:
            expected = ", ".join(allowed) or "none"
            is_field = name in BINARY_OPTIONS and allowed in (SYNTHESIZE_OPTIONS, REFINE_OPTIONS)
            remedy = "make it a field of the JSON body" if is_field else f"use one of: {expected}"
            raise HttpProblem(
                "unknown-field",
                f"the query option {name[:40]!a} is unknown here; {remedy}",
                ascii(name[:40])[1:-1],
            )
        if name in given:
            raise HttpProblem("invalid-field", f"{name}: the query option is repeated; send it once", name)
        given[name] = value
    return Options(
        k=_whole("k", given["k"], 0, MAX_UPDATES) if "k" in given else default_updates,
        profile=_choice("profile", given.get("profile", "fast"), get_args(Profile)),
        model=given.get("model"),
        method=_choice("method", given.get("method", "prime"), METHODS),
        sign="plus" if _choice("sign", given.get("sign", "minus"), get_args(Sign)) == "plus" else "minus",
        max_gain_db=curve_of_text(given["max_gain_db"]) if "max_gain_db" in given else DEFAULT_MAX_GAIN_DB,
        n_windows=_whole("n_windows", given["n_windows"], 1, MAX_N_WINDOWS) if "n_windows" in given else None,
        leave_one_out=_choice("leave_one_out", given.get("leave_one_out", "false"), ("true", "false")) == "true",
        **{
            name: _number(name, given[name], high) if name in given else default
            for name, (default, high) in _NUMBERS.items()
        },
    )


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    if value not in choices:
        raise HttpProblem(
            "invalid-field", f"{name}: {value[:40]!a} does not exist; use one of {', '.join(choices)}", name
        )
    return value


def _whole(name: str, text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and low <= int(text) <= high):
        raise HttpProblem("out-of-range", f"{name}: {text[:40]!a} is not a whole number from {low} to {high}", name)
    return int(text)


def _number(name: str, text: str, high: float) -> float:
    value = float(text) if _DECIMAL.fullmatch(text) else math.nan
    if not 0 <= value <= high:
        raise HttpProblem("out-of-range", f"{name}: {text[:40]!a} is not a number from 0 to {high:g}", name)
    return value

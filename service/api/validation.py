"""Errors of validation: pydantic's errors as problems that name the faulty field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from service.api.strict import shown, shown_name
from service.errors import HttpProblem

_RANGE_ERRORS = {"greater_than_equal", "less_than_equal", "greater_than", "less_than", "too_short", "too_long"}


@contextmanager
def naming(prefix: str, label: object = None) -> Iterator[None]:
    """Prefix every HttpProblem raised inside with the name of a condition."""
    try:
        yield
    except HttpProblem as problem:
        name = prefix + (f" ({shown_name(label)})" if isinstance(label, str) and label else "")
        field = prefix if problem.field is None else f"{prefix}.{problem.field}"
        raise HttpProblem(problem.code, f"{name}: {problem.detail}", field) from None


def as_problem(error: ErrorDetails | Mapping[str, Any], kind: type[BaseModel] | None = None) -> HttpProblem:
    """Convert one of pydantic's errors to a problem; kind is the body's type, for advice."""
    field = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        return HttpProblem("missing-field", f"{field}: the field is missing; send it", field)
    if error["type"] == "extra_forbidden":
        name = shown_name(field)
        near = get_close_matches(field[:80], kind.model_fields, 1) if kind else []
        remedy = f"remove it, or write {near[0]}" if near else "remove it"
        return HttpProblem("unknown-field", f"{name}: the field is unknown; {remedy}", name)
    code = "out-of-range" if error["type"] in _RANGE_ERRORS else "invalid-field"
    message = error["msg"].removeprefix("Value error, ")
    if message.startswith(f"{field}: "):  # of a SynthesisError, which names its field and the remedy
        return HttpProblem(code, message, field)
    # Lower only the first letter: the rest may quote a value.
    message = f"{message[:1].lower()}{message[1:]}"
    if error["type"] not in ("too_long", "too_short"):  # those count the input's items
        message = f"{shown(error['input'])} is invalid: {message}"
    return HttpProblem(code, f"{field}: {message}", field)

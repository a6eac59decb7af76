"""Validation of bodies: objects to types, pydantic's errors to problems that name the faulty field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from service.api.strict import shown, shown_name
from service.errors import HttpProblem

# Fields of calibrations' and designs' answers that requests ignore, so that clients can send answers on, alone or
# merged.
ANSWER_FIELDS = frozenset(
    {"spectra", "bands", "verdict", "method", "refinement", "prediction", "loop", "warnings", "timings_ms"}
)

# Largest number of members of an object, ten times that of the largest request: every unknown one is an error.
MAX_MEMBERS = 256

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


Model = TypeVar("Model", bound=BaseModel)


def refuse_unused(fields: object, defaults: Mapping[str, object], why: str, place: str = "") -> None:
    """Refuse fields without effect, unless they have their defaults, which some clients always send.

    Parameters
    ----------
    fields
        Object with the fields.
    defaults
        Default by name of field.
    why
        Reason and remedy, for the message.
    place
        Prefix of the fields' names in the request.

    Raises
    ------
    HttpProblem
        `invalid-field`.
    """
    for name, default in defaults.items():
        if getattr(fields, name) != default:
            name = place + name
            raise HttpProblem("invalid-field", f"{name}: it has no effect {why}, or leave {name} out", name)


def present(document: object, kind: type[BaseModel] | None = None) -> dict[str, Any]:
    """Return the fields of an object that are not null.

    Parameters
    ----------
    document
        A request, or a part of one.
    kind
        Type of the request, which ignores fields of answers that it does not have; None: a part of a request.

    Raises
    ------
    HttpProblem
        It is not an object, or has too many members.
    """
    if not isinstance(document, dict):
        raise HttpProblem("invalid-field", f"{shown(document)} is not a JSON object; send one")
    if len(document) > MAX_MEMBERS:
        found = f"an object has {len(document)} members; no request has more than {MAX_MEMBERS}"
        raise HttpProblem("invalid-field", found)
    ignored = frozenset() if kind is None else ANSWER_FIELDS - kind.model_fields.keys()
    return {name: value for name, value in document.items() if value is not None and name not in ignored}


def validated(kind: type[Model], document: object) -> Model:
    """Validate an object; raise the first of pydantic's errors as an HttpProblem."""
    try:
        return kind.model_validate(present(document))
    except ValidationError as error:
        raise as_problem(error.errors(include_url=False)[0], kind) from None


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
    return HttpProblem(
        code, f"{field}: {shown(error['input'])} is invalid: {message[:1].lower()}{message[1:]}", field
    )

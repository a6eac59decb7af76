"""From the members of a request to a validated body."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from prime_anc.answers import DesignAnswer
from prime_anc.options import ObjectiveFields
from prime_anc.requests.errors import RequestError
from prime_anc.requests.strict import as_request_error, shown

Document = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)

# Fields of calibrations' and designs' answers and of the page's files that requests ignore, so that clients can send
# these on, alone or merged; also what a filter keeps, which only designs and exports need.
ANSWER_FIELDS = frozenset(
    {"label", "spectra", "bands", "verdict", "method", "refinement", "prediction", "loop", "warnings", "timings_ms"}
    | {field.name for field in fields(ObjectiveFields) if field.name in DesignAnswer.__dataclass_fields__}
)

# Largest number of members of an object, ten times that of the largest request: every unknown one is an error.
MAX_MEMBERS = 256


def body_fields(document: object, kind: type[BaseModel]) -> Document:
    """Return a request without unused fields of answers; RequestError if it is not an object."""
    fields = fields_of(document, kind)
    if not fields:
        raise RequestError("missing-field", "the body is empty; send the fields of the request")
    return fields


def fields_of(document: object, kind: type[BaseModel] | None = None) -> Document:
    """Return the fields of an object that are not null.

    Parameters
    ----------
    document
        A request, or a part of one.
    kind
        Type of the request, which ignores fields of answers that it does not have; None: a part of a request.

    Raises
    ------
    RequestError
        It is not an object, or has too many members.
    """
    if not isinstance(document, dict):
        raise RequestError("invalid-field", f"{shown(document)} is not a JSON object; send one")
    if len(document) > MAX_MEMBERS:
        found = f"an object has {len(document)} members; no request has more than {MAX_MEMBERS}"
        raise RequestError("invalid-field", found)
    ignored = frozenset() if kind is None else ANSWER_FIELDS - kind.model_fields.keys()
    return {name: value for name, value in document.items() if value is not None and name not in ignored}


def validate_object(kind: type[Model], document: object) -> Model:
    """Validate an object, whose members may be null; raise a RequestError as `validate` does."""
    return validate(kind, fields_of(document))


def validate(kind: type[Model], document: Document) -> Model:
    """Validate the fields of an object; raise one of pydantic's errors as a RequestError, an unknown field first.

    A misspelt field is missing too.
    """
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        first = min(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden")
        raise as_request_error(first, kind) from None

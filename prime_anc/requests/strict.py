"""Base of all bodies: strict models, values of a request as numbers and in messages, and errors with both."""

from __future__ import annotations

import base64
import binascii
import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, dataclass_transform

from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import ErrorDetails

from prime_anc.fields import without_absent
from prime_anc.requests.errors import RequestError

_RANGE_ERRORS = {"greater_than_equal", "less_than_equal", "greater_than", "less_than", "too_short", "too_long"}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field,))
class StrictModel(BaseModel, frozen=True):
    """A JSON object that is validated strictly and documented by its docstrings."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        use_attribute_docstrings=True,
        json_schema_extra=without_absent,
    )


class _Shortened(reprlib.Repr):
    """Shortened text of any value."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2

    def repr_ndarray(self, values: NDArray[Any], level: int) -> str:
        """Represent an array as the list of its values."""
        return self.repr_list(values.ravel()[: self.maxlist + 1].tolist(), level)


_shorten = _Shortened().repr


def shown(value: object) -> str:
    """Format a value of the request for a message: shortened, in ASCII."""
    return ascii(_shorten(value))[1:-1]


def shown_name(name: str) -> str:
    """Format a field name of the request for a message: shortened, in ASCII."""
    return ascii(name[:80])[1:-1]


def base64_bytes(text: object, field: str) -> bytes:
    """Decode base64 text; RequestError for anything else."""
    if not isinstance(text, str):
        raise RequestError("invalid-field", f"{field}: {shown(text)} is not text; send base64", field)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RequestError("invalid-field", f"{field}: the text is not base64", field) from error


@contextmanager
def naming(prefix: str, label: object = None) -> Iterator[None]:
    """Prefix every RequestError raised inside with the name of a condition."""
    try:
        yield
    except RequestError as problem:
        name = prefix + (f" ({shown_name(label)})" if isinstance(label, str) and label else "")
        field = prefix if problem.field is None else f"{prefix}.{problem.field}"
        raise RequestError(problem.code, f"{name}: {problem.detail}", field) from None


def as_request_error(error: ErrorDetails | Mapping[str, Any], kind: type[BaseModel] | None = None) -> RequestError:
    """Convert one of pydantic's errors to a RequestError; kind is the body's type, for advice."""
    field = ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        return RequestError("missing-field", f"{field}: the field is missing; send it", field)
    if error["type"] == "extra_forbidden":
        name = shown_name(field)
        known = kind.model_fields if kind and "." not in field else {}
        near = get_close_matches(field[:80], known, 1)
        remedy = f"remove it, or write {near[0]}" if near else "remove it"
        if field == "coefficients" and "fir" in known:  # the answer of /export, sent on
            remedy = "send it as fir"
        return RequestError("unknown-field", f"{name}: the field is unknown; {remedy}", name)
    code = "out-of-range" if error["type"] in _RANGE_ERRORS else "invalid-field"
    message = error["msg"].removeprefix("Value error, ")
    if message.startswith(f"{field}: "):  # of a SynthesisError, which names its field and the remedy
        return RequestError(code, message, field)
    # Lower only the first letter: the rest may quote a value.
    message = f"{message[:1].lower()}{message[1:]}"
    if error["type"] not in ("too_long", "too_short"):  # those count the input's items
        message = f"{shown(error['input'])} is invalid: {message}"
    return RequestError(code, f"{field}: {message}", field)

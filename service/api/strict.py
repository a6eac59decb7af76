"""What all bodies are made of: strict models, and values of a request as numbers and in messages."""

from __future__ import annotations

import base64
import binascii
import reprlib
from functools import reduce
from operator import or_
from typing import Annotated, Any, Optional, TypeVar, dataclass_transform, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from service.errors import HttpProblem

# JSON numbers become single-precision floats in generated clients, not decimal objects.
Number = Annotated[float, Field(json_schema_extra={"format": "float"})]


def without_absent(schema: dict[str, Any]) -> None:
    """Take away defaults that stand for an absent field, which are no values of it."""
    for name, field in schema.get("properties", {}).items():
        if "default" in field and (field["default"] is None or (name == "sample_rate" and not field["default"])):
            del field["default"]


class _NotNull:
    """Validates and documents an optional field as its type alone: absent fields have no null."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        kinds = [each for each in get_args(source) if each is not type(None)]
        return handler.generate_schema(reduce(or_, kinds))


T = TypeVar("T")
# A field that may be absent, which is None then.
Absent = Annotated[Optional[T], _NotNull()]  # noqa: UP045  # a TypeVar is substituted here alone


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
        """An array as the list that it stands for."""
        return self.repr_list(values.ravel()[: self.maxlist + 1].tolist(), level)


_shorten = _Shortened().repr


def shown(value: object) -> str:
    """A value of the request for use in a message: shortened, in ASCII."""
    return ascii(_shorten(value))[1:-1]


def shown_name(name: str) -> str:
    """A field name from the request for use in a message: shortened, in ASCII."""
    return ascii(name[:80])[1:-1]


def numbers(values: object, field: str) -> NDArray[Any]:
    """Convert a list of JSON numbers, or take the array of a tensor.

    Parameters
    ----------
    values
        Of the request.
    field
        Its name, for messages.

    Returns
    -------
    numpy.ndarray
        Float64 of a list, [n]; the array itself of a tensor, [n].

    Raises
    ------
    HttpProblem
        It is anything else; booleans and texts are no numbers.
    """
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind != "f":
            found = [*values.shape, 2] if values.dtype.kind == "c" else list(values.shape)
            raise HttpProblem("invalid-field", f"{field}: a tensor of the shape {found}; send [n]", field)
        return values
    if not isinstance(values, list):
        raise HttpProblem("invalid-field", f"{field}: {shown(values)} is not a list of numbers", field)
    if not set(map(type, values)) <= {float, int}:
        index = next(i for i, each in enumerate(values) if type(each) is not float and type(each) is not int)
        detail = f"{field}: {shown(values[index])} at index {index} is not a number"
        raise HttpProblem("invalid-field", detail, field)
    return np.array(values, dtype=np.float64)


def base64_bytes(text: object, field: str) -> bytes:
    """Decode base64 text; HttpProblem for anything else."""
    if not isinstance(text, str):
        raise HttpProblem("invalid-field", f"{field}: {shown(text)} is not text; send base64", field)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise HttpProblem("invalid-field", f"{field}: the text is not base64", field) from error

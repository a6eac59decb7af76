"""Base of all bodies: strict models, and values of a request as numbers and in messages."""

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
    """Remove defaults that represent an absent field and are not valid values."""
    for name, field in schema.get("properties", {}).items():
        if "default" in field and (field["default"] is None or (name == "sample_rate" and not field["default"])):
            del field["default"]


class _NotNull:
    """Validates and documents an optional field by its type alone: absent fields have no null."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        kinds = [get_arg for get_arg in get_args(source) if get_arg is not type(None)]
        return handler.generate_schema(reduce(or_, kinds))


T = TypeVar("T")
# A field that may be absent, and is then None.
Absent = Annotated[Optional[T], _NotNull()]  # noqa: UP045  # a TypeVar is substituted only here


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


def floats(values: object, field: str, dtype: type[np.floating[Any]] = np.float32) -> NDArray[Any]:
    """Read a list of JSON numbers, or the array of a tensor.

    Parameters
    ----------
    values
        Value in the request.
    field
        Its name, for messages.
    dtype
        Type of the result.

    Returns
    -------
    NDArray[Any]
        Finite numbers, [n].

    Raises
    ------
    HttpProblem
        It is anything else, or not finite in `dtype`; booleans and texts are not numbers.
    """
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind != "f":
            found = [*values.shape, 2] if values.dtype.kind == "c" else list(values.shape)
            raise HttpProblem("invalid-field", f"{field}: a tensor of the shape {found}; send [n]", field)
        array = values
    elif not isinstance(values, list):
        raise HttpProblem("invalid-field", f"{field}: {shown(values)} is not a list of numbers", field)
    elif not set(map(type, values)) <= {float, int}:
        index = next(i for i, value in enumerate(values) if type(value) is not float and type(value) is not int)
        detail = f"{field}: {shown(values[index])} at index {index} is not a number"
        raise HttpProblem("invalid-field", detail, field)
    else:
        array = np.array(values, dtype=np.float64)
    with np.errstate(over="ignore"):
        return finite(array.astype(dtype, copy=False), field)


def finite(values: NDArray[Any], field: str) -> NDArray[Any]:
    """Return the values; HttpProblem if one is NaN or infinite."""
    is_finite = np.isfinite(values)
    if not is_finite.all():
        raise HttpProblem(
            "unusable-paths" if field.startswith(("primary", "secondary", "feedback")) else "invalid-field",
            f"{field}: {int((~is_finite).sum())} values are NaN or infinite in float32, the first at index "
            f"{int(np.argmin(is_finite))}; send finite numbers",
            field,
        )
    return values


def base64_bytes(text: object, field: str) -> bytes:
    """Decode base64 text; HttpProblem for anything else."""
    if not isinstance(text, str):
        raise HttpProblem("invalid-field", f"{field}: {shown(text)} is not text; send base64", field)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise HttpProblem("invalid-field", f"{field}: the text is not base64", field) from error

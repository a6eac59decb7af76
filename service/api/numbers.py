"""Numbers of a request as arrays, and its values in messages."""

from __future__ import annotations

import base64
import binascii
import reprlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.errors import HttpProblem


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


def narrow(values: NDArray[Any], dtype: type, field: str) -> NDArray[Any]:
    """Cast to single precision.

    Raises
    ------
    HttpProblem
        A number is not finite, or becomes infinite.
    """
    with np.errstate(over="ignore"):
        found: NDArray[Any] = values.astype(dtype, copy=False)
    check_finite(found, field)
    return found


def check_finite(values: NDArray[Any], field: str) -> None:
    """After the cast to float32 there must be no NaN or infinity."""
    finite = np.isfinite(values)
    if not finite.all():
        raise HttpProblem(
            "unusable-paths" if field.startswith(("primary", "secondary", "feedback")) else "invalid-field",
            f"{field}: {int((~finite).sum())} values are NaN or infinite in float32, the first at index "
            f"{int(np.argmin(finite))}; send finite numbers",
            field,
        )


def base64_bytes(text: object, field: str) -> bytes:
    """Decode base64 text; HttpProblem for anything else."""
    if not isinstance(text, str):
        raise HttpProblem("invalid-field", f"{field}: {shown(text)} is not text; send base64", field)
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise HttpProblem("invalid-field", f"{field}: the text is not base64", field) from error

"""Errors of a task as errors of its request."""

from __future__ import annotations

import traceback

import numpy as np

from prime_anc.method.errors import Interrupted, InvalidOption, InvalidPaths, NonFiniteFilter
from prime_anc.requests.errors import RequestError

_CODES = {
    Interrupted: "deadline-passed",
    InvalidPaths: "unusable-paths",
    InvalidOption: "invalid-field",
    NonFiniteFilter: "no-finite-filter",
}
_NUMERICAL = tuple(f"prime_anc.{name}." for name in ("method", "core", "hardware", "measure", "tasks"))


def request_error(error: Exception) -> RequestError | None:
    """Return an error of a task as that of its request; None if it is none.

    Numerical errors, such as a singular matrix, are caused by paths that cannot be computed with.
    """
    if isinstance(error, RequestError):
        return error
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return RequestError(code, str(error), error.field)
    if isinstance(error, ArithmeticError | np.linalg.LinAlgError) and _is_numerical(error):
        return RequestError(
            "unusable-paths",
            "nothing can be computed from these numbers: a level is out of all proportion, or a path is a constant "
            "or a pure tone; send what was measured, in its own unit",
        )
    return None


def _is_numerical(error: Exception) -> bool:
    """Return whether an error was raised below a package that only computes."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(str(frame.f_globals.get("__name__")).startswith(_NUMERICAL) for frame, _ in frames)

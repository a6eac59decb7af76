"""Errors of other packages become problems."""

import errno

import pytest

from model_store.errors import InvalidName, ModelNotFound, ModelStoreError
from prime_anc.method.errors import Interrupted, InvalidOption, InvalidPaths, NonFiniteFilter
from prime_anc.requests.errors import RequestError
from service.errors import to_problem


@pytest.mark.parametrize(
    ("error", "code", "field"),
    [
        (InvalidPaths("primary: too long", "primary"), "unusable-paths", "primary"),
        (InvalidOption("k: 9", "k"), "invalid-field", "k"),
        (NonFiniteFilter("no taps"), "no-finite-filter", None),
        (Interrupted("too late"), "deadline-passed", None),
        (RequestError("out-of-range", "k: 9", "k"), "out-of-range", "k"),
        (ModelNotFound("none"), "unknown-model", "model"),
        (InvalidName("no name"), "unknown-model", "model"),
        (ModelStoreError("a file"), "model-unavailable", "model"),
        (OSError(errno.ENOMEM, "memory"), "overloaded", None),
        (MemoryError(), "overloaded", None),
    ],
)
def test_known_error_becomes_problem(error: Exception, code: str, field: str | None) -> None:
    problem = to_problem(error)
    assert (problem.code, problem.field) == (code, field)
    assert "file" not in problem.detail


def test_numerical_error_of_computation_is_fault_of_paths() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        exec("1 / 0", {"__name__": "prime_anc.method.updates.update"})
    assert to_problem(raised.value).code == "unusable-paths"


@pytest.mark.parametrize("error", [KeyError("a"), OSError(errno.EIO, "disk"), ZeroDivisionError()])
def test_unexpected_error_is_defect(error: Exception) -> None:
    assert to_problem(error) is None

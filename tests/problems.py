"""Design problems common to tests."""

from dataclasses import fields, replace
from typing import Any

from prime_anc.method.types import Paths, Problem

OF_PATHS = {field.name for field in fields(Paths)}


def one(*paths: Any, **limits: Any) -> Problem:
    """Make a problem of one condition; arguments as for `Paths`, limits as for `Problem`."""
    fields_of_paths = {name: limits.pop(name) for name in OF_PATHS & limits.keys()}
    return Problem((Paths(*paths, **fields_of_paths),), **limits)


def changed(problem: Problem, **changes: Any) -> Problem:
    """Change values of a problem; fields of `Paths` in its first condition."""
    fields_of_paths = {name: changes.pop(name) for name in OF_PATHS & changes.keys()}
    first, *others = problem.conditions
    return replace(problem, **({"conditions": (replace(first, **fields_of_paths), *others)} | changes))

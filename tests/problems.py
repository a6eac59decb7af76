"""Design problems that tests write often."""

from dataclasses import fields, replace
from typing import Any

from synthesis.types import Paths, Problem

OF_PATHS = {each.name for each in fields(Paths)}


def one(*paths: Any, **limits: Any) -> Problem:
    """A problem of one condition; arguments as of `Paths`, and limits as of `Problem`."""
    own = {name: limits.pop(name) for name in OF_PATHS & limits.keys()}
    return Problem((Paths(*paths, **own),), **limits)


def changed(problem: Problem, **changes: Any) -> Problem:
    """The problem with other values; fields of `Paths` are changed in its first condition."""
    own = {name: changes.pop(name) for name in OF_PATHS & changes.keys()}
    first, *others = problem.conditions
    return replace(problem, **({"conditions": (replace(first, **own), *others)} | changes))

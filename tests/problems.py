"""Design problems common to tests."""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from prime_anc.method.conventions import N_BINS
from prime_anc.method.methods import spectrum
from prime_anc.method.posing import OpenLoop
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


def open_loop(problem: Problem, reference_psd: Any = None) -> OpenLoop:
    """A problem as updates see it, with its paths' `uncertainty`; its ceiling is a number."""
    paths = problem.conditions
    psd = problem.reference_psd if reference_psd is None else reference_psd
    none = np.zeros((2, 31), np.float32)
    return OpenLoop(
        *(
            np.stack([spectrum(getattr(item, name)) for item in paths]).astype(np.complex64)
            for name in ("primary", "secondary")
        ),
        np.stack([none if item.uncertainty is None else item.uncertainty for item in paths]),
        problem.shares,
        np.ones(N_BINS, np.float32) if psd is None else np.ascontiguousarray(psd, np.float32),
        problem.weights,
        problem.max_gain_db,
    )

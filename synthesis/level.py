"""Level of paths, and scaling of a problem to unit level."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from synthesis.errors import InvalidPaths
from synthesis.types import Path, Problem

# Largest level difference of primary and secondary path. Measured ears have both within 20 dB; an amplifier or a
# converter before the loudspeaker may change it by 60.
MAX_LEVEL_DIFFERENCE_DB = 100.0


def level_db(path: Path) -> float:
    """Compute the level of a path.

    Parameters
    ----------
    path
        An impulse response or a spectrum.

    Returns
    -------
    float
        20 log10 of the root of the response's energy, the RMS over frequency of its spectrum; infinite for a path that
        is all zero or not finite.
    """
    n = len(path) if path.dtype.kind == "c" else 1
    parts = np.ascontiguousarray(path).view(path.real.dtype)
    energy = float(np.vdot(parts, parts))
    if not 1e-20 < energy < 1e30:  # squares in float32 overflow or vanish outside
        with np.errstate(all="ignore"):
            energy = float(np.square(parts, dtype=np.float64).sum())
    if not 0 < energy < math.inf:
        return math.inf if energy else -math.inf
    return 10 * math.log10(energy / n)


def at_unit_level(problem: Problem) -> Problem:
    """Multiply the paths of all conditions by one power of two, which is exact.

    The unit of the error microphone is a factor of both paths and cancels in W = P / S, but squares in float32 could
    overflow or vanish.

    Parameters
    ----------
    problem
        Paths of any level.

    Returns
    -------
    Problem
        The geometric mean of the levels of the first condition's paths is between -3 and 3 dB. Paths that are all zero
        or not finite are left to the backend, which refuses them.

    Raises
    ------
    InvalidPaths
        The levels of a pair differ by more than MAX_LEVEL_DIFFERENCE_DB, or a feedback path's by more from their ratio.
    """
    levels_db = [(level_db(condition.primary), level_db(condition.secondary)) for condition in problem.conditions]
    for n, (primary_db, secondary_db) in enumerate(levels_db):
        _check_levels(problem, n, primary_db, secondary_db)
    mean_db = sum(levels_db[0]) / 2
    if not math.isfinite(mean_db):
        return problem
    exponent = -round(mean_db / (20 * math.log10(2)))
    if exponent == 0:
        return problem
    return replace(
        problem,
        conditions=tuple(
            replace(
                condition,
                primary=_scaled(condition.primary, exponent),
                secondary=_scaled(condition.secondary, exponent),
            )
            for condition in problem.conditions
        ),
    )


def _check_levels(problem: Problem, n: int, primary_db: float, secondary_db: float) -> None:
    """Raise InvalidPaths if no earphone explains the levels of condition n."""
    difference_db = primary_db - secondary_db
    if not math.isfinite(difference_db):
        return
    if abs(difference_db) > MAX_LEVEL_DIFFERENCE_DB:
        # The one further from 0 dB is the unusual one.
        name, other = "primary", "secondary"
        if abs(secondary_db) > abs(primary_db):
            name, other, difference_db = other, name, -difference_db
        word = "below" if difference_db < 0 else "above"
        error = InvalidPaths(
            f"{name}: its level is {abs(difference_db):.0f} dB {word} that of the {other} path, which no "
            "earphone explains; measure both with the same microphone and send both in its unit",
            name,
        )
        raise problem.named(error, n)
    feedback = problem.conditions[n].feedback
    loop_db = -math.inf if feedback is None else level_db(feedback) + difference_db
    if loop_db > MAX_LEVEL_DIFFERENCE_DB:
        error = InvalidPaths(
            f"feedback: its level is {loop_db:.0f} dB above that of secondary over primary path, which no "
            "earphone explains; measure it with the same microphones and send all paths in their units",
            "feedback",
        )
        raise problem.named(error, n)


def _scaled(path: Path, exponent: int) -> Path:
    """Multiply a path by 2 ** exponent."""
    contiguous = np.ascontiguousarray(path)
    scaled: Path = np.ldexp(contiguous.view(contiguous.real.dtype), exponent).view(contiguous.dtype)
    return scaled

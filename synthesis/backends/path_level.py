"""The level of the paths: designs do not depend on it, and a pair whose levels cannot belong together is refused.

The unit of the error microphone is a factor of both paths, which cancels in W = P / S. All that is computed from
them in float32, squares above all, would still overflow or vanish in an unfortunate unit.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from synthesis.backends.conditions import named
from synthesis.errors import InvalidPaths
from synthesis.types import Path, Paths, Problem

MAX_LEVEL_DIFFERENCE_DB = 100.0
"""Between the paths of one condition. Of measured ears both are within 20 dB; an amplifier or a converter between
the loudspeaker signal and the loudspeaker may add or take 60."""


def at_unit_level(problem: Problem) -> Problem:
    """The same problem with the paths of all conditions times one power of two, which rounds nothing.

    It brings the geometric mean of the levels of the first condition's paths to between -3 and 3 dB. Paths that are
    all zero or not finite are left to the backend, which refuses them. Raises InvalidPaths for a pair whose levels
    differ by more than MAX_LEVEL_DIFFERENCE_DB, and for a feedback path that far above their ratio: W F is then of
    that level.
    """
    levels_db = [(level_db(each.primary), level_db(each.secondary)) for each in problem.conditions]
    for n, (primary_db, secondary_db) in enumerate(levels_db):
        difference_db = primary_db - secondary_db
        if math.isfinite(difference_db) and abs(difference_db) > MAX_LEVEL_DIFFERENCE_DB:
            # Of the two, the one further from 0 dB is the unusual one.
            name, other = "primary", "secondary"
            if abs(secondary_db) > abs(primary_db):
                name, other, difference_db = other, name, -difference_db
            word = "below" if difference_db < 0 else "above"
            error = InvalidPaths(
                f"{name}: its level is {abs(difference_db):.0f} dB {word} that of the {other} path, which no "
                "earphone explains; measure both with the same microphone and send both in its unit",
                name,
            )
            raise named(error, problem, n)
        feedback = problem.conditions[n].feedback
        loop_db = -math.inf if feedback is None else level_db(feedback) + difference_db
        if loop_db > MAX_LEVEL_DIFFERENCE_DB and math.isfinite(difference_db):
            error = InvalidPaths(
                f"feedback: its level is {loop_db:.0f} dB above that of secondary over primary path, which no "
                "earphone explains; measure it with the same microphones and send all paths in their units",
                "feedback",
            )
            raise named(error, problem, n)
    mean_db = sum(levels_db[0]) / 2
    if not math.isfinite(mean_db):
        return problem
    exponent = -round(mean_db / (20 * math.log10(2)))
    if exponent == 0:
        return problem
    return replace(problem, conditions=tuple(_scaled(each, exponent) for each in problem.conditions))


def level_db(path: Path) -> float:
    """20 log10 of the root of an impulse response's energy, which is the RMS over frequency of its spectrum;
    infinite for a path that is all zero or not finite."""
    n = len(path) if path.dtype.kind == "c" else 1
    parts = np.ascontiguousarray(path).view(path.real.dtype)
    energy = float(np.vdot(parts, parts))
    if not 1e-20 < energy < 1e30:  # where squares in float32 overflow or vanish
        with np.errstate(all="ignore"):
            energy = float(np.square(parts, dtype=np.float64).sum())
    if not 0 < energy < math.inf:
        return math.inf if energy else -math.inf
    return 10 * math.log10(energy / n)


def _scaled(condition: Paths, exponent: int) -> Paths:
    """Both paths times 2 ** exponent."""
    return replace(
        condition,
        primary=_times_power_of_two(condition.primary, exponent),
        secondary=_times_power_of_two(condition.secondary, exponent),
    )


def _times_power_of_two(path: Path, exponent: int) -> Path:
    contiguous = np.ascontiguousarray(path)
    parts = np.ldexp(contiguous.view(contiguous.real.dtype), exponent)
    scaled: Path = parts.view(contiguous.dtype)
    return scaled

"""The best filter below its ceiling on |W| that keeps unknown bands quiet."""

from __future__ import annotations

import numpy as np

from synthesis.backends.cpu import CpuBackend
from synthesis.controller import in_closed_loop
from synthesis.conventions import DESIGN_N_FFT
from synthesis.errors import check_interruption
from synthesis.gain_curve import TOLERANCE_DB, GainCurve, ceiling_db, excess_db, highest_db, lowest_db
from synthesis.loop import with_margins
from synthesis.options import DEFAULT_MAX_GAIN_DB
from synthesis.posing import level_db
from synthesis.profiles import FAST, FINE
from synthesis.types import Design, Float32, Problem
from synthesis.unknown import lowest_quiet_db

# Largest level of the primary over the secondary path of an ear: 30 measured ears have -12 to 5 dB.
LOUDEST_PRIMARY_DB = 12.0

# Rounds that put a ceiling on unknown bands made louder by the last filter.
QUIET_ROUNDS = 4

# Most halvings of the whole filter if no ceiling keeps unknown bands quiet.
QUIET_HALVINGS = 24


def loose_db(posed: Problem) -> float:
    """Return a ceiling that updates hardly reach, and at least the requested one.

    It is the default, raised by as much as the secondary path is quieter than an ear's.
    """
    quieter_db = max(level_db(condition.primary) - level_db(condition.secondary) for condition in posed.conditions)
    is_quiet = LOUDEST_PRIMARY_DB < quieter_db < np.inf
    default_db = DEFAULT_MAX_GAIN_DB + (quieter_db - LOUDEST_PRIMARY_DB if is_quiet else 0.0)
    return max(default_db, highest_db(posed.max_gain_db))


def is_above(max_gain_db: float | GainCurve, made: Design) -> bool:
    """Return whether the filter exceeds its ceiling; its response is computed only if necessary."""
    if not made.prediction.max_gain_db > lowest_db(max_gain_db) + TOLERANCE_DB:
        return False
    if not isinstance(max_gain_db, GainCurve):
        return True
    return excess_db(made.taps, ceiling_db(max_gain_db, DESIGN_N_FFT)) > TOLERANCE_DB


def limit(posed: Problem, taps: Float32, profile: str, core: CpuBackend, *, exceeds: bool) -> Float32:
    """Find the best filter below the ceiling that keeps unknown bands quiet, theory (18), and the loop's margins.

    Parameters
    ----------
    posed
        Problem with its ceiling.
    taps
        Filter designed under a loose ceiling, with the margins of the loop.
    profile
        Profile of the design.
    core
        Finds the filters.
    exceeds
        Whether the filter exceeds the ceiling; else only unknown bands are too loud.

    Returns
    -------
    Float32
        Taps, [2048].
    """
    limit_db, closed = ceiling_db(posed.max_gain_db, DESIGN_N_FFT), in_closed_loop(posed)
    profile = FINE.name if profile == FINE.name else FAST.name
    if exceeds:
        taps = core.limit_gain(closed, taps, limit_db, profile)
    for _ in range(QUIET_ROUNDS):
        check_interruption()
        if (louder_db := lowest_quiet_db(posed, taps)) is None:
            break
        limit_db = np.minimum(limit_db, louder_db)
        taps = core.limit_gain(closed, taps, limit_db, profile)
    for _ in range(QUIET_HALVINGS):
        if lowest_quiet_db(posed, taps) is None:
            break
        taps = taps * np.float32(0.5)
    if feedbacks := closed.feedbacks:
        taps = with_margins(taps, feedbacks, posed.min_gain_margin_db, posed.min_phase_margin_deg)
        # Bending the response for the margins may raise it elsewhere by some hundredths of a dB.
        taps = taps * np.float32(min(1.0, 10 ** ((TOLERANCE_DB - excess_db(taps, limit_db)) / 20)))
    return taps

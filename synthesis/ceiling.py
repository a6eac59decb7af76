"""What limits a filter: the margins of its loop, its ceiling on |W|, and unknown bands that it must keep quiet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from synthesis.arrays import SMALLEST
from synthesis.backends.cpu import CpuBackend
from synthesis.bands import UNKNOWN
from synthesis.controller import loops_of
from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.errors import check_interruption
from synthesis.gain_curve import TOLERANCE_DB, GainCurve
from synthesis.joint_prediction import predict_joint
from synthesis.loop import for_design, with_margins, worst_loop
from synthesis.methods import spectrum
from synthesis.types import Backend, Float32, Loop, Paths, Problem
from synthesis.unknown import BAND_BINS, sum_over_bands

# Rounds that put a ceiling on unknown bands made louder by the last filter, and the most by which one lowers them: the
# search finds no good filter far below its start.
QUIET_ROUNDS, QUIET_STEP_DB = 6, 6.0

# Most halvings of the whole filter if no ceiling keeps unknown bands quiet.
QUIET_HALVINGS = 24

# Allowed increase of an unknown band's level (dB).
LOUDEST_DB = 0.9

# Loudspeaker's share of |P| in an unknown band without another limit: added in phase 0.8 dB.
MOST_PLAYED = 0.1

LEAST_GAIN_DB = -60.0


def keep_margins(problem: Problem, taps: Float32, backend: Backend) -> tuple[Float32, Loop | None]:
    """Give the taps the requested margins of the loop; also return the loop, with their cost."""
    if not problem.feedbacks:
        return taps, None
    kept = with_margins(taps, problem.feedbacks, problem.min_gain_margin_db, problem.min_phase_margin_deg)
    loss_db = 0.0
    if kept is not taps:
        conditions = tuple(replace(condition, feedback=None) for condition in for_design(problem).conditions)
        open_loop = replace(problem, conditions=conditions)
        before, after = (predict_joint(open_loop, item, backend) for item in (taps, kept))
        loss_db = before.mean_noise_reduction_db - after.mean_noise_reduction_db
    return kept, loop_of_all(problem, kept, loss_db)


def loop_of_all(problem: Problem, taps: Float32, loss_db: float = 0.0) -> Loop | None:
    """Return the worst loop of filter and controller; None if there is none."""
    found = loops_of(problem, taps)
    return worst_loop(found, loss_db) if found else None


def limit(posed: Problem, taps: Float32, core: CpuBackend, *, exceeds: bool) -> Float32:
    """Find the best filter below the ceiling that keeps unknown bands quiet, theory (18), and the loop's margins.

    Parameters
    ----------
    posed
        Problem with its ceiling.
    taps
        Filter designed under a loose ceiling, with the margins of the loop.
    core
        Finds the filters.
    exceeds
        Whether the filter exceeds the ceiling; else only unknown bands are too loud.

    Returns
    -------
    Float32
        Taps, [2048].
    """
    feedbacks, limit_db = posed.feedbacks, ceiling_db(posed.max_gain_db, DESIGN_N_FFT)
    aim = for_design(posed) if feedbacks else posed
    if exceeds:
        taps = core.limit_gain(aim, taps, limit_db)
    for _ in range(QUIET_ROUNDS):
        check_interruption()
        if (louder_db := lowest_quiet_db(posed, taps)) is None:
            break
        gain_db = 20 * np.log10(np.maximum(np.abs(np.fft.rfft(taps, DESIGN_N_FFT)), SMALLEST))
        lowered_db = gain_db[np.isfinite(louder_db)].max() - QUIET_STEP_DB
        limit_db = np.minimum(limit_db, np.maximum(louder_db, lowered_db))
        taps = core.limit_gain(aim, taps, limit_db)
    for _ in range(QUIET_HALVINGS):
        if lowest_quiet_db(posed, taps) is None:
            break
        taps = taps * np.float32(0.5)
    if feedbacks:
        taps = with_margins(taps, feedbacks, posed.min_gain_margin_db, posed.min_phase_margin_deg)
        # Bending the response for the margins may raise it elsewhere by some hundredths of a dB.
        taps = taps * np.float32(min(1.0, 10 ** ((TOLERANCE_DB - excess_db(taps, limit_db)) / 20)))
    return taps


def quiet_db(condition: Paths, taps: NDArray[np.floating]) -> NDArray[np.float64] | None:
    """Compute a ceiling on |W| that keeps unknown bands from becoming louder.

    Parameters
    ----------
    condition
        Paths of usable shapes, with their unknown bands.
    taps
        The filter that may make some of them louder, [2048].

    Returns
    -------
    NDArray[np.float64] or None
        Per bin of the design grid, dB, [16385]: in unknown bands in which sum |P - S W|^2 is more than
        `LOUDEST_DB` above sum |P|^2, that of `MOST_PLAYED` sqrt(sum |P|^2 / sum |S|^2); infinite elsewhere. None if
        there is no such band.
    """
    if condition.unknown is None:
        return None
    unknown = condition.unknown == UNKNOWN
    primary, secondary = spectrum(condition.primary), spectrum(condition.secondary)
    left = primary - secondary * np.fft.rfft(taps, DESIGN_N_FFT)
    disturbance, control, residual = (sum_over_bands(np.abs(item) ** 2) for item in (primary, secondary, left))
    louder = unknown & (residual > 10 ** (LOUDEST_DB / 10) * disturbance)
    if not louder.any():
        return None
    ratio = MOST_PLAYED**2 * disturbance[louder] / control[louder]
    band_db = np.full(len(louder), np.inf)
    band_db[louder] = np.maximum(10 * np.log10(np.maximum(ratio, 1e-30)), LEAST_GAIN_DB)
    limit_db = np.full(N_BINS, np.inf)
    limit_db[BAND_BINS[0] : BAND_BINS[-1]] = np.repeat(band_db, np.diff(BAND_BINS))
    return limit_db


def lowest_quiet_db(problem: Problem, taps: NDArray[np.floating]) -> NDArray[np.float64] | None:
    """Return the lowest `quiet_db` of all conditions; None if there is none."""
    found = [limit_db for paths in problem.conditions if (limit_db := quiet_db(paths, taps)) is not None]
    return np.min(found, axis=0) if found else None


def ceiling_db(max_gain_db: float | GainCurve, n_fft: int) -> NDArray[np.float64]:
    """Return the ceiling on the bins of an n_fft-point grid: [n_fft // 2 + 1]."""
    if isinstance(max_gain_db, GainCurve):
        return max_gain_db.least_db(n_fft)
    return np.full(n_fft // 2 + 1, float(max_gain_db))


def excess_db(taps: NDArray[np.floating], limit_db: NDArray[np.float64]) -> float:
    """Find the most by which |W| exceeds a ceiling, on the ceiling's grid; negative where it stays below everywhere."""
    response = np.abs(np.fft.rfft(taps, 2 * (len(limit_db) - 1)))
    return float((20 * np.log10(np.maximum(response, 1e-30)) - limit_db).max())

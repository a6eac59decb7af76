"""What limits a filter: the margins of its loop and its ceiling on |W|."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from prime_anc.core import CpuBackend
from prime_anc.method.controller import in_closed_loop, loops_of
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.errors import check_interruption
from prime_anc.method.gain_curve import GainCurve
from prime_anc.method.joint_prediction import predict_joint
from prime_anc.method.loop import for_design, with_margins, worst_loop
from prime_anc.method.types import Float32, Loop, Problem


def keep_margins(problem: Problem, taps: Float32, most_db: float, core: CpuBackend) -> tuple[Float32, Loop | None]:
    """Give the taps the requested margins of the loop; also return the loop, with their cost.

    most_db: ceiling on |W| of another filter.
    """
    if not problem.feedbacks:
        return taps, None
    limit_db = np.full(N_BINS, most_db)
    aim = for_design(in_closed_loop(problem))
    kept = _with_margins(
        problem, taps, lambda margins_db: core.limit_gain(aim, taps, np.minimum(limit_db, margins_db))
    )
    loss_db = 0.0
    if kept is not taps:
        conditions = tuple(replace(condition, feedback=None) for condition in for_design(problem).conditions)
        open_loop = replace(problem, conditions=conditions)
        before, after = (predict_joint(open_loop, item, core) for item in (taps, kept))
        loss_db = max(before.mean_noise_reduction_db - after.mean_noise_reduction_db, 0.0)
    return kept, loop_of_all(problem, kept, loss_db)


def _with_margins(problem: Problem, taps: Float32, below: Callable[[NDArray[np.float64]], Float32]) -> Float32:
    margins = problem.min_gain_margin_db, problem.min_phase_margin_deg
    return with_margins(taps, problem.feedbacks, *margins, below)


def loop_of_all(problem: Problem, taps: Float32, loss_db: float = 0.0) -> Loop | None:
    """Return the worst loop of filter and controller; None if there is none."""
    found = loops_of(problem, taps)
    return worst_loop(found, loss_db) if found else None


def limit(posed: Problem, taps: Float32, core: CpuBackend) -> Float32:
    """Find the best filter below the ceiling, theory (18), that has the loop's margins.

    Parameters
    ----------
    posed
        Problem with its ceiling.
    taps
        Filter designed under a loose ceiling, with the margins of the loop.
    core
        Finds the filter.

    Returns
    -------
    Float32
        Taps, [2048].
    """
    limit_db = ceiling_db(posed.max_gain_db, DESIGN_N_FFT)
    aim = for_design(posed) if posed.feedbacks else posed

    def below(most_db: NDArray[np.float64]) -> Float32:
        return core.limit_gain(aim, taps, np.minimum(limit_db, most_db))

    check_interruption()
    found = below(limit_db)
    return _with_margins(posed, found, below) if posed.feedbacks else found


def ceiling_db(max_gain_db: float | GainCurve, n_fft: int) -> NDArray[np.float64]:
    """Return the ceiling on the bins of an n_fft-point grid: [n_fft // 2 + 1]."""
    if isinstance(max_gain_db, GainCurve):
        return max_gain_db.least_db(n_fft)
    return np.full(n_fft // 2 + 1, float(max_gain_db))


def excess_db(taps: NDArray[np.floating], limit_db: NDArray[np.float64]) -> float:
    """Find the most by which |W| exceeds a ceiling, on the ceiling's grid; negative where it stays below everywhere."""
    response = np.abs(np.fft.rfft(taps, 2 * (len(limit_db) - 1)))
    return float((20 * np.log10(np.maximum(response, 1e-30)) - limit_db).max())

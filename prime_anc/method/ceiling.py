"""What limits a filter: the margins of its loop and its ceiling on |W|."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.core import Core
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.errors import check_interruption
from prime_anc.method.gain_curve import GainCurve
from prime_anc.method.loops.controller import judge
from prime_anc.method.loops.loop import judge_loop, loop_gain, with_margins, worst_loop
from prime_anc.method.methods import spectrum
from prime_anc.method.posing import Posed, with_latency
from prime_anc.method.types import Float32, Loop, Problem


def keep_margins(posed: Posed, taps: Float32, limit_db: NDArray[np.float64], core: Core) -> Float32:
    """Return the taps if their loops keep the requested margins, else the best ones below limit_db that do.

    limit_db: ceiling on |W| of other filters, [16385].
    """
    feedbacks = [path for path in posed.feedback if path is not None]
    margins = posed.problem.min_gain_margin_db, posed.problem.min_phase_margin_deg
    return with_margins(
        taps, feedbacks, *margins, lambda most_db: core.limit(posed.open_loop, taps, np.minimum(limit_db, most_db))
    )


def margins_cost_db(posed: Posed, before: Float32, after: Float32, core: Core) -> float:
    """Compute the mean noise reduction that margins cost, on the paths that the filter is designed for."""
    aim = posed.open_loop

    def mean_db(taps: Float32) -> float:
        pairs = zip(aim.primary, aim.secondary, posed.known, strict=True)
        found = [core.predict(p, s, aim.reference_psd, known, taps) for p, s, known in pairs]
        return float(aim.shares @ [item.mean_noise_reduction_db for item in found])

    return max(mean_db(before) - mean_db(after), 0.0)


def loop_of_all(problem: Problem, taps: NDArray[Any], loss_db: float = 0.0) -> Loop | None:
    """Return the worst loop of filter and controller over the conditions; None if there is none.

    taps: [2048], or a response on the design grid.
    """
    found = []
    # The loop of a controller lacks the delay of the filter's chain.
    for paths, late in zip(problem.conditions, with_latency(problem).conditions, strict=True):
        feedback = late.feedback
        if problem.controller is not None:
            before = None if feedback is None else spectrum(taps) * spectrum(feedback)
            found.append(judge(problem.controller, spectrum(paths.secondary), before))
        elif feedback is not None:
            is_response = np.iscomplexobj(taps)
            found.append(judge_loop(spectrum(feedback) * taps if is_response else loop_gain(taps, feedback)))
    return worst_loop(found, loss_db) if found else None


def limit(posed: Posed, taps: Float32, core: Core) -> Float32:
    """Find the best filter below the requested ceiling, theory (18), that has the loop's margins.

    taps: filter designed under a loose ceiling, with the margins of the loop, [2048].
    """
    limit_db = ceiling_db(posed.problem.ceiling, DESIGN_N_FFT)
    check_interruption()
    found = core.limit(posed.open_loop, taps, limit_db)
    return keep_margins(posed, found, limit_db, core) if posed.has_feedback else found


def loose_ceiling(posed: Posed) -> NDArray[np.float64]:
    """Return the loose ceiling on all bins, [16385]."""
    return np.full(N_BINS, posed.loose_db)


def ceiling_db(max_gain_db: float | GainCurve, n_fft: int) -> NDArray[np.float64]:
    """Return the ceiling on the bins of an n_fft-point grid: [n_fft // 2 + 1]."""
    if isinstance(max_gain_db, GainCurve):
        return max_gain_db.least_db(n_fft)
    return np.full(n_fft // 2 + 1, float(max_gain_db))


def excess_db(taps: NDArray[np.floating], limit_db: NDArray[np.float64]) -> float:
    """Find the most by which |W| exceeds a ceiling, on the ceiling's grid; negative where it stays below everywhere."""
    response = np.abs(np.fft.rfft(taps, 2 * (len(limit_db) - 1)))
    return float((20 * np.log10(np.maximum(response, 1e-30)) - limit_db).max())

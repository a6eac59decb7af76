"""A problem as backends take it: at unit level, with what is unknown of its paths, and its latency in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from synthesis.bands import WIDE_BANDS
from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.errors import InvalidOption
from synthesis.latency import with_latency
from synthesis.level import at_unit_level
from synthesis.plausibility import SupportPrior
from synthesis.response_noise import response_uncertainty
from synthesis.types import MAX_CONDITIONS, Paths, Problem
from synthesis.unknown_bands import MOST_UNCERTAIN, unknown_bands, with_silence


def pose(problem: Problem, support: SupportPrior | None, *, compares_itself: bool = False) -> Problem:
    """Prepare a problem for a backend.

    Parameters
    ----------
    problem
        Problem as sent.
    support
        Prior of the model, with which paths without coherence and uncertainty are compared; None: there is none.
    compares_itself
        Whether the backend compares the paths of a plain problem itself.

    Returns
    -------
    Problem
        Paths at unit level, with their unknown bands or the uncertainty that the ends of their responses show, and
        with the latency.

    Raises
    ------
    InvalidOption, InvalidPaths
        The number of conditions, a weight, the latency or the levels are out of range.
    """
    conditions = problem.conditions
    if not 1 <= len(conditions) <= MAX_CONDITIONS:
        raise InvalidOption(f"conditions: there are {len(conditions)}; give 1 to {MAX_CONDITIONS}", "conditions")
    for n, condition in enumerate(conditions):
        if not 0 < condition.weight < np.inf:
            field = f"conditions.{n}.weight"
            raise InvalidOption(f"{field}: {condition.weight} is not a number above 0", field)
    problem = at_unit_level(problem)
    compares_itself = compares_itself and is_plain(problem)
    # Before the latency changes the paths.
    conditions = tuple(_with_unknown(paths, problem, support, compares_itself) for paths in problem.conditions)
    return with_latency(replace(problem, conditions=conditions))


def is_plain(problem: Problem) -> bool:
    """Return whether the problem is a single condition without feedback path and latency."""
    return len(problem.conditions) == 1 and problem.conditions[0].feedback is None and not problem.latency_samples


def by_response(paths: Paths) -> Paths:
    """Return paths of no known device with the uncertainty that the ends of their responses show."""
    if paths.coherence is not None or paths.uncertainty is not None or not _is_usable(paths):
        return paths
    return replace(paths, response=response_uncertainty(paths.primary, paths.secondary, MOST_UNCERTAIN))


def _with_unknown(paths: Paths, problem: Problem, support: SupportPrior | None, compares_itself: bool) -> Paths:
    """Return the paths with what is unknown of them; bands in which the system is silent are, whatever was sent."""
    known = _with_uncertainty(paths, problem, support, compares_itself)
    return with_silence(known) if _is_usable(paths) else known


def _with_uncertainty(paths: Paths, problem: Problem, support: SupportPrior | None, compares_itself: bool) -> Paths:
    """Return the paths with their uncertainty: as sent, of the model's device, or by their responses' ends."""
    if paths.coherence is not None or paths.uncertainty is not None:
        unknown = unknown_bands(paths)
        return replace(paths, unknown=unknown) if unknown.any() else paths
    if problem.exact or problem.snr_db > 0:
        share = 0.0 if problem.exact else 10 ** (-problem.snr_db / 10)
        return replace(paths, uncertainty=np.full((2, len(WIDE_BANDS)), share, np.float32))
    if support is None:
        return by_response(paths)
    if compares_itself or paths.resembles is not None or not _is_usable(paths):
        return paths
    if support.resembles(paths.primary, paths.secondary):
        return replace(paths, resembles=True)
    return by_response(replace(paths, resembles=False))


def _is_usable(paths: Paths) -> bool:
    """Return whether both paths have valid shapes and values."""
    both = paths.primary, paths.secondary
    shapes = ((N_BINS,) if np.iscomplexobj(item) else (min(max(item.size, 1), DESIGN_N_FFT),) for item in both)
    return all(
        item.shape == shape and np.isfinite(item).all() and item.any()
        for item, shape in zip(both, shapes, strict=True)
    )

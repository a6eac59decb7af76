"""A problem as backends take it: at unit level, with what is unknown of its paths, and its latency in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from synthesis.bands import WIDE_BANDS
from synthesis.controller import controlled
from synthesis.errors import InvalidOption
from synthesis.latency import with_latency
from synthesis.level import at_unit_level
from synthesis.plausibility import SupportPrior
from synthesis.response_noise import response_uncertainty
from synthesis.types import MAX_CONDITIONS, ModelParameters, Paths, Problem
from synthesis.unknown_bands import MOST_UNCERTAIN, unknown_bands


def pose(problem: Problem, parameters: ModelParameters, *, compares_itself: bool = False) -> Problem:
    """Prepare a problem for a backend.

    Parameters
    ----------
    problem
        Problem as sent.
    parameters
        Of the model; paths without coherence and uncertainty are compared with its support.
    compares_itself
        Whether the backend compares the paths of a plain problem itself.

    Returns
    -------
    Problem
        Paths at unit level, with their unknown bands or the uncertainty that the ends of their responses show, and
        with the latency; with a controller, also their plants.

    Raises
    ------
    InvalidOption, InvalidPaths
        The number of conditions, a weight, the latency or the levels are out of range, or the controller's loop is
        unstable.
    """
    conditions = problem.conditions
    if not 1 <= len(conditions) <= MAX_CONDITIONS:
        raise InvalidOption(f"conditions: there are {len(conditions)}; give 1 to {MAX_CONDITIONS}", "conditions")
    for n, condition in enumerate(conditions):
        if not 0 < condition.weight < np.inf:
            field = f"conditions.{n}.weight"
            raise InvalidOption(f"{field}: {condition.weight} is not a number above 0", field)
    if problem.controller is not None:
        psd = parameters.reference_psd if problem.reference_psd is None else problem.reference_psd
        problem = controlled(replace(problem, reference_psd=psd))
    problem = at_unit_level(problem)
    compares_itself = compares_itself and is_plain(problem)
    # Before the latency changes the paths.
    conditions = tuple(
        _with_unknown(paths, problem, parameters.support, compares_itself) for paths in problem.conditions
    )
    return with_latency(replace(problem, conditions=conditions))


def is_plain(problem: Problem) -> bool:
    """Return whether the problem is a single condition without feedback path, latency and controller."""
    is_alone = len(problem.conditions) == 1 and problem.conditions[0].feedback is None
    return is_alone and not problem.latency_samples and problem.controller is None


def by_response(paths: Paths) -> Paths:
    """Return paths of no known device with the uncertainty that the ends of their responses show."""
    if paths.coherence is not None or paths.uncertainty is not None or not paths.is_usable:
        return paths
    return replace(paths, response=response_uncertainty(paths.primary, paths.secondary, MOST_UNCERTAIN))


def _with_unknown(paths: Paths, problem: Problem, support: SupportPrior | None, compares_itself: bool) -> Paths:
    """Return the paths with what is unknown of them: as sent, of the model's device, or by their responses' ends."""
    if paths.coherence is not None or paths.uncertainty is not None:
        unknown = unknown_bands(paths)
        return replace(paths, unknown=unknown) if unknown.any() else paths
    if problem.exact or problem.snr_db > 0:
        share = 0.0 if problem.exact else 10 ** (-problem.snr_db / 10)
        return replace(paths, uncertainty=np.full((2, len(WIDE_BANDS)), share, np.float32))
    if support is None:
        return by_response(paths)
    if compares_itself or paths.resembles is not None or not paths.is_usable:
        return paths
    if support.resembles(paths.primary, paths.secondary):
        return replace(paths, resembles=True)
    return by_response(replace(paths, resembles=False))

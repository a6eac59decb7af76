"""A problem as backends take it: at unit level, with what is unknown of its paths, and its latency in them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from synthesis.bands import WIDE_BANDS
from synthesis.controller import controlled, with_spectra
from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.errors import InvalidOption, InvalidPaths
from synthesis.methods import spectrum
from synthesis.options import MAX_LATENCY_SAMPLES
from synthesis.plausibility import SupportPrior
from synthesis.types import MAX_CONDITIONS, Complex64, Float32, ModelParameters, Path, Paths, Problem
from synthesis.unknown import MOST_UNCERTAIN, response_uncertainty, unknown_bands, with_silence

# Largest level difference of primary and secondary path. Measured ears have both within 20 dB; an amplifier or a
# converter before the loudspeaker may change it by 60.
MAX_LEVEL_DIFFERENCE_DB = 100.0


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
    conditions = sent = problem.conditions
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
    problem = replace(problem, conditions=conditions)
    if problem.controller is not None:
        problem = with_spectra(problem, sent)
    return with_latency(problem)


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
    """Return the paths with what is unknown of them; bands in which the system is silent are, whatever was sent."""
    known = _with_uncertainty(paths, problem, support, compares_itself)
    return with_silence(known) if paths.is_usable else known


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
    if compares_itself or paths.resembles is not None or not paths.is_usable:
        return paths
    if support.resembles(paths.primary, paths.secondary):
        return replace(paths, resembles=True)
    return by_response(replace(paths, resembles=False))


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


def with_latency(problem: Problem) -> Problem:
    """Apply a problem's latency to the paths through the chain, secondary and feedback: theory (1).

    Without a latency, the input itself is returned.

    Raises
    ------
    InvalidOption
        The latency is outside 0 to 1024 samples.
    """
    if not 0 <= problem.latency_samples <= MAX_LATENCY_SAMPLES:
        raise InvalidOption(
            f"latency_samples: {problem.latency_samples} is not a number from 0 to {MAX_LATENCY_SAMPLES:g}",
            "latency_samples",
        )
    if problem.latency_samples == 0:
        return problem
    delay = np.exp(-2j * np.pi * problem.latency_samples / DESIGN_N_FFT * np.arange(N_BINS))

    def late(path: Float32 | Complex64) -> Complex64:
        return (spectrum(path) * delay).astype(np.complex64)

    def later(condition: Paths) -> Paths:
        feedback = None if condition.feedback is None else late(condition.feedback)
        return replace(condition, secondary=late(condition.secondary), feedback=feedback)

    return replace(problem, latency_samples=0.0, conditions=tuple(map(later, problem.conditions)))

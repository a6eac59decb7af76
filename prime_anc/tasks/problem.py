"""Convert a checked request to options and a problem on the design grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.ceiling import loop_of_all
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.errors import InvalidPaths
from prime_anc.method.gain_curve import GainCurve
from prime_anc.method.loops.controller import Controller
from prime_anc.method.methods import spectrum
from prime_anc.method.posing import MAX_LEVEL_DIFFERENCE_DB, level_db
from prime_anc.method.profiles import PROFILES
from prime_anc.method.types import Complex64, DesignOptions, Float32, Loop, Path, Paths, Problem
from prime_anc.method.unknown import END_OF_RESPONSE
from prime_anc.options import FilterFields, ObjectiveFields, ProblemFields, Sign
from prime_anc.requests.bodies import DesignBody, SynthesisBody
from prime_anc.requests.controllers import RunningController, in_sign
from prime_anc.requests.errors import RequestError

# Largest share of an impulse response's energy that resampling may discard: -40 dB.
MAX_DISCARDED_ENERGY = 1e-4

# Largest level difference of a filter's sound and the noise; of the paths alone up to 100 dB are accepted.
MAX_EFFECT_DB = 90.0


# Clients repeat the same options.
_design_options = lru_cache(256)(DesignOptions)

_OF_PROBLEM = [field.name for field in fields(ProblemFields)]
_OF_OBJECTIVE = [field.name for field in fields(ObjectiveFields)]
_OF_FILTER = [field.name for field in fields(FilterFields)]


@dataclass(frozen=True, eq=False)
class DesignRequest:
    """A design requested by a client."""

    model: str | None
    options: DesignOptions
    sign: Sign
    # Primary and secondary paths as sent.
    sent: Sequence[Path]
    # Problem with the paths on the design grid.
    problem: Problem


def design_request(body: SynthesisBody) -> DesignRequest:
    """Convert a request to a design.

    Parameters
    ----------
    body
        Checked request. `fine` replaces the profile `fast` for paths longer than `fast` resolves.

    Raises
    ------
    InvalidPaths
        A path is too long for the design grid.
    """
    conditions = body.all_conditions
    options = {name: getattr(body, name) for name in _OF_PROBLEM}
    problem = joint_problem(conditions, body.reference_psd, controller=running(body), **options)
    sent, n_feedbacks = sent_paths(conditions), sum([condition.feedback is not None for condition in conditions])
    k, profile = (body.k, body.profile) if isinstance(body, DesignBody) else (0, "fast")
    how = _design_options(
        body.method, k, resolved_profile(profile, sent), body.leave_one_out, len(conditions), n_feedbacks
    )
    return DesignRequest(body.model, how, body.sign, sent, problem)


def objective_of(body: Any) -> ObjectiveFields:
    """Return what a request's filter is to minimise and to keep."""
    return ObjectiveFields(**{name: getattr(body, name) for name in _OF_OBJECTIVE})


def filter_problem(body: Any) -> Problem:
    """Return the problem, without a ceiling, of a request about an existing filter."""
    options = {name: getattr(body, name) for name in _OF_FILTER if hasattr(body, name)}
    return joint_problem(body.all_conditions, body.reference_psd, float("inf"), controller=running(body), **options)


def running(body: Any) -> Controller | None:
    """Return the controller that runs in a request, for e = d - s * y."""
    found = getattr(body, "controller", None)
    return in_sign(found.controller, body.sign) if isinstance(found, RunningController) else None


def loop_in(problem: Problem, taps: NDArray[Any]) -> Loop | None:
    """Return the worst loop of a filter, and of its controller, in all conditions; None if there is no loop.

    Parameters
    ----------
    problem
        As sent.
    taps
        Filter, taps [2048] or response [16385].
    """
    return loop_of_all(problem, taps)


def signed(taps: NDArray[Any], sign: Sign) -> NDArray[Any]:
    """Turn a filter of a signal chain of this sign into that of e = d - s * w * x, or back."""
    return -taps if sign == "plus" else taps


def check_effect(taps: Float32 | Complex64, problem: Problem, *, may_be_none: bool = False) -> None:
    """Check that the loudspeaker's sound has the noise's order of magnitude, or may be far below it."""
    filtered = spectrum(taps)
    for condition in problem.conditions:
        noise_db = level_db(condition.primary)
        if abs(level_db(condition.secondary) - noise_db) > MAX_LEVEL_DIFFERENCE_DB:
            continue  # the paths themselves are refused
        with np.errstate(over="ignore"):
            played = (spectrum(condition.secondary) * filtered).astype(np.complex64)
        effect_db = level_db(played) - noise_db
        if not effect_db <= MAX_EFFECT_DB or (effect_db < -MAX_EFFECT_DB and not may_be_none):
            word = "below" if effect_db < 0 else "above"
            raise RequestError(
                "out-of-range",
                f"fir: what the loudspeaker plays of it is {abs(effect_db):.0f} dB {word} the noise on these "
                "paths; send the taps of a design, in its scale, and the paths that they were designed for",
                "fir",
            )


def joint_problem(
    conditions: Sequence[Paths],
    reference_psd: Float32 | None,
    max_gain_db: float | GainCurve,
    **options: Any,
) -> Problem:
    """Build a `Problem` on the design grid from all conditions of one filter, which have been checked.

    Parameters
    ----------
    options
        Further fields of `Problem`.

    Raises
    ------
    InvalidPaths
        A spectrum's impulse response is too long for the design grid; names the condition, if several.
    """
    options |= {"max_gain_db": max_gain_db, "reference_psd": None if reference_psd is None else _psd(reference_psd)}
    if len(conditions) == 1:
        return Problem((_resampled(conditions[0]),), **options)
    return Problem(tuple(_named(*i) for i in enumerate(conditions)), **options)


def _named(n: int, sent: Paths) -> Paths:
    """Resample one condition among several."""
    try:
        return _resampled(sent)
    except InvalidPaths as error:
        name = f"conditions.{n}"
        raise InvalidPaths(f"{name}: {error}", f"{name}.{error.field}") from None


def _resampled(sent: Paths) -> Paths:
    """Resample one condition to the design grid."""
    return Paths(
        _path(sent.primary, "primary"),
        _path(sent.secondary, "secondary"),
        None if sent.coherence is None else _coherence(sent.coherence),
        uncertainty=None if sent.uncertainty is None else sent.uncertainty.reshape(2, -1),
        feedback=None if sent.feedback is None else _path(sent.feedback, "feedback"),
        weight=sent.weight,
        label=sent.label,
    )


def sent_paths(conditions: Sequence[Paths]) -> list[Path]:
    """Return primary and secondary path of all conditions."""
    return [path for condition in conditions for path in (condition.primary, condition.secondary)]


def resolved_profile(name: str, paths: Sequence[Path]) -> str:
    """Choose the finer profile if a path is too long for the grid of the requested one.

    Parameters
    ----------
    name
        Requested profile.
    paths
        Paths as sent. Zeros at the end of a response do not count, and responses and transforms are equivalent.

    Returns
    -------
    str
        `fine` instead of `fast` for responses of more than 4096 samples; any other profile as it is.
    """
    finer, n_resolved = PROFILES[name].finer, PROFILES[name].n_fft // 2
    return finer if finer and any(_outlasts(path, n_resolved) for path in paths) else name


def _outlasts(path: Path, n_samples: int) -> bool:
    """Return whether a response is longer than a number of samples."""
    response: Any = np.fft.irfft(path) if np.iscomplexobj(path) else path
    magnitude = np.abs(response)
    return len(response) > n_samples and magnitude[n_samples:].max() > END_OF_RESPONSE * magnitude.max()


def _path(path: Path, name: str) -> Path:
    """Return an impulse response unchanged, and resample a spectrum by zero-padding its impulse response.

    Truncation that would lose more than -40 dB of the energy is refused.
    """
    if len(path) == N_BINS or not np.iscomplexobj(path):
        return path
    response = np.fft.irfft(path.astype(np.complex128))  # in float64: squares of large float32 values overflow
    kept = response[:DESIGN_N_FFT]
    total, discarded = float(np.sum(response**2)), float(np.sum(response[DESIGN_N_FFT:] ** 2))
    if discarded > MAX_DISCARDED_ENERGY * total:
        raise InvalidPaths(
            f"{name}: resampling the spectrum to {DESIGN_N_FFT} points would discard more than -40 dB of its "
            "impulse response's energy; send a shorter response",
            name,
        )
    with np.errstate(over="ignore"):  # infinities are refused later, with other unusable paths
        resampled: Complex64 = np.fft.rfft(kept, DESIGN_N_FFT).astype(np.complex64)
    return resampled


def _coherence(coherence: Float32) -> Float32:
    """Interpolate linearly over frequency."""
    if len(coherence) == N_BINS:
        return coherence
    found = np.interp(np.linspace(0, 1, N_BINS), np.linspace(0, 1, len(coherence)), coherence)
    return found.astype(np.float32)


def _psd(psd: Float32) -> Float32:
    """Resample a noise spectrum to the design grid.

    A bin spreads its power evenly over its width (half a width at 0 Hz and at Nyquist), and a bin of the design grid
    sums what falls into its width: total power is preserved, no bin is negative, and white noise stays white.
    """
    if len(psd) == N_BINS:
        return psd
    cumulative = np.concatenate(([0.0], np.cumsum(psd, dtype=np.float64)))
    collected = np.diff(np.interp(_bin_edges(N_BINS), _bin_edges(len(psd)), cumulative))
    return collected.astype(np.float32)


def _bin_edges(n_bins: int) -> NDArray[np.float64]:
    """Return the edges of the bins of a one-sided spectrum, 0 to 1 from 0 Hz to Nyquist: [n_bins + 1]."""
    return np.clip((np.arange(n_bins + 1) - 0.5) / (n_bins - 1), 0, 1)

"""The problem as posed: paths at unit level on the design grid, what is known of them, the loops that they close.

The paths include the delay of the filter's chain, theory (1). With a feedback path F and a controller's loop S K

    e = (P (1 + W F) - S W) / (1 + W F + S K)                                            theory (19),

in which a filter changes the paths P / (1 + S K) and (S - P F) / (1 + S K): `Posed.open_loop`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.errors import InvalidOption, InvalidPaths, SynthesisError
from prime_anc.method.gain_curve import GainCurve
from prime_anc.method.loops.controller import InnerLoop, inner_loop
from prime_anc.method.methods import Path, spectrum
from prime_anc.method.profiles import PROFILES, RefinementProfile
from prime_anc.method.support.explanation import Explanation, SupportPrior
from prime_anc.method.support.findings import Finding, find_implausible
from prime_anc.method.types import (
    MAX_CONDITIONS,
    Complex64,
    Float32,
    Known,
    Model,
    Paths,
    Problem,
)
from prime_anc.method.unknown import SILENT_UNCERTAINTY
from prime_anc.options import DEFAULT_MAX_GAIN_DB, MAX_LATENCY_SAMPLES

# Largest level difference of primary and secondary path. Measured ears have both within 20 dB; an amplifier or a
# converter before the loudspeaker may change it by 60.
MAX_LEVEL_DIFFERENCE_DB = 100.0
# Largest level of the primary over the secondary path of an ear: 30 measured ears have -12 to 5 dB.
LOUDEST_PRIMARY_DB = 12.0


@dataclass(frozen=True, eq=False)
class OpenLoop:
    """What a filter is designed for: paths without a loop that it closes. Arrays are contiguous."""

    # P and S, complex64 [n_conditions, 16385].
    primary: Complex64
    secondary: Complex64
    # u_p and u_s, float32 [n_conditions, 2, 31].
    uncertainty: Float32
    # Weights of the conditions, of sum one, [n_conditions].
    shares: NDArray[np.float64]
    # Mean square of the reference per bin, float32 [16385].
    reference_psd: Float32
    # Weights in J that replace a profile's.
    weights: dict[str, Any]
    # Ceiling on |W| that good filters hardly reach.
    loose_db: float

    def profile(self, name: str) -> RefinementProfile:
        """Return the profile of this name with the problem's weights in J."""
        return replace(PROFILES[name], **self.weights) if self.weights else PROFILES[name]


@dataclass(frozen=True, eq=False)
class Posed:
    """A problem at unit level on the design grid."""

    # As sent.
    problem: Problem
    # P and S, complex64 [n_conditions, 16385].
    primary: Complex64
    secondary: Complex64
    # F of the conditions that have one, complex64 [16385].
    feedback: tuple[Complex64 | None, ...]
    known: tuple[Known, ...]
    # Mean square of the reference per bin, float32 [16385].
    reference_psd: Float32
    # Faults of the paths compared with the model's listeners.
    implausible: tuple[Finding, ...]
    # Loops of the controller alone, one per condition; none without a controller.
    inner: tuple[InnerLoop, ...]

    @property
    def has_feedback(self) -> bool:
        """Return whether the outer microphone hears the loudspeaker in a condition."""
        return any(path is not None for path in self.feedback)

    def secondary_with(self, n: int, response: Any) -> Complex64:
        """Return condition n's S / (1 + W F), with which a filter W has its effect in a closed loop."""
        feedback = self.feedback[n]
        return self.secondary[n] if feedback is None else single(self.secondary[n] / (1 + response * feedback))

    def only(self, *places: int) -> Posed:
        """Return the problem of some of its conditions."""

        def chosen(items: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(items[n] for n in places) if items else ()

        return replace(
            self,
            problem=replace(self.problem, conditions=chosen(self.problem.conditions)),
            primary=self.primary[list(places)],
            secondary=self.secondary[list(places)],
            feedback=chosen(self.feedback),
            known=chosen(self.known),
            inner=chosen(self.inner),
        )

    @cached_property
    def open_loop(self) -> OpenLoop:
        """Return the problem as a filter's minimisation sees it, under the loose ceiling."""
        primary, secondary = self.primary, self.secondary
        if self.has_feedback:
            returned = [0 if f is None else p * f for p, f in zip(primary, self.feedback, strict=True)]
            secondary = np.stack([single(s - item) for s, item in zip(secondary, returned, strict=True)])
        if self.inner:
            left = 1 / (1 + np.stack([item.gain for item in self.inner]))
            primary, secondary = single(primary * left), single(secondary * left)
        return OpenLoop(
            primary,
            secondary,
            np.stack([item.assumed for item in self.known]),
            self.problem.shares,
            self.reference_psd,
            self.problem.weights,
            self.loose_db,
        )

    @property
    def loose_db(self) -> float:
        """Return a ceiling that updates hardly reach, and at least the requested one.

        It is the default, raised by as much as the secondary path is quieter than an ear's.
        """
        pairs = zip(self.primary, self.secondary, strict=True)
        quieter_db = max(level_db(primary) - level_db(secondary) for primary, secondary in pairs)
        is_quiet = LOUDEST_PRIMARY_DB < quieter_db < np.inf
        default_db = DEFAULT_MAX_GAIN_DB + (quieter_db - LOUDEST_PRIMARY_DB if is_quiet else 0.0)
        return max(default_db, extremes_db(self.problem.ceiling)[1])


def pose(problem: Problem, model: Model, *, is_true: bool = False) -> Posed:
    """Prepare a problem.

    Parameters
    ----------
    is_true
        Whether the paths are the true ones.

    Raises
    ------
    InvalidOption, InvalidPaths
        The number of conditions, a weight, the latency, a path or the levels are out of range, or the controller's
        loop is unstable.
    """
    if not 1 <= len(problem.conditions) <= MAX_CONDITIONS:
        given = f"conditions: there are {len(problem.conditions)}; give 1 to {MAX_CONDITIONS}"
        raise InvalidOption(given, "conditions")
    for n, condition in enumerate(problem.conditions):
        if not 0 < condition.weight < np.inf:
            field = f"conditions.{n}.weight"
            raise InvalidOption(f"{field}: {condition.weight} is not a number above 0", field)
    psd = model.parameters.reference_psd if problem.reference_psd is None else problem.reference_psd
    if psd.shape != (N_BINS,):
        raise ValueError(f"{psd.shape} values of a reference spectrum were given; {N_BINS} are expected")
    psd, exponent = np.ascontiguousarray(psd, np.float32), _exponent(problem)
    delay = delay_of(problem) if problem.latency_samples else 1.0
    primary, secondary = np.empty((2, len(problem.conditions), N_BINS), np.complex64)
    support = model.parameters.support
    feedback, known, found, inner = [], [], list[Finding](), []
    for n, paths in enumerate(problem.conditions):
        explanation, is_device = None, False
        if support is not None and is_usable(paths):
            explanation = support.explain(paths.primary, paths.secondary)
            is_device = explanation.is_right
        try:
            room = primary[n], secondary[n]
            *_, judged = model.core.pose(_scaled(paths, exponent), psd, is_device=is_device, out=room)
        except SynthesisError as error:
            raise problem.named(error, n) from None
        known.append(_stated(judged, paths, problem, is_true=is_true))
        found += _implausible(problem, n, support, explanation)
        if problem.controller is not None:
            inner.append(inner_loop(problem, n, secondary[n], 2.0**-exponent))
        feedback.append(None if paths.feedback is None else single(spectrum(paths.feedback) * delay))
    if problem.latency_samples:
        secondary = single(secondary * delay)
    return Posed(problem, primary, secondary, tuple(feedback), tuple(known), psd, tuple(found), tuple(inner))


def _stated(known: Known, paths: Paths, problem: Problem, *, is_true: bool) -> Known:
    """Return what is known of a condition's paths: as stated, else as judged."""
    if is_true:
        return known._replace(uncertainty=np.zeros_like(known.uncertainty), basis="truth", ends_interval_db=0.0)
    stated = paths.uncertainty
    if problem.exact or problem.snr_db > 0:
        share = 0.0 if problem.exact else 10 ** (-problem.snr_db / 10)
        stated = np.full_like(known.uncertainty, share)
    if stated is None:
        return known
    if stated.shape != known.uncertainty.shape:
        raise ValueError(f"{stated.shape} uncertainties were given; {known.uncertainty.shape} are expected")
    uncertainty = stated.astype(np.float32)
    if known.silent is not None:
        uncertainty[1, known.silent] = np.maximum(uncertainty[1, known.silent], SILENT_UNCERTAINTY)
    return known._replace(uncertainty=uncertainty, basis="calibration", is_exact=problem.exact)


def _implausible(
    problem: Problem, n: int, support: SupportPrior | None, explanation: Explanation | None
) -> list[Finding]:
    """Find faults of condition n's paths by comparison with the model's support, with its name if there are several."""
    paths = problem.conditions[n]
    pair = paths.primary, paths.secondary
    found = find_implausible(support, *pair, paths.feedback, explanation=explanation)
    if len(problem.conditions) == 1:
        return list(found)
    return [replace(item, detail=f"{problem.name_of(n)}: {item.detail}") for item in found]


def single(values: NDArray[np.complexfloating]) -> Complex64:
    """Return a spectrum in single precision."""
    return values.astype(np.complex64)


def extremes_db(max_gain_db: float | GainCurve) -> tuple[float, float]:
    """Return a ceiling where it is lowest and where it is highest."""
    if isinstance(max_gain_db, GainCurve):
        return float(min(max_gain_db.gain_db)), float(max(max_gain_db.gain_db))
    return float(max_gain_db), float(max_gain_db)


def _exponent(problem: Problem) -> int:
    """Return the power of two, an exact factor, that brings the first condition's paths near 0 dB.

    The unit of the error microphone is a factor of both paths and cancels in W = P / S, but squares in float32 could
    overflow or vanish. The geometric mean of the levels is then between -3 and 3 dB.

    Raises
    ------
    InvalidPaths
        The levels of a pair differ by more than MAX_LEVEL_DIFFERENCE_DB, or a feedback path's by more from their ratio.
    """
    for n, paths in enumerate(problem.conditions):
        _check_levels(problem, n, paths)
    mean_db = (level_db(problem.conditions[0].primary) + level_db(problem.conditions[0].secondary)) / 2
    return -round(mean_db / (20 * math.log10(2))) if math.isfinite(mean_db) else 0


def _scaled(paths: Paths, exponent: int) -> Paths:
    """Multiply primary and secondary path by 2 ** exponent, in two steps because that may exceed float32."""
    if not exponent:
        return paths
    half = exponent // 2

    def scaled(path: Path) -> Path:
        found: Path = path * path.dtype.type(2.0**half) * path.dtype.type(2.0 ** (exponent - half))
        return found

    return replace(paths, primary=scaled(paths.primary), secondary=scaled(paths.secondary))


def level_db(path: Path) -> float:
    """Compute the level of a path: the RMS over frequency of its spectrum.

    It is infinite for a path that is all zero or not finite.
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


def is_usable(paths: Paths) -> bool:
    """Return whether both paths have valid shapes and values."""
    for path in (paths.primary, paths.secondary):
        shape = (N_BINS,) if np.iscomplexobj(path) else (min(max(path.size, 1), DESIGN_N_FFT),)
        if path.shape != shape or not math.isfinite(level_db(path)):
            return False
    return True


def _check_levels(problem: Problem, n: int, paths: Paths) -> None:
    """Raise InvalidPaths if no earphone explains the levels of condition n."""
    primary_db, secondary_db = level_db(paths.primary), level_db(paths.secondary)
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
    loop_db = difference_db - math.inf if paths.feedback is None else difference_db + level_db(paths.feedback)
    if loop_db > MAX_LEVEL_DIFFERENCE_DB:
        error = InvalidPaths(
            f"feedback: its level is {loop_db:.0f} dB above that of secondary over primary path, which no "
            "earphone explains; measure it with the same microphones and send all paths in their units",
            "feedback",
        )
        raise problem.named(error, n)


def delay_of(problem: Problem) -> NDArray[np.complex128]:
    """Return the delay of the filter's chain on the design grid; InvalidOption if it is out of range."""
    if not 0 <= problem.latency_samples <= MAX_LATENCY_SAMPLES:
        raise InvalidOption(
            f"latency_samples: {problem.latency_samples} is not a number from 0 to {MAX_LATENCY_SAMPLES:g}",
            "latency_samples",
        )
    delay: NDArray[np.complex128] = np.exp(-2j * np.pi * problem.latency_samples / DESIGN_N_FFT * np.arange(N_BINS))
    return delay


def with_latency(problem: Problem) -> Problem:
    """Apply a problem's latency to the paths through the chain, secondary and feedback: theory (1).

    Without a latency, the input itself is returned.
    """
    if problem.latency_samples == 0:
        return problem
    delay = delay_of(problem)

    def later(condition: Paths) -> Paths:
        feedback = None if condition.feedback is None else single(spectrum(condition.feedback) * delay)
        return replace(condition, secondary=single(spectrum(condition.secondary) * delay), feedback=feedback)

    return replace(problem, latency_samples=0.0, conditions=tuple(map(later, problem.conditions)))

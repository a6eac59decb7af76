"""What few problems need to be posed: a latency in their paths, and errors of levels."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.errors import InvalidOption, InvalidPaths
from prime_anc.method.methods import spectrum
from prime_anc.method.types import Complex64, Float32, Paths, Problem
from prime_anc.options import MAX_LATENCY_SAMPLES

# Largest level difference of primary and secondary path. Measured ears have both within 20 dB; an amplifier or a
# converter before the loudspeaker may change it by 60.
MAX_LEVEL_DIFFERENCE_DB = 100.0


def check_levels(problem: Problem, n: int, primary_db: float, secondary_db: float, feedback_db: float) -> None:
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
    loop_db = feedback_db + difference_db
    if loop_db > MAX_LEVEL_DIFFERENCE_DB:
        error = InvalidPaths(
            f"feedback: its level is {loop_db:.0f} dB above that of secondary over primary path, which no "
            "earphone explains; measure it with the same microphones and send all paths in their units",
            "feedback",
        )
        raise problem.named(error, n)


def delay_of(problem: Problem) -> NDArray[np.complex128]:
    """Return the delay of the filter's chain on the design grid."""
    delay: NDArray[np.complex128] = np.exp(-2j * np.pi * problem.latency_samples / DESIGN_N_FFT * np.arange(N_BINS))
    return delay


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
    delay = delay_of(problem)

    def late(path: Float32 | Complex64) -> Complex64:
        return (spectrum(path) * delay).astype(np.complex64)

    def later(condition: Paths) -> Paths:
        feedback = None if condition.feedback is None else late(condition.feedback)
        return replace(condition, secondary=late(condition.secondary), feedback=feedback)

    return replace(problem, latency_samples=0.0, conditions=tuple(map(later, problem.conditions)))

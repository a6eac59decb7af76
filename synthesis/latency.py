"""Delay of a signal chain that is missing in a measured secondary path."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.errors import InvalidOption
from synthesis.methods import spectrum
from synthesis.options import MAX_LATENCY_SAMPLES
from synthesis.types import Complex64, Float32, Paths, Problem


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

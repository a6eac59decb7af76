"""Delay of a signal chain that a measured secondary path does not hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from synthesis.backends.base import MAX_LATENCY_SAMPLES, Complex64, Condition, DesignInput, Float32
from synthesis.backends.methods import spectrum
from synthesis.conventions import DESIGN_N_FFT, N_BINS
from synthesis.errors import InvalidOption


def with_latency(ear: DesignInput) -> DesignInput:
    """The same ear with its latency in the paths that pass through the chain, secondary and feedback, where
    S exp(-j 2 pi k d / n_fft) replaces S. Without a latency, the input itself.

    Raises InvalidOption for a latency outside 0 to 1024 samples.
    """
    if not 0 <= ear.latency_samples <= MAX_LATENCY_SAMPLES:
        raise InvalidOption(
            f"latency_samples: {ear.latency_samples} is not a number from 0 to {MAX_LATENCY_SAMPLES:g}",
            "latency_samples",
        )
    if ear.latency_samples == 0:
        return ear
    delay = np.exp(-2j * np.pi * ear.latency_samples / DESIGN_N_FFT * np.arange(N_BINS))

    def late(path: Float32 | Complex64) -> Complex64:
        return (spectrum(path) * delay).astype(np.complex64)

    def later(condition: Condition) -> Condition:
        feedback = None if condition.feedback is None else late(condition.feedback)
        return replace(condition, secondary=late(condition.secondary), feedback=feedback)

    first = later(ear)
    assert isinstance(first, DesignInput)
    return replace(first, latency_samples=0.0, others=tuple(map(later, ear.others)))

"""Latency goes into the paths that pass through the chain."""

from dataclasses import replace

import numpy as np

from synthesis.conventions import DESIGN_N_FFT
from synthesis.posing import with_latency
from synthesis.types import Paths, Problem
from tests.model_store import cases


def ear(seed: int = 1) -> Paths:
    return Paths(*cases.ear(seed))


def test_latency_shifts_response() -> None:
    plain = ear()
    feedback = plain.secondary[:40]
    later = Paths(plain.primary, 2 * plain.secondary, feedback=feedback, label="loose")
    found = with_latency(Problem((replace(plain, feedback=feedback), later), latency_samples=5.0))
    assert found.latency_samples == 0
    assert found.conditions[1].label == "loose"
    for before, after in zip((plain, later), found.conditions, strict=True):
        assert after.primary is before.primary
        shifted = np.fft.irfft(after.secondary)
        np.testing.assert_allclose(shifted[5 : 5 + len(before.secondary)], before.secondary, atol=1e-6)
        assert np.abs(shifted[:5]).max() < 1e-6
        assert after.feedback is not None
        np.testing.assert_allclose(np.fft.irfft(after.feedback)[5:45], feedback, atol=1e-6)


def test_fractional_latency_delays_sines() -> None:
    plain = ear()
    found = with_latency(Problem((plain,), latency_samples=0.3)).conditions[0].secondary
    ratio = found / np.fft.rfft(plain.secondary, DESIGN_N_FFT)
    angle = -2 * np.pi * 0.3 * np.arange(len(ratio)) / DESIGN_N_FFT
    np.testing.assert_allclose(ratio, np.exp(1j * angle), atol=1e-4)  # complex64, where |S| is 40 dB down too

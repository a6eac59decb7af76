"""Probe recordings of an earphone: a noise through true paths, in both states."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.signal import fftconvolve

from prime_anc.client import Take, wire


def recordings(noise: np.ndarray, primary: np.ndarray, secondary: np.ndarray) -> list[Take]:
    """A take with gain 0 and one with gain 0.35."""
    takes = []
    for gain in (0.0, 0.35):
        combined = primary - gain * np.pad(secondary, (0, len(primary) - len(secondary)))
        error = fftconvolve(noise, combined)[: len(noise)]
        takes.append(Take(gain, noise.astype(np.float32), error.astype(np.float32)))
    return takes


def off_and_on(primary: np.ndarray, played: np.ndarray, n: int = 192_000) -> list[dict[str, Any]]:
    """Takes of a verification: white noise through the primary path, and less what a filter plays by responses given.

    Noise of the error microphone is 60 dB below.
    """
    rng, n_fft, takes = np.random.default_rng(1), 2**19, []
    for state, response in (("off", np.zeros(1)), ("on", played)):
        x = rng.standard_normal(n)
        transfer = np.fft.rfft(primary, n_fft) - np.fft.rfft(response, n_fft)
        e = np.fft.irfft(np.fft.rfft(x, n_fft) * transfer)[:n]
        takes.append({"state": state, "x": x, "e": e + 1e-3 * e.std() * rng.standard_normal(n)})
    return takes


def encoded(takes: Sequence[Take]) -> bytes:
    """A body of a calibration as safetensors."""
    return wire.encode_request({"sample_rate": 48_000, "takes": wire.takes(takes)})

"""Probe recordings of an earphone: a noise through true paths, in both states."""

from collections.abc import Sequence

import numpy as np
from scipy.signal import fftconvolve

from prime_anc_client import Take, wire

GAIN = 0.35


def recordings(
    noises: Sequence[np.ndarray],
    primary: np.ndarray,
    secondary: np.ndarray,
    gain: float = GAIN,
    snr_db: float = 300.0,
) -> list[Take]:
    """A take with gain 0 and one with `gain` per noise; white noise is `snr_db` below the error signals."""
    rng = np.random.default_rng(0)
    takes = []
    for state in (0.0, gain):
        for noise in noises:
            combined = primary - state * np.pad(secondary, (0, len(primary) - len(secondary)))
            error = fftconvolve(noise, combined)[: len(noise)]
            error += 10 ** (-snr_db / 20) * error.std() * rng.standard_normal(len(error))
            takes.append(Take(state, noise.astype(np.float32), error.astype(np.float32)))
    return takes


def encoded(takes: Sequence[Take]) -> bytes:
    """A body of a calibration as safetensors."""
    return wire.encode_request({"sample_rate": 48_000, "takes": wire.takes(takes)})

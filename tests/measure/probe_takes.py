"""Takes of measured ears, with faults of a calibration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.signal import fftconvolve

from prime_anc.measure.calibration import Windows
from prime_anc.measure.estimate import GainTake
from tests.oracles import path_estimation

GAIN = path_estimation.GAIN
N = path_estimation.LAST_SAMPLE
# Cuts the six windows of the twin from takes of N samples.
SIX_WINDOWS = Windows(8192, path_estimation.FIRST_SAMPLE, path_estimation.N_OFFSETS)

Array = np.ndarray
Change = Callable[[Array], Array]


@dataclass(frozen=True)
class Fault:
    """Changes of the secondary path and of either microphone's takes [n]."""

    secondary: Change = field(default=lambda s: s)
    error: Change = field(default=lambda e: e)


def noisy(error: Array, snr_db: float) -> Array:
    """Add white noise at an SNR; deterministic per take."""
    rng = np.random.default_rng(np.abs(error[:4]).view(np.uint64))
    return error + 10 ** (-snr_db / 20) * np.sqrt((error**2).mean()) * rng.standard_normal(error.shape)


def takes_of(
    probes: Sequence[Array], primary: Array, secondary: Array, fault: Fault | None = None, gain: float = GAIN
) -> list[GainTake]:
    """Return takes of both states with each probe."""
    fault, takes = fault or Fault(), []
    for x in probes:
        disturbance, control = (fftconvolve(x, path)[: len(x)] for path in (primary, fault.secondary(secondary)))
        for state in (0.0, gain):
            takes.append(GainTake(state, x, fault.error(disturbance - state * control)))
    return takes

"""A controller's loop run in time, at the chip's rate: whether its response grows."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
from scipy.signal import fftconvolve, sosfilt

from prime_anc.hardware.hybrid import HybridDesign
from prime_anc.hardware.running import Machine, run_in_loop
from prime_anc.method.controller import Controller

DURATION_S = 0.8
LOUD = 1e9
# Level over the largest that rounding may leave of a response that has decayed.
ROUNDED = 1e-12
# In words: a kick that no stable loop saturates by, what may stay as round-off, as a share of the peak and in units of
# the output, and how far in dB the level of a loop that saturates may fall.
KICK, WORDS_S, LEFT, LEFT_UNITS, STEADY_DB = 2.0**-6, 0.6, 1e-3, 16, 1.0


def simulated(plant: np.ndarray, controller: Controller) -> float:
    """Compute the impulse response of the closed loop, and return its level's growth in dB at the end.

    With h, the impulse response of S K, the error microphone hears g = 1 / (1 + h) as a power series: g[n] follows
    from the samples before it. Newton's iteration doubles the number of known samples.

    Parameters
    ----------
    plant
        Impulse response at the chip's rate; the first sample is zero.
    controller
        Its delay is a whole number of samples.
    """
    rate = controller.sections.sample_rate_hz
    n_samples = int(DURATION_S * rate)
    late = np.zeros(n_samples)
    delayed = np.concatenate((np.zeros(round(controller.latency_s * rate)), plant))[:n_samples]
    late[: len(delayed)] = delayed
    loop = sosfilt(controller.sections.rows, late)
    loop[0] += 1
    closed = np.ones(1)
    while len(closed) < n_samples:
        n = min(2 * len(closed), n_samples)
        missing = -fftconvolve(loop[:n], closed)[:n]
        missing[0] += 2
        closed = fftconvolve(closed, missing)[:n]
        if not np.abs(closed).max() < LOUD:
            return np.inf
    return growth(closed, ROUNDED)


def growth(response: np.ndarray, least: float) -> float:
    """Compute a level's growth in dB at the end; -inf if that is below the share `least` of the largest sample."""
    size, n = np.abs(response), len(response)
    first, second = (size[int(a * n) : int(b * n)].max() for a, b in ((0.4, 0.7), (0.7, 1.0)))
    return 20 * float(np.log10(second / first)) if second > least * size.max() else -np.inf


def growth_in_words(plant: np.ndarray, found: HybridDesign) -> float:
    """Run a loop in fixed point after a kick, and return its level's growth in dB at the end.

    Parameters
    ----------
    plant
        Impulse response at the chip's rate, without what precedes its onset.
    found
        With a controller in fixed point.
    """
    assert found.quantised is not None
    assert found.scaling is not None
    controller, quantised = found.controller, found.quantised
    rate = controller.sections.sample_rate_hz
    coefficients = {"form": "sos", "sample_rate": rate, "number_format": str(quantised.format)}
    coefficients |= {"words": quantised.words, "shift": quantised.shift, "scaling": asdict(found.scaling)}
    late = np.concatenate((np.zeros(round(controller.latency_s * rate)), plant))
    kick = np.zeros(int(WORDS_S * rate))
    kick[0] = KICK
    (outputs,) = run_in_loop([Machine(coefficients)], [kick], [[late]])
    unit = 2.0 ** (found.scaling.headroom_bits + 1 - quantised.format.n_bits)
    return growth(outputs, max(LEFT, LEFT_UNITS * unit / np.abs(outputs).max())) + STEADY_DB

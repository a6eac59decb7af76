"""A controller's loop run in time, at the chip's rate: whether its response grows."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from prime_anc.hardware.hybrid import HybridDesign
from prime_anc.hardware.running import Machine, run_in_loop

# In words: a kick that no stable loop saturates by, what may stay as round-off, as a share of the peak and in units of
# the output, and how far in dB the level of a loop that saturates may fall.
KICK, WORDS_S, LEFT, LEFT_UNITS, STEADY_DB = 2.0**-6, 0.6, 1e-3, 16, 1.0


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

"""Faults of single signals: clipping and silence."""

from __future__ import annotations

import numpy as np

from prime_anc.method.arrays import Real

# Power of a silent window of x or of a drive, relative to the loudest window.
SILENT_DB = -30.0
# `clipped_share`: relative distance from the extreme within which samples are at it; share of a sine's samples there;
# deviation of the RMS over the peak from a sine's.
_EQUAL = 1e-6
_SHARE_OF_SINE = 0.01
_SINE_TOLERANCE = 0.02
# Samples of the windows in which silence is looked for: 64 ms.
N_SILENT = 3072


def clipped_share(signal: Real) -> float:
    """Compute the share of a signal's samples [n] at its extremes, beyond the first at either end.

    A sine or sweep has up to 1 % of its samples there in 16 bits; from a signal with that crest factor it is
    subtracted.
    """
    reached = 0
    for one_way in (signal, -signal):
        top = one_way.max()
        if top > 0:
            reached += int((one_way >= top * (1 - _EQUAL)).sum()) - 1
    share = reached / signal.shape[-1]
    peak = np.abs(signal).max()
    is_sine = peak > 0 and abs(np.sqrt(np.mean((signal / peak) ** 2)) - np.sqrt(0.5)) < _SINE_TOLERANCE
    return max(share - _SHARE_OF_SINE, 0.0) if is_sine else share


def silent_share(signal: Real) -> float:
    """Compute the share of a signal's windows that are far below the loudest."""
    n = max(len(signal) // N_SILENT, 1)
    power = np.mean(np.square(signal[: n * N_SILENT].reshape(n, -1), dtype=np.float64), -1)
    return float(np.mean(power < 10 ** (SILENT_DB / 10) * power.max()))

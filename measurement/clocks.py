"""Find clocks that drift: the phase of a path then turns in proportion to time.

If the clock of e runs faster than that of x by a share d, the transfers in two windows of m hops of h samples apart
differ by exp(-j w m h d). Windows twice as far apart each time refine d, without ambiguity; it counts if it exceeds
N_ERRORS standard errors, which follow from what a straight phase leaves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synthesis.arrays import SMALLEST, Complex, Real
from synthesis.conventions import SAMPLE_RATE_HZ

# Samples of a Hann window, of which the next begins a hop later; and windows of all signals together.
FRAME, HOP, MAX_FRAMES = 8192, 4096, 512
# Bins from 100 Hz to 3 kHz: above, the phase is ambiguous from 1000 ppm on.
USED = np.arange(*(hz * FRAME // SAMPLE_RATE_HZ for hz in (100, 3000)))
# Least length of the mean of the transfers' phasors: with 10 dB of SNR it is 0.8, without a common source 0.1.
MIN_LIKENESS = 0.5
N_ERRORS = 5.0


def find_drift_ppm(pairs: Sequence[tuple[Real, Real]]) -> float:
    """Measure by how much the second clock is faster than the first.

    Parameters
    ----------
    pairs : sequence of (ndarray, ndarray)
        A signal and what a path makes of it, [n] each.

    Returns
    -------
    float
        Parts per million; 0 if there is none, or the signals are too short or too noisy.
    """
    most = max(MAX_FRAMES // max(len(pairs), 1), 2) * HOP
    phasors = [_phasors(one[:most], other[:most]) for one, other in pairs if len(one) >= FRAME + HOP]
    omega = 2 * np.pi * USED / FRAME
    turn, error, step = 0.0, 0.0, 1
    while any(len(item) > step for item in phasors):
        products = np.concatenate([item[:-step].conj() * item[step:] for item in phasors if len(item) > step])
        mean = products.mean(0) * np.exp(-1j * omega * turn * step)
        if np.median(np.abs(mean)) < MIN_LIKENESS:
            break
        weight, angle = np.abs(mean) ** 2 * omega, np.angle(mean)
        change = np.sum(weight * angle) / np.sum(weight * omega)
        error = np.linalg.norm(weight * (angle - change * omega)) / np.sum(weight * omega) / step
        turn += change / step
        step *= 2
    return -1e6 * turn / HOP if abs(turn) > N_ERRORS * error else 0.0


def _phasors(one: Real, other: Real) -> Complex:
    """Return the directions of the transfer in each window, [windows, bins]."""
    x, e = (
        np.fft.rfft(np.lib.stride_tricks.sliding_window_view(item, FRAME)[::HOP] * np.hanning(FRAME))
        for item in (one, other)
    )
    cross = (x.conj() * e)[:, USED]
    return cross / np.maximum(np.abs(cross), SMALLEST)

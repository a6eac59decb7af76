"""What arrives too late for the windows of a calibration, told apart from the error microphone's own noise.

Both are left unexplained by the reference, but only the former is sound that will stay: the latter is not there
when the filter runs. Where the reference repeats from the silent to a driven state, what the windows do not hold
repeats with it, and the noise does not. So with the residuals r = E - H X of two states the power per |X|^2 is

    Re sum r_0* r_g / sum |X_0|^2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from measurement.estimate import GainTake, ProbeState, squared_magnitude

Real = NDArray[np.floating]

# Least squared coherence of the two states' references, median over frequency, for one to repeat the other.
REPEATS = 0.8

# More tell nothing new of a power.
MAX_FRAMES = 256

_TINY = float(np.finfo(np.float64).tiny)


def tail_power(
    takes: Sequence[GainTake], states: Sequence[ProbeState], *, window: int, first_samples: Sequence[int]
) -> Real | None:
    """Power of the primary path that no window holds, in the unit of |P|^2, per bin [window // 2 + 1].

    takes: signals [n]. states: of `probe_states` for these takes, the silent one first. first_samples: of the
    windows. Single bins may be negative: sum over bands. None where the references do not repeat.
    """
    silent, driven = states[0], states[1]
    pairs = list(
        zip(
            (take for take in takes if take.gain == silent.gain),
            (take for take in takes if take.gain == driven.gain),
            strict=False,  # what has no partner is left out
        )
    )
    stride = max(1, -(-len(pairs) * len(first_samples) // MAX_FRAMES))
    hann = np.hanning(window + 1)[:-1]
    power_0, power_g = (np.zeros(window // 2 + 1) for _ in range(2))
    cross, common = (np.zeros(window // 2 + 1, complex) for _ in range(2))
    # Without the states' regularisation, which would leave something unexplained.
    h_0, h_g = (item.cross / np.maximum(item.reference_power, _TINY) for item in (silent, driven))
    n_frames = 0
    for pair in pairs:
        for first in first_samples[::stride]:
            signals = [item[first : first + window] for take in pair for item in (take.reference, take.error)]
            x_0, e_0, x_g, e_g = np.fft.rfft(hann * np.stack(signals))
            power_0 += squared_magnitude(x_0)
            power_g += squared_magnitude(x_g)
            cross += x_0.conj() * x_g
            common += (e_0 - h_0 * x_0).conj() * (e_g - h_g * x_g)
            n_frames += 1
    coherence = squared_magnitude(cross) / np.maximum(power_0 * power_g, _TINY)
    if n_frames < 2 or np.median(coherence) < REPEATS:
        return None
    # The transfers were fitted to the frames, which takes one degree of freedom.
    n_fitted = min(silent.n_frames, driven.n_frames)
    tail: Real = common.real / np.maximum(power_0, _TINY) * (n_fitted / max(n_fitted - 1, 1))
    return tail

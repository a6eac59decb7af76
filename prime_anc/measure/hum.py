"""Find tones that both microphones record without a path between them: mains hum.

A tone from outside reaches the error microphone through the paths, which are nearly the same at neighbouring
frequencies. One that enters both channels by a cable or a supply does not, but is as coherent, and would be mistaken
for a path. With the transfer H of x to e at the tone, and H_-, H_+ below and above it, it is hum where

    |H - (H_- + H_+) / 2| > (MIN_DEVIATION + N_ERRORS s) |H_- + H_+| / 2 + |H_+ - H_-|,

s being the standard error of H from the noise beside the tone. Probe states are judged separately: a primary path of
one looks like hum, less the loudspeaker's path it does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.estimate import GainTake
from prime_anc.method.arrays import SMALLEST, Real, squared_magnitude
from prime_anc.method.conventions import SAMPLE_RATE_HZ

MAX_FRAME, MIN_FRAME, MIN_FRAMES = 65_536, 8192, 6
# Hops per frame.
HOPS = 4
# Least power of a tone over that of its neighbours, in the median frame of either microphone.
MIN_PROMINENCE = 5.0
MIN_DEVIATION, N_ERRORS = 0.25, 3.0
# Least coherence of the neighbours; below, the path there is unknown.
MIN_COHERENCE = 0.5
# Mains hum and its harmonics; above, narrow notches of ears would look like tones.
RANGE_HZ = (30.0, 1200.0)
# Harmonics of the mains, and how far its frequency may be off; the noise itself holds a tone elsewhere now and then.
MAINS_HZ, MAINS_TOLERANCE = (50.0, 60.0), 3e-3
# Bins from a tone to its neighbours: a Hann window's line is four bins wide.
NEAR, FAR = 4, 12


def find_hum(takes: Sequence[GainTake]) -> list[float]:
    """Find the tones that are in both microphones but do not follow the path between them.

    Parameters
    ----------
    takes : sequence of GainTake
        Recordings [n] of any states.

    Returns
    -------
    list of float
        Frequencies (Hz), ascending; empty for takes too short to separate a tone from its neighbours.
    """
    found: set[float] = set()
    for gain in {take.gain for take in takes}:
        found |= _find_in_state([take for take in takes if take.gain == gain])
    return sorted(found)


def _find_in_state(takes: Sequence[GainTake]) -> set[float]:
    shortest = min(take.error.shape[-1] for take in takes)
    longest_frame = int(shortest / (1 + (MIN_FRAMES - 1) / HOPS))
    frame = min(MAX_FRAME, 1 << max(longest_frame.bit_length() - 1, 0))
    if frame < MIN_FRAME:
        return set()
    window = np.hanning(frame + 1)[:-1]
    last = round(RANGE_HZ[1] * frame / SAMPLE_RATE_HZ) + FAR + 1
    x, e = (
        np.concatenate([np.fft.rfft(_frames(signal, frame) * window)[:, :last] for signal in signals])
        for signals in ([take.reference for take in takes], [take.error for take in takes])
    )
    power_x, power_e, cross = squared_magnitude(x), squared_magnitude(e), x.conj() * e
    ratio = cross / np.maximum(power_x, SMALLEST)
    at_tone = np.median(ratio.real, 0) + 1j * np.median(ratio.imag, 0)
    crosses, powers = _neighbours(cross), _neighbours(power_x)
    low, high = (item / np.maximum(power, SMALLEST) for item, power in zip(crosses, powers, strict=True))
    middle = np.abs(low + high) / 2
    explained = squared_magnitude(crosses.sum(0)) / np.maximum(powers.sum(0), SMALLEST)
    coherence = explained / np.maximum(_neighbours(power_e).sum(0), SMALLEST)
    typical_x, typical_e = np.median(power_x, 0), np.median(power_e, 0)
    prominence = np.minimum(
        *(item / np.maximum(np.median(_around(item), 0), SMALLEST) for item in (typical_x, typical_e))
    )
    is_tone = (prominence > MIN_PROMINENCE) & (typical_x >= np.max(_around(typical_x, 1, NEAR - 1), 0))
    n_independent = max(len(x) * 2 / HOPS, 1.0)
    error = np.sqrt((1 - coherence).clip(0) / np.maximum(coherence * prominence * n_independent, SMALLEST))
    limit = (MIN_DEVIATION + N_ERRORS * error) * middle + np.abs(high - low)
    hz = np.arange(last) * (SAMPLE_RATE_HZ / frame)
    from_mains = np.min([np.abs(hz - base * np.round(hz / base)) for base in MAINS_HZ], 0)
    is_tone &= from_mains <= np.maximum(MAINS_TOLERANCE * hz, hz[1])
    inside = (hz >= RANGE_HZ[0]) & (hz <= RANGE_HZ[1]) & (coherence > MIN_COHERENCE)
    return {float(item) for item in hz[inside & is_tone & (np.abs(at_tone - (low + high) / 2) > limit)]}


def _frames(signal: Real, length: int) -> Real:
    """Cut overlapping windows, [n, length]."""
    frames: Real = np.lib.stride_tricks.sliding_window_view(signal, length)[:: length // HOPS]
    return frames


def _around(values: Real, near: int = NEAR, far: int = FAR) -> Real:
    """Return the bins from `near` to `far` on either side of a bin, [2 (far - near + 1), n]."""
    padded = np.pad(values, far, mode="edge")
    n = len(values)
    shifts = [sign * by for sign in (-1, 1) for by in range(near, far + 1)]
    return np.stack([padded[far + by : far + by + n] for by in shifts])


def _neighbours(values: NDArray[np.inexact]) -> NDArray[np.inexact]:
    """Sum over frames and over the bins below and above each bin, [2, n]."""
    around = _around(values.sum(0))
    return around.reshape(2, -1, around.shape[-1]).sum(1)

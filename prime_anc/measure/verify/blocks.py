"""Transfers and powers of recordings, block by block.

Because the wearer may move, recordings are cut into blocks, and figures are medians over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from prime_anc.measure.estimate import convolved
from prime_anc.method.arrays import Complex, Real
from prime_anc.method.errors import InvalidOption, check_interruption

WINDOW = 8192
HOP = WINDOW // 4
# Before this sample the paths still respond to sound from before the recording.
FIRST_SAMPLE = 4096
MIN_SAMPLES = FIRST_SAMPLE + 4 * WINDOW
# 0.8 s: long enough for the lowest band, short beside a movement.
FRAMES_PER_BLOCK = 16

# Share of windows a quarter apart that are independent.
INDEPENDENT = 0.4


@dataclass(frozen=True, eq=False)
class StateTake:
    """One recording of both microphones at 48 kHz."""

    # Whether the filter runs.
    is_on: bool
    # Reference, real [n].
    x: Real
    # Error, real [n].
    e: Real
    # Clipped shares before resampling, by signal.
    clipped_share: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Block:
    """Transfers and powers of one block, per window bin."""

    # Transfer from x to e.
    transfer: Complex
    # Transfer from x to p * x or s * w * x in the same windows.
    designed: Complex
    # Power of e that x does not explain over that of x, for the mean of this block.
    unexplained: Real
    # Powers of x and e.
    powers: tuple[Real, Real]


class State(NamedTuple):
    """Blocks of all takes of one state, and the medians over them, per window bin."""

    blocks: list[Block]
    # Transfer from x to e.
    transfer: Complex
    # Transfer from x to what a response makes of it.
    designed: Complex
    # Variance of a block's transfer.
    noise: Real


def state_of(recordings: Sequence[StateTake], response: Real) -> State:
    """Pool the takes of one state, in which x is also filtered by a response [n]."""
    blocks = [block for item in recordings for block in _blocks(item, response)]
    names = ("transfer", "designed", "unexplained")
    return State(blocks, *(median([getattr(block, name) for block in blocks]) for name in names))


class Transfers(NamedTuple):
    """Transfers from x, per window bin, of signals that pass the same windows."""

    # To e with the filter off, and how much smaller it is with the filter on.
    off: Complex
    difference: Complex
    # To what the filter plays, and to e through another response, with the filter on.
    played: Complex
    returned: Complex
    # Noise power of the difference.
    noise: Real


def transfers(recordings: Sequence[StateTake], primary: Real, played: Real, returned: Real) -> Transfers:
    """Estimate transfers; responses are real [n].

    What `primary` explains is compared in the same windows of the same take: leakage is that of the rest alone.
    """
    off, on = (state_of(takes, primary) for takes in by_state(recordings))
    running = [
        replace(item, e=convolved(np.asarray(item.e, np.float64), returned)) for item in by_state(recordings)[1]
    ]
    further = state_of(running, played)
    known = median([block.transfer - block.designed for block in off.blocks])
    left = median([block.designed - block.transfer for block in on.blocks])
    return Transfers(off.transfer, known + left, further.designed, further.transfer, off.noise + on.noise)


def by_state(recordings: Sequence[StateTake]) -> tuple[list[StateTake], list[StateTake]]:
    """Return the recordings with the filter off and on."""
    off, on = ([recording for recording in recordings if recording.is_on is is_on] for is_on in (False, True))
    for name, state in (("off", off), ("on", on)):
        if not state:
            raise InvalidOption(f"takes: none has the state {name}; record one", "takes")
    return off, on


def _blocks(recording: StateTake, response: Real) -> list[Block]:
    check_interruption()
    x, e = (np.asarray(item, np.float64) for item in (recording.x, recording.e))
    if len(x) < MIN_SAMPLES or len(x) != len(e):
        raise InvalidOption(f"takes: {len(x)} and {len(e)} samples; record at least {MIN_SAMPLES} of both", "takes")
    if not (x.any() and e.any()):
        raise InvalidOption("takes: a recording of x or e is silent; check the channels", "takes")
    spectra = [_frames(item) for item in (x, e, convolved(x, response))]
    n_frames = len(spectra[0])
    n_blocks = max(1, n_frames // FRAMES_PER_BLOCK)
    return [_block(*(item[part] for item in spectra)) for part in np.array_split(np.arange(n_frames), n_blocks)]


def _frames(signal: Real) -> Complex:
    starts = np.arange(FIRST_SAMPLE, len(signal) - WINDOW + 1, HOP)
    windows = np.lib.stride_tricks.sliding_window_view(signal, WINDOW)[starts]
    return np.fft.rfft(windows * np.hanning(WINDOW))


def _block(x: Complex, e: Complex, y: Complex) -> Block:
    power = np.sum(np.abs(x) ** 2, 0) + 1e-12 * np.sum(np.abs(x) ** 2) / x.shape[-1] + 1e-300
    transfer = np.sum(x.conj() * e, 0) / power
    n_free = max(INDEPENDENT * len(x), 1.0)
    unexplained = np.sum(np.abs(e - transfer * x) ** 2, 0) / power / n_free
    error_power = np.sum(np.abs(e) ** 2, 0)
    designed = np.sum(x.conj() * y, 0) / power
    return Block(transfer, designed, smoothed(unexplained), (power / len(x), error_power / len(x)))


def median(values: Sequence[Any]) -> Any:
    """Median over blocks; for complex numbers, of both parts."""
    stacked = np.stack(values)
    if np.iscomplexobj(stacked):
        return np.median(stacked.real, 0) + 1j * np.median(stacked.imag, 0)
    return np.median(stacked, 0)


def smoothed(power: Real, n_bins: int = 19) -> Real:
    """Average over an odd number of bins."""
    padded = np.pad(power, n_bins // 2, mode="edge")
    smooth: Real = np.convolve(padded, np.full(n_bins, 1 / n_bins), "valid")
    return smooth

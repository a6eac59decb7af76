"""Takes of measured ears, in the six windows that an estimate reads, with faults of a calibration."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from measurement.calibration import Windows
from measurement.estimate import GainTake
from tests.oracles import measured, path_estimation

GAIN = path_estimation.GAIN
# Cuts takes that consist of the six windows.
FRAMES = Windows(8192, 0, 6)

Array = np.ndarray
Change = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class Probes:
    """References of both states."""

    # Frames [n_probes * 6, window].
    frames: Array
    # Their spectra, with the 8192 samples before them.
    spectra: Array

    @classmethod
    def of(cls, noises: Array, window: int = 8192) -> "Probes":
        """Cut the frames of recordings [n_probes, n]."""
        past = measured.N_PRIMARY
        starts = path_estimation.frame_starts(window)
        blocks = [noise[start - past : start + window] for noise in noises for start in starts]
        return cls(path_estimation.cut(noises, window), np.fft.rfft(blocks))

    def through(self, path: Array) -> Array:
        """Filter the frames by a path of up to 8192 samples."""
        n = measured.N_PRIMARY + self.frames.shape[-1]
        return np.fft.irfft(self.spectra * np.fft.rfft(path, n), n)[:, measured.N_PRIMARY :]


@dataclass(frozen=True)
class Fault:
    """Changes of the secondary path and of either microphone's takes [n_probes, n]."""

    secondary: Change = field(default=lambda s: s)
    error: Change = field(default=lambda e: e)


def frames_of(
    probes: Probes, primary: Array, secondary: Array, fault: Fault, gain: float = GAIN
) -> tuple[Array, Array, Array]:
    """Return (x, e_0, e_g), frames [n_probes * 6, window]."""
    disturbance, control = probes.through(primary), probes.through(fault.secondary(secondary))
    shape, takes = probes.frames.shape, (-1, 6 * probes.frames.shape[-1])
    errors = [
        fault.error(item.reshape(takes)).reshape(shape) for item in (disturbance, disturbance - gain * control)
    ]
    return probes.frames, *errors


def noisy(error: Array, snr_db: float) -> Array:
    """Add white noise at an SNR per take; deterministic per take."""
    rng = np.random.default_rng(np.abs(error[0, :4]).view(np.uint64))
    level = 10 ** (-snr_db / 20) * np.sqrt((error**2).mean(-1, keepdims=True))
    return error + level * rng.standard_normal(error.shape)


def takes_of(
    probes: Probes, primary: Array, secondary: Array, fault: Fault | None = None, gain: float = GAIN
) -> list[GainTake]:
    """Return takes of both states, to be cut as FRAMES."""
    x, *errors = (
        item.reshape(-1, 6 * item.shape[-1])
        for item in frames_of(probes, primary, secondary, fault or Fault(), gain)
    )
    return [
        GainTake(state, reference, error)
        for state, rows in zip((0.0, gain), errors, strict=True)
        for reference, error in zip(x, rows, strict=True)
    ]

"""Responses from levels and phases at any frequencies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.files.errors import FileError
from prime_anc.method.conventions import SAMPLE_RATE_HZ

Float64 = NDArray[np.float64]

# Bins of an interpolated response: 5.9 Hz apart, 8192 samples long.
N_BINS = 4097
# Frequencies that a response has to hold: those of the bands of a design.
_RANGE_HZ = (100.0, 7800.0)
_ROWS_PER_OCTAVE = 11.0
# Larger steps between rows miss details of a path.
_FINE_STEP_HZ = 25.0
# Below this median difference (radians), in a range away from the ends, a phase is the minimum phase. The difference is
# 0.04 to 0.08 where a program computed the phase from the level, and 0.57 and more of measured paths.
_COMPARED_HZ = (300.0, 3000.0)
_SAME_PHASE = 0.15


def response_of(file: Path, frequency: Float64, magnitude: Float64, angle: Float64, delay_s: float) -> Float64:
    """Interpolate a response to 8192 samples at 48 kHz.

    Parameters
    ----------
    file : Path
        For messages.
    frequency, magnitude, angle : ndarray
        Rising, in hertz; linear; in radians, [n] each.
    delay_s : float
        Delay to be added.

    Returns
    -------
    ndarray
        [8192]

    Raises
    ------
    FileError
        The rows do not rise, or leave gaps; the phase is that of a response before time zero, or computed from the
        level.
    """
    if not (np.diff(frequency) > 0).all() or frequency[0] < 0:
        raise FileError(f"{file}: its frequencies do not rise; sort the rows")
    if len(frequency) < 2 or frequency[0] > _RANGE_HZ[0] or frequency[-1] < _RANGE_HZ[1]:
        raise FileError(
            f"{file}: it covers {frequency[0]:g} to {frequency[-1]:g} Hz; export at least 50 Hz to 8 kHz, or name "
            "the unit in the head"
        )
    used = frequency[(frequency >= _RANGE_HZ[0]) & (frequency <= _RANGE_HZ[1])]
    used = used if len(used) > 1 else frequency
    wide = np.diff(used) > np.maximum(_FINE_STEP_HZ, used[:-1] * (2 ** (1 / _ROWS_PER_OCTAVE) - 1))
    if wide.any():
        raise FileError(
            f"{file}: between {used[:-1][wide][0]:g} and {used[1:][wide][0]:g} Hz it has no row; export at least 12 "
            "rows for each octave, or the impulse response"
        )
    spectrum = _interpolated(frequency, magnitude, np.unwrap(angle))
    if is_minimum_phase(spectrum):
        raise FileError(
            f"{file}: its phase is the minimum phase, computed from the level or without the delay; export the phase "
            "that was measured with its delay, or the impulse response"
        )
    spectrum *= np.exp(-2j * np.pi * delay_s * np.linspace(0, SAMPLE_RATE_HZ / 2, N_BINS))
    samples = np.fft.irfft(spectrum)
    if is_noncausal(samples):
        raise FileError(
            f"{file}: its phase rises with frequency, as if sound came before it was played; export the phase of "
            "exp(-j w t0) for a delay t0, and measure from before the sound"
        )
    return samples


def is_noncausal(samples: Float64) -> bool:
    """Return whether a periodic response, as of a spectrum, has much of its energy before time zero."""
    late = samples[-(len(samples) // 8) :]
    return bool(late @ late > 0.25 * (samples @ samples))


def is_minimum_phase(spectrum: NDArray[np.complex128]) -> bool:
    """Return whether the phase of a spectrum is the Hilbert transform of its log magnitude."""
    n = len(spectrum) - 1
    cepstrum = np.fft.irfft(np.log(np.abs(spectrum)))
    cepstrum[1:n] *= 2
    cepstrum[n + 1 :] = 0
    hz = np.linspace(0, SAMPLE_RATE_HZ / 2, n + 1)
    compared = (hz >= _COMPARED_HZ[0]) & (hz <= _COMPARED_HZ[1])
    turn = np.angle(spectrum * np.exp(-1j * np.fft.rfft(cepstrum).imag))[compared]
    return bool(np.median(np.abs(turn)) < _SAME_PHASE)


def _interpolated(frequency: Float64, magnitude: Float64, angle: Float64) -> NDArray[np.complex128]:
    """Interpolate a spectrum from 0 to 24 kHz: levels in dB and unwrapped phase linearly over frequency."""
    wanted = np.linspace(0, SAMPLE_RATE_HZ / 2, N_BINS)
    turn = np.interp(wanted, frequency, angle)
    beyond = wanted > frequency[-1]
    # Extrapolate as a delay: phase in proportion to frequency.
    slope = (angle[-1] - angle[len(angle) // 2]) / (frequency[-1] - frequency[len(angle) // 2])
    turn[beyond] = angle[-1] + slope * (wanted[beyond] - frequency[-1])
    level = np.log(np.maximum(magnitude, 1e-12 * magnitude.max()))
    spectrum: NDArray[np.complex128] = np.exp(np.interp(wanted, frequency, level) + 1j * turn)
    return spectrum

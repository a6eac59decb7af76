"""Undo in a filter, or apply to a path, the gain, delay and polarity that a verification has measured."""

from __future__ import annotations

import numpy as np

from prime_anc.measure.verify.measurement import Verification
from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.methods import spectrum
from prime_anc.method.types import Complex64, Float32

# Changes of the secondary path for which a trimmed filter is no better than the original.
NEAR_GAIN_DB, NEAR_DELAY_SAMPLES = 0.6, 0.4


def shifted_filter(taps: Float32 | Complex64, measured: Verification) -> Float32 | Complex64:
    """Undo the gain, delay and polarity of the secondary path in a filter, taps or response on the design grid.

    Taps that would precede the first input sample are lost.
    """
    gain = 10 ** (-measured.gain_db / 20) * (-1 if measured.is_inverted else 1)
    omega = 2 * np.pi / DESIGN_N_FFT * np.arange(DESIGN_N_FFT // 2 + 1)
    turned = gain * spectrum(taps) * np.exp(1j * omega * measured.delay_samples)
    if np.iscomplexobj(taps):
        return turned.astype(np.complex64)
    return np.fft.irfft(turned)[: len(taps)].astype(np.float32)


def path_now(path: Float32 | Complex64, measured: Verification) -> Float32 | Complex64:
    """Return a path from the loudspeaker as it is now.

    It is unchanged for changes below those that a trim improves, and if nothing of the filter is heard.
    """
    return path if is_as_sent(measured) or not measured.is_running else path_found(path, measured)


def is_as_sent(measured: Verification) -> bool:
    """Return whether a trimmed filter would be no better than the original."""
    distance = max(abs(measured.gain_db) / NEAR_GAIN_DB, abs(measured.delay_samples) / NEAR_DELAY_SAMPLES)
    return distance < 1 and not measured.is_inverted


def path_found(path: Float32 | Complex64, measured: Verification) -> Complex64:
    """Apply the gain, delay and polarity that were measured to a path from the loudspeaker, on the design grid."""
    return changed_path(path, measured.gain_db, measured.delay_samples, measured.is_inverted)


def changed_path(
    path: Float32 | Complex64, gain_db: float, delay_samples: float, is_inverted: bool = False
) -> Complex64:
    """Change a path by a gain, a delay and a polarity.

    Parameters
    ----------
    path : ndarray
        Impulse response, or spectrum on the design grid.
    gain_db, delay_samples : float
        Gain in dB and delay in samples at 48 kHz, fractions included.
    is_inverted : bool
        Whether the polarity is reversed.

    Returns
    -------
    ndarray
        Spectrum on the design grid, complex64 [16385].
    """
    response = spectrum(path)
    gain = 10 ** (gain_db / 20) * (-1 if is_inverted else 1)
    omega = np.pi * np.arange(len(response)) / (len(response) - 1)
    return (gain * response * np.exp(-1j * omega * delay_samples)).astype(np.complex64)

"""Twin of the minimum-phase reconstruction: the phase is minus the Hilbert transform of the log magnitude.

The package folds the real cepstrum instead; on one Fourier grid the two are the same statement (Oppenheim &
Schafer, Discrete-Time Signal Processing, chapter on cepstra), reached by different code.
"""

import numpy as np
from scipy.signal import hilbert


def response(log_magnitude: np.ndarray) -> np.ndarray:
    """Minimum-phase response of a one-sided natural log magnitude: A exp(-j Hilbert(log A))."""
    whole_circle = np.concatenate([log_magnitude, log_magnitude[-2:0:-1]])
    phase = -np.imag(hilbert(whole_circle))[: len(log_magnitude)]
    return np.exp(log_magnitude + 1j * phase)


def fir(log_magnitude: np.ndarray, n_taps: int) -> np.ndarray:
    """Samples 0..n_taps-1 of the inverse transform of the minimum-phase response."""
    return np.fft.irfft(response(log_magnitude))[:n_taps]

"""Twin of the two-state calibration (paper, Eq. 2): pooled Hann-windowed cross-spectra, and the coherence.

A recording is cut into frames once (`frame_starts`, `cut`), so that a simulated calibration may hand over the
frames alone; the estimate itself is plain sums over those frames.
"""

import numpy as np
from scipy.signal import get_window

FIRST_SAMPLE, LAST_SAMPLE, N_OFFSETS = 8192, 4 * 48_000, 6
GAIN = 0.35
REGULARISATION = 1e-6


def frame_starts(window: int) -> np.ndarray:
    """Six offsets equally spaced in [8192 samples, 4 s - window]."""
    return np.round(np.linspace(FIRST_SAMPLE, LAST_SAMPLE - window, N_OFFSETS)).astype(int)


def cut(recordings: np.ndarray, window: int) -> np.ndarray:
    """Frames of whole recordings [n_recordings, n] -> [n_recordings * 6, window]."""
    return np.array([x[start : start + window] for x in recordings for start in frame_starts(window)])


def _spectra(frames: np.ndarray) -> np.ndarray:
    return np.fft.rfft(frames * get_window("hann", frames.shape[-1]), axis=-1)


def transfer(x_frames: np.ndarray, y_frames: np.ndarray) -> np.ndarray:
    """H_yx = sum conj(X) Y / (sum |X|^2 + 1e-6 max sum |X|^2), one-sided on the window's own grid."""
    x, y = _spectra(x_frames), _spectra(y_frames)
    autospectrum = np.sum(np.abs(x) ** 2, axis=0)
    return np.sum(np.conj(x) * y, axis=0) / (autospectrum + REGULARISATION * autospectrum.max())


def coherence(x_frames: np.ndarray, y_frames: np.ndarray, n_bins: int) -> np.ndarray:
    """|S_xy|^2 / (S_xx S_yy) on the window's grid, interpolated linearly to `n_bins` bins: [n_bins]."""
    x, y = _spectra(x_frames), _spectra(y_frames)
    cross = np.abs(np.sum(np.conj(x) * y, axis=0)) ** 2
    value = cross / (np.sum(np.abs(x) ** 2, axis=0) * np.sum(np.abs(y) ** 2, axis=0))
    return np.interp(np.linspace(0, 1, n_bins), np.linspace(0, 1, len(value)), value)


def impulse_response(spectrum: np.ndarray, n_taps: int) -> np.ndarray:
    """Samples from 0 on of the inverse transform, cut or zero-padded to `n_taps`."""
    h = np.fft.irfft(spectrum)[:n_taps]
    return np.pad(h, (0, n_taps - len(h)))


def two_states(
    x_0: np.ndarray, e_0: np.ndarray, x_g: np.ndarray, e_g: np.ndarray, gain: float, n_taps: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """(p, s) from the frames of the states W = 0 and W = gain, each with its own reference (Eq. 2)."""
    h_0, h_g = transfer(x_0, e_0), transfer(x_g, e_g)
    return impulse_response(h_0, n_taps[0]), impulse_response((h_0 - h_g) / gain, n_taps[1])

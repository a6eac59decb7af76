"""Measured cases for the tests: every ear of the PANDAR folder with a simulated, noise-free calibration.

Only the frames that the estimate reads are convolved (each starts 8192 samples in, so its whole history
exists), which makes thirty calibrations a matter of a second.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.io import loadmat, wavfile
from scipy.signal import welch

from tests.oracles import path_estimation

N_FFT = 32_768
N_BINS = N_FFT // 2 + 1
N_PRIMARY, N_SECONDARY = 8192, 2048
RMS = 0.05


@dataclass(frozen=True)
class MeasuredEar:
    """True paths (all samples), their estimates (window 8192), and the coherence of x and e_0 [N_BINS]."""

    name: str
    primary: np.ndarray
    secondary: np.ndarray
    estimated_primary: np.ndarray
    estimated_secondary: np.ndarray
    coherence: np.ndarray


def read_ears(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """(primary, secondary) of every ear, named `002-left`, from the database's own files."""
    ears = {}
    for file in sorted(folder.glob("PANDAR_database_1.0/*/acoustic_booth/persons/*.ita")):
        audio = loadmat(file, squeeze_me=True, struct_as_record=False)["ITA_TOOLBOX_AUDIO_OBJECT"]
        channels = list(audio.channelNames)
        for side in ("left", "right"):
            letter = side[0].upper()
            p, s = (audio.data[:, channels.index(kind + letter)] for kind in ("Primary", "Secondary"))
            ears[f"{file.name.split('_')[2]}-{side}"] = (p.copy(), s.copy())
    return ears


def read_noises(folder: Path) -> np.ndarray:
    """The recordings at RMS 0.05 over the whole file: [n_recordings, n]."""
    signals = [wavfile.read(file)[1].astype(np.float64) for file in sorted((folder / "noise").glob("*.wav"))]
    return np.array([RMS * x / np.sqrt(np.mean(x**2)) for x in signals])


def reference_psd(noises: np.ndarray) -> np.ndarray:
    """Mean square per bin over 0-4 s (Welch, Hann, half overlap), mean of recordings, white, pink: [N_BINS]."""
    f = np.maximum(np.fft.rfftfreq(N_FFT, 1 / 48_000), 20.0)
    pink = (1 / f) / np.sum(1 / f) * RMS**2
    white = np.full(N_BINS, RMS**2 / N_BINS)
    _, recorded = welch(
        noises[:, : 4 * 48_000], 48_000, "hann", N_FFT, N_FFT // 2, detrend=False, scaling="density"
    )
    return np.mean(np.vstack([recorded * 48_000 / N_FFT, white, pink]), axis=0)


def _convolved(x_frames: np.ndarray, history: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Frames of h * x, given each frame and the 8192 samples before it."""
    block = np.concatenate([history, x_frames], axis=-1)
    y = np.fft.irfft(np.fft.rfft(block) * np.fft.rfft(h, block.shape[-1]), block.shape[-1])
    return y[:, history.shape[-1] :]


def calibrate(
    noises: np.ndarray, primary: np.ndarray, secondary: np.ndarray, window: int = 8192, n_primary: int = N_PRIMARY
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(p [n_primary], s [2048], coherence) of a noise-free two-state calibration with fixed paths."""
    starts = path_estimation.frame_starts(window)
    x = path_estimation.cut(noises, window)
    history = np.array([noise[start - N_PRIMARY : start] for noise in noises for start in starts])
    e_0 = _convolved(x, history, primary)
    e_g = e_0 - path_estimation.GAIN * _convolved(x, history, secondary)
    p, s = path_estimation.two_states(x, e_0, x, e_g, path_estimation.GAIN, (n_primary, N_SECONDARY))
    return p, s, path_estimation.coherence(x, e_0, N_BINS)


def measured_ears(folder: Path) -> list[MeasuredEar]:
    """Every ear with its estimates."""
    noises = read_noises(folder)
    return [MeasuredEar(name, p, s, *calibrate(noises, p, s)) for name, (p, s) in read_ears(folder).items()]

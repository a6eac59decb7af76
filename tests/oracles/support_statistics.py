"""Twin of the secondary path's traits: plain NumPy over explicit frequencies, one ear at a time."""

import numpy as np

N_FFT = 32_768


def _hz(n: int, side: int) -> float:
    return float(10 ** ((2 * n + side) / 20))


def traits(secondary: np.ndarray, delayed_samples: float = 0.0) -> tuple[float, float, complex]:
    """(low_level_db, delay_samples, direction) of one response."""
    f = np.arange(N_FFT // 2 + 1) * 48_000 / N_FFT
    s = np.fft.rfft(secondary, N_FFT)

    def level(low: float, high: float) -> float:
        return float(10 * np.log10(np.mean(np.abs(s[(f >= low) & (f < high)]) ** 2)))

    scored = np.fft.irfft(np.where((f >= _hz(17, -1)) & (f < _hz(39, 1)), s, 0), N_FFT)
    delay = next(i for i, each in enumerate(np.abs(scored)) if each >= 0.5 * np.abs(scored).max())
    inside = (f >= 100) & (f < 500)
    aligned = s[inside] * np.exp(2j * np.pi * f[inside] * delayed_samples / 48_000)
    low_level = level(_hz(17, -1), _hz(22, 1)) - level(_hz(32, -1), _hz(34, 1))
    return low_level, float(delay), complex(aligned.sum() / np.abs(aligned).sum())

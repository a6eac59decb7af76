"""Twin of the regularised path ratio and its magnitude base (paper, Eq. 4)."""

import numpy as np

from tests.oracles.octave_bands import frequencies


def regularised_ratio(primary: np.ndarray, secondary: np.ndarray) -> np.ndarray:
    """W_reg = P S* / (|S|^2 + eps^2), eps = 1e-4 max |S|, by a loop over bins."""
    eps = 1e-4 * max(abs(s) for s in secondary)
    bins = zip(primary, secondary, strict=True)
    return np.array([p * s.conjugate() / (abs(s) ** 2 + eps**2) for p, s in bins])


def floored_log(magnitude: np.ndarray) -> np.ndarray:
    """Natural log, floored 120 dB below the largest ("floor inside the log": below it is rounding and silence)."""
    return np.log(np.maximum(magnitude, 1e-6 * magnitude.max()))


def base_magnitude(ratio: np.ndarray, base: str) -> np.ndarray:
    """A_base = |W_reg|; `held_band` takes the nearest value in [25 Hz, 9 kHz] outside that range."""
    magnitude = np.abs(ratio)
    if base == "held_band":
        f = frequencies(2 * (len(ratio) - 1))
        inside = np.flatnonzero((f >= 25) & (f <= 9000))
        magnitude = magnitude[np.clip(np.arange(len(ratio)), inside[0], inside[-1])]
    return magnitude

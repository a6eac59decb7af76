"""The methods by name, and those whose first filter needs no model.

`prime` is the model's generator, `ratio_base` what it corrects, `wmmse` a direct solve for the reference spectrum:
these are made by each backend. All others are functions from one ear's paths to taps, the same for every backend,
which refines and predicts from there: to add one, write it here and name it in STARTS. Requests, OpenAPI,
experiments and fuzzing take the names from here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from synthesis import starting_weight
from synthesis.conventions import DESIGN_N_FFT, N_TAPS

# A one-sided spectrum on the design grid, complex64 [16385], or a causal impulse response at 48 kHz, float32
# [1 to 32768].
Path = NDArray[np.float32] | NDArray[np.complex64]

REGULARISATION = 1e-4
"""Of the path ratio, over the largest |S| (`synthesis.path_ratio`)."""


def projected_ratio(primary: Path, secondary: Path) -> NDArray[np.float64]:
    """Samples 0 to 2047 of the inverse transform of the regularised ratio, P S* / (|S|^2 + eps^2) (Eq. 4)."""
    p, s = spectrum(primary), spectrum(secondary)
    power = np.abs(s) ** 2
    ratio = p * s.conj() / (power + REGULARISATION**2 * power.max())
    return np.fft.irfft(ratio, DESIGN_N_FFT)[:N_TAPS]


def fir_wiener(primary: Path, secondary: Path) -> NDArray[np.float64]:
    """The finite Wiener filter under its starting weight: `prime-log` before training."""
    return starting_weight.fir_wiener(spectrum(primary), spectrum(secondary))


STARTS: dict[str, Callable[[Path, Path], NDArray[np.float64]]] = {
    "fir_wiener": fir_wiener,
    "projected_ratio": projected_ratio,
}

METHODS = ("prime", "ratio_base", "wmmse", *STARTS)


def spectrum(path: Path) -> NDArray[np.complex128]:
    """A path on the design grid, complex128 [16385]."""
    if np.iscomplexobj(path):
        return path.astype(np.complex128)
    return np.fft.rfft(path.real.astype(np.float64), DESIGN_N_FFT)

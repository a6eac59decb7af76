"""Names of the methods, and the methods whose first filter needs no model.

`prime` is the model's generator, `ratio_base` what it corrects, `wmmse` a direct solution for the reference spectrum:
these are made by the backends. All others are functions from one ear's paths to taps, common to all backends, which
refine and predict from there: to add one, write it here and name it in STARTS. Requests, OpenAPI, experiments and
fuzzing take the names from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.arrays import floored_log
from prime_anc.method.bands import log_grid
from prime_anc.method.conventions import DESIGN_N_FFT, N_TAPS
from prime_anc.method.start import fir_wiener as finite
from prime_anc.method.start.features import GeneratorConfig, regularised_ratio

# A one-sided spectrum on the design grid, complex64 [16385], or a causal impulse response at 48 kHz, float32 [1 to
# 32768].
Path = NDArray[np.float32] | NDArray[np.complex64]

# Penalty of `wmmse` on |w|^2 over the sum of v |S|^2.
WMMSE_REGULARISATION = 1e-4


def projected_ratio(primary: Path, secondary: Path) -> NDArray[np.float64]:
    """Return samples 0 to 2047 of the inverse transform of the regularised ratio, theory (2)."""
    ratio = regularised_ratio(spectrum(primary), spectrum(secondary))
    return np.fft.irfft(ratio, DESIGN_N_FFT)[:N_TAPS]


def fir_wiener(primary: Path, secondary: Path) -> NDArray[np.float64]:
    """Return the finite Wiener filter under its starting weight: `prime-log` before training.

    The loudspeaker's ceiling above 9 kHz is part of it, a request's ceiling is not.
    """
    config = GeneratorConfig.prime_log()
    grid = log_grid(config.n_fft, config.n_points, config.low_hz, config.high_hz)
    paths = np.stack([spectrum(path)[None, :: DESIGN_N_FFT // config.n_fft] for path in (primary, secondary)])
    log_paths = (floored_log(np.abs(paths)) @ grid.pooling.T).swapaxes(0, 1)
    log_weight, log_penalty = grid.spread(finite.starting_weight(log_paths, grid.points_hz)).swapaxes(0, 1)
    log_ceiling = grid.spread(finite.drive_ceiling(log_paths, grid.points_hz))
    taps: NDArray[np.float64] = finite.fir_wiener(paths[0], paths[1], log_weight, log_penalty, log_ceiling).value[0]
    return taps


STARTS: dict[str, Callable[[Path, Path], NDArray[np.float64]]] = {
    "fir_wiener": fir_wiener,
    "projected_ratio": projected_ratio,
}

METHODS = ("prime", "ratio_base", "wmmse", *STARTS)


def first_taps(
    method: str, primary: NDArray[np.complexfloating], secondary: NDArray[np.complexfloating], shares: NDArray[Any]
) -> NDArray[np.float64]:
    """Return taps [2048] of one of STARTS: the mean over the conditions, spectra [n_conditions, 16385]."""
    taps = [STARTS[method](*pair) for pair in zip(primary, secondary, strict=True)]
    mean: NDArray[np.float64] = np.tensordot(shares, taps, 1)
    return mean


def spectrum(path: Path) -> NDArray[np.complex128]:
    """Return a path on the design grid, complex128 [16385]."""
    if np.iscomplexobj(path):
        return path.astype(np.complex128)
    return np.fft.rfft(path.real.astype(np.float64), DESIGN_N_FFT)

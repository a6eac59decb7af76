"""Spectra of paths, the loop of a controller, and band sums of a filter beside it, by the compiled core."""

from __future__ import annotations

import threading
from ctypes import Array, byref, c_double
from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.core.library import (
    N_FIGURES,
    Bands,
    BesideInput,
    BesideSums,
    Figures,
    InnerController,
    LoopExtremes,
    core,
)
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS
from prime_anc.method.methods import Path
from prime_anc.method.types import Complex64, Float32, Prediction

Float64 = NDArray[np.float64]
Complex128 = NDArray[np.complex128]

# Numbers of a prediction in the order of the core's.
_NAMES = [field.name for field in fields(Prediction)]
_NUMBERS = _NAMES[_NAMES.index("mean_noise_reduction_db") :][:N_FIGURES]

# What calls of this thread work in: more than an allocator keeps at hand.
_kept = threading.local()


def spectrum_of(path: Path) -> Complex64:
    """Return a path on the design grid in single precision, [16385].

    Parameters
    ----------
    path
        Spectrum on the design grid, or impulse response of up to 32768 samples.
    """
    given, n_samples = _given(path)
    if not n_samples:
        return given
    found = np.empty(N_BINS, np.complex64)
    core().prime_spectrum(_room(), _address(given), n_samples, _address(found))
    return found


def _given(path: Path) -> tuple[Any, int]:
    """Return a path as the core reads it, and its number of samples, or 0 for a spectrum."""
    if np.iscomplexobj(path):
        return np.ascontiguousarray(path, np.complex64), 0
    response = np.ascontiguousarray(path[:DESIGN_N_FFT], np.float32)
    return response, len(response)


def judged_by_core(
    secondary: Path, controller: Complex64, places: Float64, between: Complex128
) -> tuple[Complex64, Complex64, LoopExtremes]:
    """Compute and judge the loop of a controller alone.

    Parameters
    ----------
    secondary
        S, as of `spectrum_of`.
    controller
        K on the design grid, [16385].
    places, between
        Frequencies between the bins, in bins and rising, and K there, [n].

    Returns
    -------
    Complex64, Complex64
        S and S K on the design grid, [16385].
    LoopExtremes
        As loop.h describes them.
    """
    given, n_samples = _given(secondary)
    plant, loop, found = np.empty(N_BINS, np.complex64), np.empty(N_BINS, np.complex64), LoopExtremes()
    running = InnerController(_address(controller), _address(places), _address(between), len(places))
    outputs = _address(plant), _address(loop), byref(found)
    core().prime_judge(_room(), _address(given), n_samples, byref(running), *outputs)
    return plant, loop, found


def sums_beside(
    primary: Complex64,
    secondary: Complex64,
    feedback: Complex64 | None,
    taps: Float32 | Complex64,
    loop: Complex64,
    controller: Complex64,
    psd: Float32,
    level: float = 1.0,
) -> BesideSums:
    """Sum powers over the bands of a filter that runs beside a controller: theory (19).

    Parameters
    ----------
    primary, secondary, feedback
        P, S and F on the design grid, [16385].
    taps
        Filter, taps [2048] or response [16385].
    loop
        S K, [16385].
    controller
        K without its delay, [16385].
    psd
        Mean square of the reference per bin, [16385].
    level
        Of K, over that of the paths.

    Returns
    -------
    BesideSums
        As beside.h describes them.
    """
    given, n_taps = _given(taps)
    arrays = (primary, secondary, feedback, given, loop, controller, psd)
    sums = BesideSums()
    addresses = (None if values is None else _address(values) for values in arrays)
    core().prime_beside(_room(), byref(BesideInput(*addresses, level, n_taps)), byref(sums))
    return sums


def predicted_beside(found: Prediction, sums: BesideSums, *, is_true: bool) -> Prediction:
    """Predict filter and controller by the prediction of the filter alone and sums of both: theory (19), (21).

    is_true: whether nothing is unknown.
    """
    alone, both, playback_db = Figures(), Figures(), Bands()
    alone.bands[:] = found.band_reduction_db.tolist()
    alone.others[:] = [getattr(found, name) for name in _NUMBERS]
    core().prime_both(byref(sums), byref(alone), is_true, byref(both), byref(playback_db))
    return of_both(found, both, playback_db)


def of_both(found: Prediction, both: Figures, playback_db: Array[c_double]) -> Prediction:
    """Return the figures of filter and controller as a prediction, with the shares of both."""
    reduction = np.array(both.bands, np.float32)
    return replace(
        found,
        **dict(zip(_NUMBERS, both.others, strict=True)),
        band_reduction_db=reduction,
        least_reduction_db=np.array(both.least_bands, np.float32),
        feedforward_noise_reduction_db=found.band_reduction_db,
        feedback_noise_reduction_db=reduction - found.band_reduction_db,
        playback_change_db=np.array(playback_db, np.float32),
    )


def _address(values: NDArray[np.generic]) -> int:
    return int(values.__array_interface__["data"][0])


def _room() -> int:
    if not hasattr(_kept, "room"):
        _kept.room = np.zeros(core().prime_beside_room(), np.float32)
    return _address(_kept.room)

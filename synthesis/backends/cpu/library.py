"""The compiled core as Python sees it: its structures, and the file that suits this processor."""

from __future__ import annotations

import ctypes
import threading
from ctypes import POINTER, Structure, byref, c_double, c_float, c_int, c_int32, c_void_p
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from synthesis import arrays, conventions, generator_config, methods, plausibility, predict, profiles, toeplitz
from synthesis.backends.cpu.build import LEVELS, compile_core, library_file, machine
from synthesis.bands import AMP_BANDS, NR_BANDS, WIDE_BANDS, columns
from synthesis.conventions import DESIGN_N_FFT, N_BINS, N_TAPS, SAMPLE_RATE_HZ
from synthesis.predict import N_SUMS
from synthesis.profiles import MAX_UPDATES
from synthesis.start import features, fir_wiener, path_ratio
from synthesis.types import MAX_CONDITIONS

ABI = 12
N_STAGES = 6
# Numbers of `Prediction` from `mean_noise_reduction_db` on.
N_FIGURES = 14

_FloatPointer = c_void_p  # NumPy arrays give their address


SIZES = (
    *(SAMPLE_RATE_HZ, N_TAPS, DESIGN_N_FFT, N_BINS, WIDE_BANDS[0], len(WIDE_BANDS)),
    *(columns(NR_BANDS).start, len(NR_BANDS), columns(AMP_BANDS).start, len(AMP_BANDS)),
    *(len(profiles.STEP_SCALES), MAX_UPDATES, MAX_CONDITIONS),
)
_N_LENGTHS = len(predict.RESPONSE_LENGTHS)

# What the core takes of the method, in the order of prime_constants: a module that has it under that name, or a value.
_WHOLE = {
    "wiener_iterations": fir_wiener.N_ITERATIONS,
    "late_from_samples": predict,
    "realign_beyond": plausibility,
}
_SINGLE = {"ceiling_sharpness": fir_wiener, "coherence_floor": conventions, "end_of_response": predict}
_DOUBLE = {
    "ratio_regularisation": path_ratio.REGULARISATION,
    **dict.fromkeys(("held_low_hz", "held_high_hz"), path_ratio),
    "magnitude_floor": arrays,
    **dict.fromkeys(("phase_floor", "audible_hz"), features),
    "neper_per_db": generator_config,
    "taper": toeplitz,
    "symbol_damping": fir_wiener.DAMPING,
    "drive_limit": fir_wiener,
    "wmmse_regularisation": methods,
    **dict.fromkeys(("sufficient_decrease", "damping_floor", "least_ceiling", "most_ceiling"), profiles),
    **dict.fromkeys(("silence", "unknown_weight", "loudest_unknown"), profiles),
    **dict.fromkeys(("coherence_share", "model_bound", "natural_spread", "plausible_range"), predict),
    **{f"interval_{name}_db": predict.INTERVAL_DB[name] for name in ("uncertainty", "coherence")},
    "cut_db": predict.CUT_DB,
    "model_interval_db": predict.MODEL_INTERVAL_DB,
    **dict.fromkeys(("surprise", "convincing", "max_distance"), plausibility),
}
_LONG = dict.fromkeys(("cut_db", "model_interval_db"), c_double * _N_LENGTHS)


class Constants(Structure):
    """prime_constants of method.h."""

    _fields_ = (
        ("sizes", c_int * len(SIZES)),
        *((name, c_int) for name in _WHOLE),
        *((name, c_float) for name in _SINGLE),
        *((name, _LONG.get(name, c_double)) for name in _DOUBLE),
    )


def _constants() -> Constants:
    """Return the method's constants as the core takes them."""
    given = _WHOLE | _SINGLE | _DOUBLE
    values: dict[str, Any] = {
        name: getattr(each, name.upper()) if isinstance(each, ModuleType) else each for name, each in given.items()
    }
    values |= {name: kind(*values[name]) for name, kind in _LONG.items()}
    return Constants(sizes=(c_int * len(SIZES))(*SIZES), **values)


class Support(Structure):
    """support_prior of plausibility.h."""

    _fields_ = (
        ("n_changes", c_int),
        ("delay_samples", c_int),
        *((name, c_void_p) for name in ("mean", "changes", "roots", "estimate", "primary_delay", "later")),
        ("primary_delay_limits", c_void_p),
        ("level_limit", c_double),
        ("delay_limit", c_double),
        ("secondary_edges", c_void_p),
        ("primary_edges", c_void_p),
    )


class Parameters(Structure):
    """prime_parameters of core.h."""

    _fields_ = (
        *((name, c_int32) for name in ("n_fft", "is_linear", "is_held", "is_fir_wiener", "n_channels")),
        *((name, c_int32) for name in ("kernel_size", "n_groups", "has_head_norm", "n_points", "n_blocks")),
        ("dilations", c_void_p),
        ("bound", c_float),
        *((name, _FloatPointer) for name in ("weights", "pool_first", "pool_count", "lower", "pool_weights")),
        *((name, _FloatPointer) for name in ("fraction", "frequency", "start_weight", "start_penalty")),
        *((name, _FloatPointer) for name in ("start_ceiling", "start_average", "reference_psd")),
        ("band_uncertainty", c_void_p),
        ("support", Support),
    )


class Input(Structure):
    """prime_input of core.h."""

    _fields_ = (
        *((name, _FloatPointer) for name in ("primary", "secondary", "coherence", "psd", "uncertainty")),
        ("unknown", c_void_p),
        ("n_primary", c_int32),
        ("n_secondary", c_int32),
        ("resembles", c_int32),
        ("max_gain_db", c_float),
        ("share", c_double),
    )


class Profile(Structure):
    """refinement_profile of update.h."""

    _fields_ = (
        *((name, c_int) for name in ("n_fft", "first_band", "n_bands", "preconditioned", "n_iterations")),
        *((name, c_double) for name in ("risk_weight", "damping", "step_cap", "ceiling_weight", "tolerance")),
    )


class Record(Structure):
    """refinement_record of update.h."""

    _fields_ = (
        ("applied", c_int),
        ("stopped", c_int),
        ("objective", c_float * (MAX_UPDATES + 1)),
        ("step_scale", c_float * MAX_UPDATES),
        ("pcg_residual", c_float * MAX_UPDATES),
    )


class Figures(Structure):
    """prediction_figures of predict.h."""

    _fields_ = (
        ("bands", c_double * len(WIDE_BANDS)),
        ("others", c_double * N_FIGURES),
        ("is_finite", c_int),
    )


class PathExplanation(Structure):
    """path_explanation of plausibility.h."""

    _fields_ = (
        *((name, c_double) for name in ("distance", "score", "level", "delay", "primary_delay", "likeness")),
        ("is_reversed", c_int),
        ("change", c_int),
        ("fit", c_int),
    )


class Result(Structure):
    """prime_result of core.h."""

    _fields_ = (
        ("taps", c_float * N_TAPS),
        ("sums", c_double * N_SUMS),
        ("record", Record),
        ("times_ms", c_double * N_STAGES),
        ("figures", Figures),
        ("rival_mean_db", c_double),
        ("rival_max_gain_db", c_double),
        ("explanation", PathExplanation),
    )


def level() -> str:
    """The best level of LEVELS that this processor runs. Raises RuntimeError for an unknown architecture."""
    if machine() not in LEVELS:
        raise RuntimeError(f"no core for the architecture {machine()!r}; supported: {', '.join(LEVELS)}")
    *_, lowest = LEVELS[machine()]
    number = ctypes.CDLL(str(_compiled(lowest))).prime_level()
    return f"{machine()}_v{number}" if number else lowest


def _compiled(level: str) -> Path:
    file = library_file(level)
    if not file.is_file():
        compile_core()
    return file


_loading = threading.Lock()


def core() -> ctypes.CDLL:
    """The core, loaded once; compiled first where the package's set-up has not done so."""
    with _loading:
        return _load()


@cache
def _load() -> ctypes.CDLL:
    file = _compiled(level())
    library = ctypes.CDLL(str(file))  # whose functions run without Python's lock
    library.prime_model_create.argtypes = [POINTER(Parameters)]
    library.prime_model_create.restype = c_void_p
    library.prime_model_free.argtypes = [c_void_p]
    library.prime_model_free.restype = None
    library.prime_workspace_create.argtypes = [c_void_p]
    library.prime_workspace_create.restype = c_void_p
    library.prime_workspace_reserve.argtypes = [c_void_p, c_int]
    library.prime_workspace_reserve.restype = c_int
    library.prime_workspace_free.argtypes = [c_void_p]
    library.prime_workspace_free.restype = None
    library.prime_design.argtypes = [
        *(c_void_p, c_void_p, POINTER(Input), c_int, c_int, POINTER(Profile), c_int, c_double, POINTER(Result)),
    ]
    library.prime_design.restype = c_int
    library.prime_predict.argtypes = [c_void_p, c_void_p, POINTER(Input), c_int, c_void_p, POINTER(Result)]
    library.prime_predict.restype = c_int
    library.prime_limit_gain.argtypes = [
        *(c_void_p, c_void_p, POINTER(Input), c_int, POINTER(Profile), c_void_p, c_float, POINTER(Result)),
    ]
    library.prime_limit_gain.restype = c_int
    library.prime_init.argtypes = [POINTER(Constants)]
    if (found := library.prime_init(byref(_constants()))) != ABI:
        raise RuntimeError(f"{file.name} is of version {found}, not {ABI}; install the package again")
    return library

"""The compiled core as Python sees it: its file for this processor, its structures, and a model laid out for it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from ctypes import POINTER, Structure, byref, c_double, c_float, c_int, c_int32, c_ubyte, c_void_p, sizeof
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prime_anc.core.build import LEVELS, compile_core, library_file, machine
from prime_anc.method import (
    arrays,
    conventions,
    methods,
    objective,
    plausibility,
    predict,
    profiles,
    toeplitz,
    unknown,
)
from prime_anc.method.bands import AMP_BANDS, NR_BANDS, WIDE_BANDS, LogGrid, columns, log_grid
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS, N_TAPS, SAMPLE_RATE_HZ
from prime_anc.method.errors import InvalidOption
from prime_anc.method.objective import ObjectiveProfile
from prime_anc.method.plausibility import LATER, SupportPrior
from prime_anc.method.predict import N_SUMS
from prime_anc.method.profiles import MAX_UPDATES
from prime_anc.method.start import features, fir_wiener
from prime_anc.method.start.features import NEPER_PER_DB, GeneratorConfig
from prime_anc.method.start.fir_wiener import between_edges, drive_ceiling, starting_weight
from prime_anc.method.support_statistics import N_TRAITS, PRIMARY_EDGES_HZ, SECONDARY_EDGES_HZ, first_bins
from prime_anc.method.types import MAX_CONDITIONS, ModelParameters

N_STAGES = 6
# Numbers of `Prediction` from `mean_noise_reduction_db` on.
N_FIGURES = 14
# Number of errors of the secondary path in the sums beside a controller.
N_ERRORS = 4

# A number per band.
Bands = c_double * len(WIDE_BANDS)

_FloatPointer = c_void_p  # NumPy arrays give their address


SIZES = (
    *(SAMPLE_RATE_HZ, N_TAPS, DESIGN_N_FFT, N_BINS, WIDE_BANDS[0], len(WIDE_BANDS)),
    *(columns(NR_BANDS).start, len(NR_BANDS), columns(AMP_BANDS).start, len(AMP_BANDS)),
    *(len(profiles.STEP_SCALES), MAX_UPDATES, MAX_CONDITIONS),
)
_N_LENGTHS = len(unknown.RESPONSE_LENGTHS)

# Constants for the core, in the order of prime_constants: the module that defines the name, or a value.
_WHOLE = {
    "wiener_iterations": fir_wiener.N_ITERATIONS,
    "late_from_samples": arrays,
    "realign_beyond": plausibility,
    **dict.fromkeys(("direct_plane_iterations", "first_updates", "n_rounds"), profiles),
    **dict.fromkeys(("least_samples", "long_samples"), unknown),
    "rising_first": WIDE_BANDS.index(unknown.RISING_BANDS[0]),
}
_SINGLE = {"ceiling_sharpness": fir_wiener, "coherence_floor": conventions, "end_of_response": unknown}
_DOUBLE = {
    "ratio_regularisation": features.REGULARISATION,
    **dict.fromkeys(("held_low_hz", "held_high_hz"), features),
    "magnitude_floor": arrays,
    **dict.fromkeys(("phase_floor", "audible_hz"), features),
    "neper_per_db": features,
    "taper": toeplitz,
    "symbol_damping": fir_wiener.DAMPING,
    "drive_limit": fir_wiener,
    "wmmse_regularisation": methods,
    **dict.fromkeys(("sufficient_decrease", "damping_floor", "least_ceiling", "most_ceiling"), profiles),
    "silence": profiles,
    "louder_weight": objective,
    "louder_sharpness": objective,
    "guard": profiles,
    **dict.fromkeys(("large_decrease", "slow_decrease", "slow_share"), profiles),
    **dict.fromkeys(("small_decrease", "most_residual", "direct_damping"), profiles),
    **dict.fromkeys(("coherence_share", "model_bound"), unknown),
    "natural_spread": predict,
    **dict.fromkeys(("most_uncertain", "silent_uncertainty"), unknown),
    **dict.fromkeys(("doubt", "aligned"), predict),
    "plausible_range": unknown,
    **{f"interval_{name}_db": predict.INTERVAL_DB[name] for name in ("uncertainty", "coherence")},
    **{f"widest_{name}_db": predict.WIDEST_DB[name] for name in ("uncertainty", "coherence")},
    **dict.fromkeys(("cost_share", "believed_db", "most_unknown"), predict),
    "cut_db": unknown,
    "model_interval_db": unknown,
    **dict.fromkeys(("surprise", "convincing", "max_distance"), plausibility),
    **dict.fromkeys(("silent", "stationary", "rising_db", "lacked", "rising_interval_db"), unknown),
    "response_interval_db": unknown.INTERVAL_DB,
    "smallest_share": unknown,
}
_LONG = dict.fromkeys(("cut_db", "model_interval_db", "response_interval_db"), c_double * _N_LENGTHS)


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
        name: getattr(source, name.upper()) if isinstance(source, ModuleType) else source
        for name, source in given.items()
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
        *((name, _FloatPointer) for name in ("primary", "secondary", "coherence", "psd", "uncertainty", "assumed")),
        *((name, _FloatPointer) for name in ("loop", "controller")),
        ("silent", c_void_p),
        *((name, c_int32) for name in ("n_primary", "n_secondary", "basis")),
        ("max_gain_db", c_float),
        ("level", c_float),
        ("ends_interval", c_double),
        ("share", c_double),
    )


class BesideInput(Structure):
    """beside_input of beside.h."""

    _fields_ = (
        *((name, _FloatPointer) for name in ("primary", "secondary", "feedback", "filter", "loop", "controller")),
        ("psd", _FloatPointer),
        ("level", c_float),
        ("n_taps", c_int32),
    )


class BesideSums(Structure):
    """beside_sums of beside.h."""

    _fields_ = (
        *((name, Bands) for name in ("before", "after", "passed", "remaining", "playback")),
        ("off", c_double * len(NR_BANDS) * N_ERRORS),
        ("drive", c_double),
    )


class InnerController(Structure):
    """inner_controller of loop.h."""

    _fields_ = (("controller", _FloatPointer), ("places", c_void_p), ("between", c_void_p), ("n", c_int32))


class LoopExtremes(Structure):
    """loop_extremes of loop.h."""

    _fields_ = (
        *((name, c_double) for name in ("largest", "phase_margin", "peak", "nearest")),
        *((name, c_int32) for name in ("stable", "peak_at", "nearest_at")),
    )


class Weights(Structure):
    """objective_weights of objective.h: a number, or one per band."""

    _fields_ = tuple(
        (name, c_double if kind is float else Bands)
        for name, kind in get_type_hints(ObjectiveProfile).items()
        if name != "risk_bands"
    )


class Profile(Structure):
    """refinement_profile of tap_objective.h."""

    _fields_ = (
        *((name, c_int) for name in ("n_fft", "first_band", "n_bands", "preconditioner", "n_iterations")),
        *((name, c_int) for name in ("settles", "plane_iterations")),
        *((name, c_double) for name in ("damping", "step_cap", "ceiling_weight", "tolerance")),
        ("weights", Weights),
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
        ("bands", Bands),
        ("least_bands", Bands),
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
        ("is_right", c_int),
    )


class Judgement(Structure):
    """prime_judgement of core.h."""

    _fields_ = (
        ("uncertainty", c_float * (2 * len(WIDE_BANDS))),
        ("silent", c_ubyte * len(WIDE_BANDS)),
        ("n_silent", c_int32),
        ("basis", c_int32),
        ("ends_interval", c_double),
        ("explanation", PathExplanation),
    )


class Made(Structure):
    """prime_made of core.h."""

    _fields_ = (
        ("taps", c_float * N_TAPS),
        ("record", Record),
        ("figures", Figures),
        ("alone", Figures),
        ("both", Figures),
        ("playback_db", Bands),
    )


class Result(Structure):
    """prime_result of core.h."""

    _anonymous_ = ("made",)
    _fields_ = (
        ("made", Made),
        ("rival", Made),
        ("sums", c_double * N_SUMS),
        ("times_ms", c_double * N_STAGES),
        ("rival_mean_db", c_double),
        ("rival_max_gain_db", c_double),
        ("has_rival", c_int),
    )


# Compared in size with the core's.
STRUCTURES = (
    *(Constants, Parameters, Input, Judgement, Profile, Result),
    *(BesideInput, BesideSums, InnerController, LoopExtremes),
)
_DESIGN = (c_int, c_void_p, c_void_p, POINTER(Input), c_int)
# Results and arguments of core.c.
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "prime_init": (c_int, POINTER(Constants), c_int * len(STRUCTURES)),
    "prime_model_create": (c_void_p, POINTER(Parameters)),
    "prime_model_free": (None, c_void_p),
    "prime_workspace_create": (c_void_p, c_void_p),
    "prime_workspace_reserve": (c_int, c_void_p, c_int),
    "prime_workspace_free": (None, c_void_p),
    "prime_design": (*_DESIGN, c_int, POINTER(Profile), c_int, c_double, POINTER(Result)),
    "prime_judge_paths": (*_DESIGN[:4], POINTER(Judgement)),
    "prime_predict": (*_DESIGN[:4], c_void_p, POINTER(Result)),
    "prime_limit_gain": (*_DESIGN, POINTER(Profile), c_void_p, c_float, POINTER(Result)),
    "prime_spectrum": (None, c_void_p, c_void_p, c_int, c_void_p),
    "prime_beside_room": (c_int,),
    "prime_judge": (
        *(None, c_void_p, c_void_p, c_int, POINTER(InnerController)),
        *(c_void_p, c_void_p, POINTER(LoopExtremes)),
    ),
    "prime_beside": (None, c_void_p, POINTER(BesideInput), POINTER(BesideSums)),
    "prime_both": (None, POINTER(BesideSums), POINTER(Figures), c_int, POINTER(Figures), POINTER(Bands)),
}


def level() -> str:
    """Return the best level of LEVELS that this processor runs; RuntimeError for an unknown architecture."""
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
    """Return the core, loaded once; compile it first if the installation has not."""
    with _loading:
        return _load()


@cache
def _load() -> ctypes.CDLL:
    file = _compiled(level())
    library = ctypes.CDLL(str(file))  # whose functions run without Python's lock
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    if not library.prime_init(byref(_constants()), (c_int * len(STRUCTURES))(*map(sizeof, STRUCTURES))):
        raise RuntimeError("a structure or size of core/*.h is not that of prime_anc/core/library.py")
    return library


Float64 = NDArray[np.float64]


def core_parameters(model: ModelParameters) -> tuple[Parameters, list[NDArray[np.generic]]]:
    """Lay out a model as the core reads it.

    Parameters
    ----------
    model : ModelParameters
        Numbers of a checkpoint.

    Returns
    -------
    Parameters
        The structure for `prime_model_create`.
    list of ndarray
        The arrays that it points into, to be kept alive until the core has copied them.

    Raises
    ------
    InvalidOption
        If an array has another shape than the core reads, or an index of the generator's grid leads out of it: the
        core checks nothing.
    """
    config = model.config
    is_linear = config.kind == "prime"
    points_hz, pool, lower, fraction = (
        _linear_grid(config)
        if is_linear
        else log_grid(config.n_fft, config.n_points, config.low_hz, config.high_hz)
    )
    n_bins = config.n_fft // 2 + 1
    frequency = np.linspace(-1, 1, n_bins) if is_linear else pool @ np.linspace(-1, 1, n_bins)
    first = np.zeros(0) if is_linear else (pool != 0).argmax(1)
    count = np.zeros(0) if is_linear else (pool != 0).sum(1)
    weights = [] if is_linear else [pool[j, a : a + n] for j, (a, n) in enumerate(zip(first, count, strict=True))]
    at_unit_magnitude = np.zeros((1, 2, len(points_hz)))
    start_weight, start_penalty = starting_weight(at_unit_magnitude, points_hz)[0]
    arrays: dict[str, NDArray[np.generic]] = {
        "dilations": np.array(config.dilations, np.int32),
        "weights": _layers(model),
        "pool_first": first.astype(np.int32),
        "pool_count": count.astype(np.int32),
        "lower": lower.astype(np.int32),
        "pool_weights": np.concatenate([*weights, np.zeros(1)]).astype(np.float32),
        "fraction": fraction.astype(np.float32),
        "frequency": frequency.astype(np.float32),
        "start_weight": start_weight.astype(np.float32),
        "start_penalty": start_penalty.astype(np.float32),
        "start_ceiling": drive_ceiling(at_unit_magnitude, points_hz)[0].astype(np.float32),
        "start_average": between_edges(points_hz).astype(np.float32),
        "reference_psd": _shaped("reference_psd", model.reference_psd, np.float32, N_BINS),
        "band_uncertainty": _shaped("band_uncertainty", model.band_uncertainty, np.float64, 2, len(WIDE_BANDS)),
    }
    _check_grid(arrays, len(points_hz), n_bins)
    support, support_arrays = _support(model.support)
    structure = Parameters(
        n_fft=config.n_fft,
        is_linear=is_linear,
        is_held=config.base == "held_band",
        is_fir_wiener=config.realisation == "fir_wiener",
        n_channels=config.n_channels,
        kernel_size=config.kernel_size,
        n_groups=config.n_groups,
        has_head_norm=config.head_norm,
        n_points=len(points_hz),
        n_blocks=len(config.dilations),
        bound=config.bound_db * NEPER_PER_DB,
        **{name: values.ctypes.data for name, values in arrays.items()},
        support=support,
    )
    return structure, [*arrays.values(), *support_arrays]


def _support(prior: SupportPrior | None) -> tuple[Support, list[NDArray[np.generic]]]:
    """Lay out the statistics that mistakes are recognised by, see `plausibility`."""
    if prior is None:
        return Support(), []
    names = "changes", "roots", "estimate", "primary_delay", "primary_delay_limits"
    given = {name: getattr(prior, name) for name in names}
    arrays: dict[str, NDArray[np.generic]] = {
        "mean": _shaped("support mean", prior.mean, np.float64, N_TRAITS),
        **{name: np.ascontiguousarray(values, np.float64) for name, values in (given | {"later": LATER}).items()},
        "secondary_edges": first_bins(SECONDARY_EDGES_HZ).astype(np.int32),
        "primary_edges": first_bins(PRIMARY_EDGES_HZ).astype(np.int32),
    }
    structure = Support(
        n_changes=len(prior.changes),
        delay_samples=prior.statistics.delay_samples,
        level_limit=prior.level_limit_db * NEPER_PER_DB,
        delay_limit=prior.delay_limit_samples,
        **{name: values.ctypes.data for name, values in arrays.items()},
    )
    return structure, list(arrays.values())


def _layers(model: ModelParameters) -> NDArray[np.float32]:
    """Concatenate all weights in the order of the layers."""
    shapes = model.config.weight_shapes
    tensors = [_shaped(name, model.weights[name], np.float32, *shape) for name, shape in shapes.items()]
    return np.concatenate([tensor.ravel() for tensor in tensors])


def _shaped(name: str, values: ArrayLike, kind: type[np.generic], *shape: int) -> NDArray[np.generic]:
    """Return the values as one contiguous array; InvalidOption for another shape."""
    found = np.ascontiguousarray(values, kind)
    if found.shape != shape:
        raise InvalidOption(f"{name}: its shape is {found.shape}; {shape} is expected", name)
    return found


def _check_grid(arrays: Mapping[str, NDArray[Any]], n_points: int, n_bins: int) -> None:
    """Raise InvalidOption for a grid that is not finite, or whose indices lead out of the bins or the points."""
    first, count, lower = (arrays[name] for name in ("pool_first", "pool_count", "lower"))
    numbers = [values for name, values in arrays.items() if name not in ("weights", "reference_psd")]
    is_inside = (first >= 0).all() and (count >= 0).all() and (first + count <= n_bins).all()
    if not (is_inside and ((lower >= 0) & (lower < n_points - 1)).all() and all(map(_is_finite, numbers))):
        raise InvalidOption("generator: low_hz, high_hz and n_points make no grid of finite frequencies", "low_hz")


def _is_finite(values: NDArray[np.generic]) -> bool:
    return bool(np.isfinite(values).all())


def _linear_grid(config: GeneratorConfig) -> LogGrid:
    """Return the grid whose points are the bins, without pooling or spreading."""
    frequency = np.fft.rfftfreq(config.n_fft, 1 / SAMPLE_RATE_HZ)
    none = np.zeros(0)
    return LogGrid(np.maximum(frequency, frequency[1] / 2), none, none.astype(np.intp), none)

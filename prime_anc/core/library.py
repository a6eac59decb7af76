"""The compiled core as Python sees it: its file for this processor, its constants, and a model laid out for it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from cffi import FFI
from numpy.typing import ArrayLike, NDArray

from prime_anc.core.build import LEVELS, SOURCES, compile_core, library_file, machine
from prime_anc.method import (
    arrays,
    conventions,
    methods,
    predict,
    profiles,
    unknown,
)
from prime_anc.method.bands import WIDE_BANDS, LogGrid, log_grid
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.errors import InvalidOption
from prime_anc.method.start import features, fir_wiener
from prime_anc.method.start.features import NEPER_PER_DB, GeneratorConfig
from prime_anc.method.start.fir_wiener import between_edges, drive_ceiling, starting_weight
from prime_anc.method.types import ModelParameters
from prime_anc.method.updates import objective, toeplitz

# Modules that define the constants of `prime_constants` by their names.
_DEFINING = (
    *(arrays, conventions, features, fir_wiener, methods, objective, predict, profiles),
    *(toeplitz, unknown),
)

ffi = FFI()
# What the core and Python share; without the header's guard, which this parser does not read.
ffi.cdef("\n".join(row for row in (SOURCES / "core.h").read_text().splitlines() if not row.startswith("#")))


def level() -> str:
    """Return the best level of LEVELS that this processor runs; RuntimeError for an unknown architecture."""
    if machine() not in LEVELS:
        raise RuntimeError(f"no core for the architecture {machine()!r}; supported: {', '.join(LEVELS)}")
    *_, lowest = LEVELS[machine()]
    number = ffi.dlopen(str(_compiled(lowest))).prime_level()
    return f"{machine()}_v{number}" if number else lowest


def _compiled(level: str) -> Path:
    file = library_file(level)
    if not file.is_file():
        compile_core()
    return file


_loading = threading.Lock()


def core() -> Any:
    """Return the core, loaded once, whose functions run without Python's lock; compile it first if needed."""
    with _loading:
        return _load()


@cache
def _load() -> Any:
    library = ffi.dlopen(str(_compiled(level())))
    names = [name for name, _ in ffi.typeof("prime_constants").fields]
    library.prime_init(ffi.new("prime_constants *", {name: _constant(name.upper()) for name in names}))
    return library


def _constant(name: str) -> Any:
    """Return a constant of the method by its name."""
    (value,) = {getattr(module, name) for module in _DEFINING if hasattr(module, name)}
    return value


def core_parameters(model: ModelParameters) -> tuple[Any, list[Any]]:
    """Lay out a model as the core reads it.

    Parameters
    ----------
    model : ModelParameters
        Numbers of a checkpoint.

    Returns
    -------
    parameters
        The structure for `prime_model_create`.
    list
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
    arrays: dict[str, NDArray[Any]] = {
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
        "band_uncertainty": _shaped("band_uncertainty", model.band_uncertainty, np.float64, len(WIDE_BANDS)),
    }
    _check_grid(arrays, len(points_hz), n_bins)
    pointers = {name: pointer_to(values) for name, values in arrays.items()}
    structure = ffi.new(
        "prime_parameters *",
        {
            "n_fft": config.n_fft,
            "is_linear": is_linear,
            "is_held": config.base == "held_band",
            "is_fir_wiener": config.realisation == "fir_wiener",
            "n_channels": config.n_channels,
            "kernel_size": config.kernel_size,
            "n_groups": config.n_groups,
            "has_head_norm": config.head_norm,
            "n_points": len(points_hz),
            "n_blocks": len(config.dilations),
            "bound": config.bound_db * NEPER_PER_DB,
            **pointers,
        },
    )
    return structure, list(pointers.values())


def pointer_to(values: NDArray[Any] | None) -> Any:
    """Return a pointer to a contiguous array's numbers, which keeps it alive; NULL for None."""
    if values is None:
        return ffi.NULL
    return ffi.from_buffer(_KINDS[values.dtype], values)


_KINDS = {
    np.dtype(np.float32): "float[]",
    np.dtype(np.complex64): "float[]",
    np.dtype(np.float64): "double[]",
    np.dtype(np.int32): "int[]",
}


def _layers(model: ModelParameters) -> NDArray[np.float32]:
    """Concatenate all weights in the order of the layers."""
    shapes = model.config.weight_shapes
    tensors = [_shaped(name, model.weights[name], np.float32, *shape) for name, shape in shapes.items()]
    return np.concatenate([tensor.ravel() for tensor in tensors])


def _shaped(name: str, values: ArrayLike, kind: type[np.generic], *shape: int) -> NDArray[Any]:
    """Return the values as one contiguous array; InvalidOption for another shape."""
    found = np.ascontiguousarray(values, kind)
    if found.shape != shape:
        raise InvalidOption(f"{name}: its shape is {found.shape}; {shape} is expected", name)
    return found


def _check_grid(arrays: Mapping[str, NDArray[Any]], n_points: int, n_bins: int) -> None:
    """Raise InvalidOption for a grid that is not finite, or whose indices lead out of the bins or the points."""
    first, count, lower = (arrays[name] for name in ("pool_first", "pool_count", "lower"))
    is_inside = (first >= 0).all() and (count >= 0).all() and (first + count <= n_bins).all()
    is_finite = all(np.isfinite(values).all() for name, values in arrays.items() if name != "weights")
    if not (is_inside and ((lower >= 0) & (lower < n_points - 1)).all() and is_finite):
        raise InvalidOption("generator: low_hz, high_hz and n_points make no grid of finite frequencies", "low_hz")


def _linear_grid(config: GeneratorConfig) -> LogGrid:
    """Return the grid whose points are the bins, without pooling or spreading."""
    frequency = np.fft.rfftfreq(config.n_fft, 1 / SAMPLE_RATE_HZ)
    none = np.zeros(0)
    return LogGrid(np.maximum(frequency, frequency[1] / 2), none, none.astype(np.intp), none)

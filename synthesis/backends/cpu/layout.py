"""A model's numbers as the core reads them: weights in the order of the layers, and the generator's own grid.

Follows `synthesis.start.generator` and `fir_wiener.starting_weight`, whose values for paths of
magnitude one are computed here once, so that a design has only to add what the paths say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from synthesis.backends.cpu.library import Parameters, Support
from synthesis.bands import WIDE_BANDS
from synthesis.conventions import N_BINS, SAMPLE_RATE_HZ
from synthesis.errors import InvalidOption
from synthesis.generator_config import NEPER_PER_DB, GeneratorConfig
from synthesis.grids import LogGrid, log_grid
from synthesis.plausibility import LATER, SupportPrior
from synthesis.start.fir_wiener import between_edges, drive_ceiling, starting_weight
from synthesis.support_statistics import N_TRAITS, PRIMARY_EDGES_HZ, SECONDARY_EDGES_HZ, first_bins
from synthesis.types import ModelParameters

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
    """What mistakes are told by, see `plausibility`."""
    if prior is None:
        return Support(), []
    names = "changes", "roots", "estimate", "primary_delay", "primary_delay_limits"
    given = {name: getattr(prior, name) for name in names}
    arrays: dict[str, NDArray[np.generic]] = {
        "mean": _shaped("support mean", prior.mean, np.float64, N_TRAITS),
        **{name: np.ascontiguousarray(each, np.float64) for name, each in (given | {"later": LATER}).items()},
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
    """All weights one after the other, in the order in which the layers run."""
    shapes = model.config.weight_shapes
    tensors = [_shaped(name, model.weights[name], np.float32, *shape) for name, shape in shapes.items()]
    return np.concatenate([each.ravel() for each in tensors])


def _shaped(name: str, values: ArrayLike, kind: type[np.generic], *shape: int) -> NDArray[np.generic]:
    """The values as one contiguous array. Raises InvalidOption for another shape."""
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
    """Every bin is a point, which needs neither pooling nor spreading."""
    frequency = np.fft.rfftfreq(config.n_fft, 1 / SAMPLE_RATE_HZ)
    none = np.zeros(0)
    return LogGrid(np.maximum(frequency, frequency[1] / 2), none, none.astype(np.intp), none)

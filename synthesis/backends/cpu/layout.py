"""A model's numbers as the core reads them: weights in the order of the layers, and the generator's own grid.

Follows `synthesis.generator`, `frequency_grid` and `fir_wiener.starting_weight`, whose values for paths of
magnitude one are computed here once, so that a design has only to add what the paths say.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synthesis.backends.base import ModelParameters
from synthesis.backends.cpu.library import Parameters, Support, address
from synthesis.conventions import SAMPLE_RATE_HZ
from synthesis.generator_config import NEPER_PER_DB, GeneratorConfig
from synthesis.plausibility import LATER, SupportPrior
from synthesis.starting_weight import log_grid, terms_at_unit_magnitude
from synthesis.support_statistics import PRIMARY_EDGES_HZ, SECONDARY_EDGES_HZ, first_bins

Float64 = NDArray[np.float64]


def core_parameters(model: ModelParameters) -> tuple[Parameters, list[NDArray[np.generic]]]:
    """The structure, and the arrays that it points into."""
    config = model.config
    is_linear = config.kind == "prime"
    points_hz, pool, position = _linear_grid(config) if is_linear else log_grid(config)
    n_bins = config.n_fft // 2 + 1
    frequency = np.linspace(-1, 1, n_bins) if is_linear else pool @ np.linspace(-1, 1, n_bins)
    first = np.zeros(0) if is_linear else (pool != 0).argmax(1)
    count = np.zeros(0) if is_linear else (pool != 0).sum(1)
    weights = [] if is_linear else [pool[j, a : a + n] for j, (a, n) in enumerate(zip(first, count, strict=True))]
    lower, fraction = position
    start = terms_at_unit_magnitude(points_hz)
    arrays: dict[str, NDArray[np.generic]] = {
        "dilations": np.array(config.dilations, np.int32),
        "weights": _layers(model),
        "pool_first": first.astype(np.int32),
        "pool_count": count.astype(np.int32),
        "lower": lower.astype(np.int32),
        "pool_weights": np.concatenate([*weights, np.zeros(1)]).astype(np.float32),
        "fraction": fraction.astype(np.float32),
        "frequency": frequency.astype(np.float32),
        **{name: values.astype(np.float32) for name, values in start.items()},
        "reference_psd": np.ascontiguousarray(model.reference_psd, np.float32),
        "band_uncertainty": np.ascontiguousarray(model.band_uncertainty, np.float64),
    }
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
        **{name: address(values) for name, values in arrays.items()},
        support=support,
    )
    return structure, [*arrays.values(), *support_arrays]


def _support(prior: SupportPrior | None) -> tuple[Support, list[NDArray[np.generic]]]:
    """What mistakes are told by, see `plausibility`."""
    if prior is None:
        return Support(), []
    names = "mean", "changes", "roots", "estimate", "primary_delay", "primary_delay_limits"
    given = {name: getattr(prior, name) for name in names}
    arrays: dict[str, NDArray[np.generic]] = {
        **{name: np.ascontiguousarray(each, np.float64) for name, each in (given | {"later": LATER}).items()},
        "secondary_edges": first_bins(SECONDARY_EDGES_HZ).astype(np.int32),
        "primary_edges": first_bins(PRIMARY_EDGES_HZ).astype(np.int32),
    }
    structure = Support(
        n_changes=len(prior.changes),
        delay_samples=prior.statistics.delay_samples,
        level_limit=prior.level_limit_db * NEPER_PER_DB,
        delay_limit=prior.delay_limit_samples,
        **{name: address(values) for name, values in arrays.items()},
    )
    return structure, list(arrays.values())


def _layers(model: ModelParameters) -> NDArray[np.float32]:
    """All weights one after the other, in the order in which the layers run."""
    last = "head.3" if model.config.head_norm else "head.2"
    layers = ["stem.0", "stem.1"]
    for block in range(len(model.config.dilations)):
        layers += [f"blocks.{block}.{name}" for name in ("first", "first_norm", "second", "second_norm")]
    layers += ["head.0", *(["head.1"] if model.config.head_norm else []), last]
    tensors = [model.weights[f"{layer}.{kind}"] for layer in layers for kind in ("weight", "bias")]
    return np.concatenate([each.ravel() for each in tensors]).astype(np.float32)


def _linear_grid(config: GeneratorConfig) -> tuple[Float64, Float64, tuple[Float64, Float64]]:
    frequency = np.fft.rfftfreq(config.n_fft, 1 / SAMPLE_RATE_HZ)
    none = np.zeros(0)
    return np.maximum(frequency, frequency[1] / 2), none, (none, none)

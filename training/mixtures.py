"""Paired interpolation of support listeners: neighbours mixed by one weight, in both paths at once.

A mixture interpolates a pair of neighbours, ``(1 - alpha) a + alpha b``, with the same alpha for the primary and
the secondary path and for estimates and true paths: the estimates that a filter is designed from still fit the
paths that it is scored on.

The 96 mixtures of a split, their alphas included, are drawn once, before training; a training step then takes
one of them with probability 0.75 and an original otherwise. So a run's record can hold its whole training set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from torch import Tensor

from training.datasets.path_pairs import DatasetError, DatasetKind, PathPair

N_MIXTURES = 96
_ORDER_N_FFT = 8192
_ORDER_FLOOR = 1e-6  # of a path's maximum: -120 dB keeps a dead band from ruling the order

Value = TypeVar("Value", np.ndarray, Tensor)


@dataclass(frozen=True)
class Mixture:
    """Neighbours `first` and `second` (places in the list of support pairs) and the weight of the second."""

    first: int
    second: int
    alpha: float

    def of(self, values: Sequence[Value]) -> Value:
        """``(1 - alpha) values[first] + alpha values[second]`` of arrays or tensors, one per support pair."""
        return (1 - self.alpha) * values[self.first] + self.alpha * values[self.second]


def draw_mixtures(
    pairs: Sequence[PathPair],
    listener_order: Sequence[str],
    n_mixtures: int = N_MIXTURES,
    seed: int = 0,
    alpha_range: tuple[float, float] = (0.0, 1.0),
) -> tuple[Mixture, ...]:
    """Draw the mixtures of a split.

    Neighbours are listeners next to each other in `listener_order`, within the same ear and condition. All
    couples of neighbours are used equally often (the paper's seven persons, two ears and four conditions make
    48 couples: two mixtures each); which get one more when 96 does not divide evenly is drawn.

    Args:
        pairs: support pairs, variants included if they are trained on.
        listener_order: every listener of `pairs` once, e.g. from `order_listeners`.
        n_mixtures: how many, at least 1.
        seed: of the draw.
        alpha_range: alpha is uniform in it; reaching beyond [0, 1] extrapolates.

    Returns:
        `n_mixtures` mixtures, or none where there are no neighbours (a single support listener).

    Raises:
        DatasetError: an order that does not fit the pairs, or a number or range that makes no sense.
    """
    if sorted(listener_order) != sorted({pair.listener for pair in pairs}):
        raise DatasetError(
            f"mixtures: found the order {', '.join(listener_order)}, expected each listener of the pairs once"
        )
    low, high = alpha_range
    if n_mixtures < 1 or not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise DatasetError(
            f"mixtures: found {n_mixtures} mixtures with alpha in {alpha_range}, "
            "expected at least one and an ascending range"
        )
    couples = _neighbours(pairs, listener_order)
    if not couples:
        return ()
    generator = np.random.default_rng(seed)
    n_rounds = -(-n_mixtures // len(couples))
    rounds = [generator.permutation(len(couples)) for _ in range(n_rounds)]
    chosen = [couples[couple] for couple in np.concatenate(rounds)[:n_mixtures].tolist()]
    alphas = generator.uniform(low, high, n_mixtures).tolist()
    return tuple(Mixture(first, second, alpha) for (first, second), alpha in zip(chosen, alphas, strict=True))


def order_listeners(pairs: Sequence[PathPair], dataset: DatasetKind) -> tuple[str, ...]:
    """The order in which support listeners are neighbours.

    Persons: ascending number. Ten-path: ascending score on the first principal component of the listeners'
    joined log magnitudes ``[log |P|, log |S|]`` (originals, mean over ears, 4097 bins each), so that neighbours
    sound alike.
    """
    listeners = sorted({pair.listener for pair in pairs})
    if dataset != "ten-path" or len(listeners) < 3:
        return tuple(listeners)
    joined = np.stack(
        [
            np.mean(
                [
                    np.concatenate([_log_magnitude(pair.primary), _log_magnitude(pair.secondary)])
                    for pair in pairs
                    if pair.listener == listener and pair.condition == "original"
                ],
                axis=0,
            )
            for listener in listeners
        ]
    )
    _, _, components = np.linalg.svd(joined - joined.mean(axis=0), full_matrices=False)
    component = components[0]
    # An SVD leaves the sign open; fixed here, so that the order and with it every draw is the same everywhere.
    component = component * np.sign(component[np.argmax(np.abs(component))])
    return tuple(listeners[i] for i in np.argsort((joined - joined.mean(axis=0)) @ component, kind="stable"))


def _neighbours(pairs: Sequence[PathPair], listener_order: Sequence[str]) -> list[tuple[int, int]]:
    """Places in `pairs` of neighbours within ear, label and condition, one such kind after the other."""
    places = {(pair.place, pair.condition, pair.listener): place for place, pair in enumerate(pairs)}
    kinds = list(dict.fromkeys((pair.place, pair.condition) for pair in pairs))
    couples: list[tuple[int, int]] = []
    for ear, condition in kinds:
        # A listener without this ear or condition is stepped over: the next one is the neighbour.
        present = [
            places[ear, condition, listener] for listener in listener_order if (ear, condition, listener) in places
        ]
        couples.extend(pairwise(present))
    return couples


def _log_magnitude(response: np.ndarray) -> np.ndarray:
    """Natural log magnitude on the 8192-point grid, [4097]."""
    magnitude = np.abs(np.fft.rfft(response, _ORDER_N_FFT))
    return np.log(np.maximum(magnitude, _ORDER_FLOOR * magnitude.max()))

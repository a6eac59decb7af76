"""Training data of a model: estimates and true paths of its support listeners, and mixtures of neighbours.

A mixture interpolates a pair of neighbours, ``(1 - alpha) a + alpha b``, with the same alpha for the primary and the
secondary path and for estimates and true paths, so that estimates and paths still fit. The 96 mixtures of a split, with
their alphas, are drawn once, before training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from training.datasets.path_pairs import DatasetKind, PathPair
from training.objective import TruePaths

N_MIXTURES = 96
_ORDER_N_FFT = 8192
_ORDER_FLOOR = 1e-6  # share of a path's maximum, -120 dB, which keeps a dead band from dominating the order


@dataclass(frozen=True)
class Mixture:
    """A pair of neighbours and the weight of the second."""

    # Positions in the list of support pairs.
    first: int
    second: int
    alpha: float


@dataclass(frozen=True)
class TrainingSet:
    """Support cases as float32 tensors on the training device."""

    # Inputs of the generator, [n_calibrations, n_cases, taps].
    primary_estimates: Tensor
    # Likewise.
    secondary_estimates: Tensor
    # Supervision, [n_cases, 8192].
    true: TruePaths
    # Pairs of cases and their alpha.
    mixtures: tuple[Mixture, ...]

    def draw(
        self, batch_size: int, mixture_probability: float, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor, TruePaths]:
        """Draw a batch: primary and secondary estimates, and their true paths.

        An item is a mixture with `mixture_probability`, else a measured case; one alpha mixes estimates and
        true paths alike. The calibration is drawn per item.
        """
        items = [self._item(mixture_probability, rng) for _ in range(batch_size)]
        device = self.primary_estimates.device
        places = torch.tensor([item[:3] for item in items], device=device)
        alphas = torch.tensor([item[3] for item in items], dtype=torch.float32, device=device)[:, None]
        calibration, first, second = places.unbind(-1)
        estimates = [
            torch.lerp(item[calibration, first], item[calibration, second], alphas)
            for item in (self.primary_estimates, self.secondary_estimates)
        ]
        true = [torch.lerp(item[first], item[second], alphas) for item in (self.true.primary, self.true.secondary)]
        return estimates[0], estimates[1], TruePaths(*true)

    def _item(self, mixture_probability: float, rng: np.random.Generator) -> tuple[int, int, int, float]:
        """Draw calibration, first and second case, alpha; for a measured case the second is the same, with weight 0."""
        n_calibrations, n_cases, _ = self.primary_estimates.shape
        calibration = int(rng.integers(n_calibrations))
        if self.mixtures and rng.random() < mixture_probability:
            mixture = self.mixtures[int(rng.integers(len(self.mixtures)))]
            return calibration, mixture.first, mixture.second, mixture.alpha
        case = int(rng.integers(n_cases))
        return calibration, case, case, 0.0


def true_responses(pairs: Sequence[PathPair]) -> tuple[Tensor, Tensor]:
    """Stack the true paths, shorter ones followed by zeros: primary and secondary, float64 [n_pairs, n]."""
    primary, secondary = (
        pad_sequence([torch.from_numpy(getattr(pair, name)) for pair in pairs], batch_first=True)
        for name in ("primary", "secondary")
    )
    return primary, secondary


def draw_mixtures(
    pairs: Sequence[PathPair],
    listener_order: Sequence[str],
    seed: int = 0,
    alpha_range: tuple[float, float] = (0.0, 1.0),
) -> tuple[Mixture, ...]:
    """Draw the mixtures of a split.

    Neighbours are listeners next to each other in `listener_order`, within the same ear and condition. All
    couples of neighbours are used equally often (the paper's seven persons, two ears and four conditions make
    48 couples: two mixtures each); which get one more when 96 does not divide evenly is drawn.

    Parameters
    ----------
    pairs
        Support pairs, variants included if they are trained on.
    listener_order
        Every listener of `pairs` once, e.g. from `order_listeners`.
    seed
        Of the draw.
    alpha_range
        Alpha is uniform in it; reaching beyond [0, 1] extrapolates.

    Returns
    -------
    tuple[Mixture, ...]
        N_MIXTURES mixtures, or none where there are no neighbours (a single support listener).
    """
    couples = _neighbours(pairs, listener_order)
    if not couples:
        return ()
    generator = np.random.default_rng(seed)
    n_rounds = -(-N_MIXTURES // len(couples))
    rounds = [generator.permutation(len(couples)) for _ in range(n_rounds)]
    chosen = [couples[couple] for couple in np.concatenate(rounds)[:N_MIXTURES].tolist()]
    alphas = generator.uniform(*alpha_range, N_MIXTURES).tolist()
    return tuple(Mixture(first, second, alpha) for (first, second), alpha in zip(chosen, alphas, strict=True))


def order_listeners(pairs: Sequence[PathPair], dataset: DatasetKind) -> tuple[str, ...]:
    """Return the order in which support listeners are neighbours.

    Persons: ascending number. Ten-path: ascending score on the first principal component of the listeners'
    joined log magnitudes ``[log |P|, log |S|]`` (originals, mean over ears, 4097 bins each), so that neighbours
    sound alike.
    """
    listeners = sorted({pair.listener for pair in pairs})
    if dataset != "ten-path" or len(listeners) < 3:
        return tuple(listeners)
    originals = [pair for pair in pairs if pair.condition == "original"]
    levels = [np.concatenate([_log_magnitude(pair.primary), _log_magnitude(pair.secondary)]) for pair in originals]
    ears = [[n for n, pair in enumerate(originals) if pair.listener == listener] for listener in listeners]
    joined = np.stack([np.mean([levels[n] for n in places], axis=0) for places in ears])
    joined -= joined.mean(axis=0)
    component = np.linalg.svd(joined, full_matrices=False)[2][0]
    # An SVD leaves the sign open; fixed here, so that the order and with it every draw is the same everywhere.
    component = component * np.sign(component[np.argmax(np.abs(component))])
    return tuple(listeners[i] for i in np.argsort(joined @ component, kind="stable"))


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

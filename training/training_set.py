"""What a model is trained on: the estimates and true paths of its support listeners, and their mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from training.mixtures import Mixture
from training.objective import TruePaths
from training.simulated_calibration import PathEstimate


@dataclass(frozen=True)
class TrainingSet:
    """Support cases as float32 tensors on the training device.

    primary_estimates [n_calibrations, n_cases, taps], secondary_estimates likewise: what the generator may
    see. true: what supervises it, [n_cases, 8192]. mixtures: pairs of cases and their alpha.
    """

    primary_estimates: Tensor
    secondary_estimates: Tensor
    true: TruePaths
    mixtures: tuple[Mixture, ...]

    @classmethod
    def build(
        cls,
        estimates: Sequence[PathEstimate],
        primaries: Sequence[np.ndarray],
        secondaries: Sequence[np.ndarray],
        mixtures: tuple[Mixture, ...],
        device: torch.device,
    ) -> TrainingSet:
        """estimates: one per calibration, each over all cases; true paths: one array per case."""

        def ready(values: Tensor) -> Tensor:
            return values.to(device=device, dtype=torch.float32)

        def rows(responses: Sequence[np.ndarray]) -> Tensor:
            return ready(_padded([torch.from_numpy(each)[None] for each in responses]))

        return cls(
            primary_estimates=ready(torch.stack([each.primary for each in estimates])),
            secondary_estimates=ready(torch.stack([each.secondary for each in estimates])),
            true=TruePaths(rows(primaries), rows(secondaries)),
            mixtures=mixtures,
        )

    @classmethod
    def pool(cls, sets: Sequence[TrainingSet]) -> tuple[TrainingSet, list[int]]:
        """The cases of several sets as one set without mixtures, and where in it each set's cases begin.

        A set that several models share is held once. Raises ValueError where the sets differ in the number of
        calibrations or in the length of their estimates.
        """
        distinct = list({id(each): each for each in sets}.values())
        shapes = sorted({(*each.primary_estimates.shape[::2], each.secondary_estimates.shape[-1]) for each in sets})
        if len(shapes) > 1:
            raise ValueError(
                f"training sets: found (calibrations, primary taps, secondary taps) {shapes}, expected one triple"
            )
        first_cases = np.cumsum([0, *(each.n_cases for each in distinct)]).tolist()
        begins = {id(each): first for each, first in zip(distinct, first_cases, strict=False)}
        pooled = cls(
            primary_estimates=torch.cat([each.primary_estimates for each in distinct], dim=1),
            secondary_estimates=torch.cat([each.secondary_estimates for each in distinct], dim=1),
            true=TruePaths(
                _padded([each.true.primary for each in distinct]),
                _padded([each.true.secondary for each in distinct]),
            ),
            mixtures=(),
        )
        return pooled, [begins[id(each)] for each in sets]

    @property
    def n_cases(self) -> int:
        """Support cases: ears and conditions."""
        return self.primary_estimates.shape[1]

    def draw(
        self, batch_size: int, mixture_probability: float, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor, TruePaths]:
        """A batch: primary and secondary estimates, and the true paths that belong to them.

        Each item is a mixture with `mixture_probability`, else a measured case; one alpha mixes estimates and
        true paths alike. The calibration is drawn for each item.
        """
        places, alphas = self.draw_items(batch_size, mixture_probability, rng)
        device = self.primary_estimates.device
        return self.gather(torch.from_numpy(places).to(device), torch.from_numpy(alphas).to(device))

    def draw_items(
        self, batch_size: int, mixture_probability: float, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """What `gather` takes, on the host: places int64 [batch, 3], alphas float32 [batch]."""
        items = [self._item(mixture_probability, rng) for _ in range(batch_size)]
        places = np.array([item[:3] for item in items], dtype=np.int64)
        return places, np.array([item[3] for item in items], dtype=np.float32)

    def gather(self, places: Tensor, alphas: Tensor) -> tuple[Tensor, Tensor, TruePaths]:
        """The items of a batch, as `draw` returns them; nothing here waits for the host.

        places: calibration, first and second case, [batch, 3]. alphas: weight of the second case, [batch].
        """
        calibration, first, second = places.unbind(-1)
        estimates = [
            torch.lerp(each[calibration, first], each[calibration, second], alphas[:, None])
            for each in (self.primary_estimates, self.secondary_estimates)
        ]
        true = [
            torch.lerp(each[first], each[second], alphas[:, None])
            for each in (self.true.primary, self.true.secondary)
        ]
        return estimates[0], estimates[1], TruePaths(*true)

    def _item(self, mixture_probability: float, rng: np.random.Generator) -> tuple[int, int, int, float]:
        """Calibration, first and second case, alpha; a measured case is its own second one, with weight 0."""
        calibration = int(rng.integers(self.primary_estimates.shape[0]))
        if self.mixtures and rng.random() < mixture_probability:
            mixture = self.mixtures[int(rng.integers(len(self.mixtures)))]
            return calibration, mixture.first, mixture.second, mixture.alpha
        case = int(rng.integers(self.n_cases))
        return calibration, case, case, 0.0


def _padded(responses: Sequence[Tensor]) -> Tensor:
    """Impulse responses [n, taps] under one another, with zeros after those that are shorter."""
    longest = max(each.shape[-1] for each in responses)
    return torch.cat([pad(each, (0, longest - each.shape[-1])) for each in responses])

"""What a model is trained on: the estimates and true paths of its support listeners, and their mixtures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from synthesis.path_estimation import PathEstimate
from training.mixtures import Mixture
from training.objective import TruePaths


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

        def padded(responses: Sequence[np.ndarray]) -> Tensor:
            longest = max(each.size for each in responses)
            return torch.from_numpy(np.stack([np.pad(each, (0, longest - each.size)) for each in responses]))

        def ready(values: Tensor) -> Tensor:
            return values.to(device=device, dtype=torch.float32)

        return cls(
            primary_estimates=ready(torch.stack([each.primary for each in estimates])),
            secondary_estimates=ready(torch.stack([each.secondary for each in estimates])),
            true=TruePaths(ready(padded(primaries)), ready(padded(secondaries))),
            mixtures=mixtures,
        )

    def draw(
        self, batch_size: int, mixture_probability: float, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor, TruePaths]:
        """A batch: primary and secondary estimates, and the true paths that belong to them.

        Each item is a mixture with `mixture_probability`, else a measured case; one alpha mixes estimates and
        true paths alike. The calibration is drawn for each item.
        """
        items = [self._item(mixture_probability, rng) for _ in range(batch_size)]
        primary, secondary, true_primary, true_secondary = (
            torch.stack(parts) for parts in zip(*items, strict=True)
        )
        return primary, secondary, TruePaths(true_primary, true_secondary)

    def _item(self, mixture_probability: float, rng: np.random.Generator) -> tuple[Tensor, ...]:
        calibration = int(rng.integers(self.primary_estimates.shape[0]))
        sources = (
            self.primary_estimates[calibration],
            self.secondary_estimates[calibration],
            self.true.primary,
            self.true.secondary,
        )
        if self.mixtures and rng.random() < mixture_probability:
            mixture = self.mixtures[int(rng.integers(len(self.mixtures)))]
            return tuple(torch.lerp(each[mixture.first], each[mixture.second], mixture.alpha) for each in sources)
        case = int(rng.integers(self.primary_estimates.shape[1]))
        return tuple(each[case] for each in sources)

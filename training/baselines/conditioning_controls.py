"""Conditioning controls (Table 2 of the paper): a trained generator, misled about the path it corrects.

Neither is trained. What they lose against the generator is what it had from the path's phase, and from the path
at all. Paths lie on the generator's device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from synthesis.features import CHANNELS
from synthesis.generator import Generator
from synthesis.minimum_phase import minimum_phase_fir
from synthesis.paths import AcousticPaths, ControlFilter
from training.baselines.network_training import PathInputs
from training.training_set import TrainingSet

PHASE_CHANNELS = tuple(CHANNELS.index(name) for name in CHANNELS if name.endswith(("_re", "_im")))
"""Of ratio, mismatch, primary and secondary path."""

SAME_PATH = 1e-3
"""Relative distance below which two estimates are one path: variants of an ear share their primary path."""

CASES_AT_ONCE = 8


@dataclass(frozen=True)
class ShuffledPhase:
    """The generator sees the phase channels of another query, and everything else of its own.

    pool: estimates of all queries, the designed ones among them. The donor is drawn once per seed and query,
    from those that share neither path with it, however the queries are batched.
    """

    generator: Generator
    pool: AcousticPaths
    seed: int = 0
    name: str = "prime_shuffled_phase"

    @torch.no_grad()
    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Taps [batch, 2048] from estimated paths; ValueError for a query outside the pool, or alone in it."""
        inputs = _inputs(self.generator, paths)
        correction = _correction(self.generator, self.shuffled_features(paths))
        return ControlFilter(minimum_phase_fir(inputs.log_base + correction))

    def shuffled_features(self, paths: AcousticPaths) -> Tensor:
        """The twelve channels, those of the phase from each query's donor: [batch, 12, n_bins]."""
        donors = self.donors(paths)
        features = _inputs(self.generator, paths).features.clone()
        lent = _inputs(self.generator, AcousticPaths(self.pool.primary[donors], self.pool.secondary[donors]))
        features[:, PHASE_CHANNELS] = lent.features[:, PHASE_CHANNELS]
        return features

    def donors(self, paths: AcousticPaths) -> list[int]:
        """Each query's donor, as a place in the pool."""
        same_primary = _is_same(paths.primary, self.pool.primary)
        same_secondary = _is_same(paths.secondary, self.pool.secondary)
        return [
            self._donor(np.flatnonzero(both), np.flatnonzero(~either))
            for both, either in zip(same_primary & same_secondary, same_primary | same_secondary, strict=True)
        ]

    def _donor(self, own: np.ndarray, others: np.ndarray) -> int:
        if own.size == 0 or others.size == 0:
            raise ValueError(
                f"shuffled phase: found the query {own.size} times and {others.size} other paths in a pool of "
                f"{self.pool.batch_size}, expected at least one of each"
            )
        return int(np.random.default_rng([self.seed, int(own[0])]).choice(others))


@dataclass(frozen=True)
class PathIndependentCorrection:
    """One correction for every query, on the query's own base.

    correction: mean of the generator's over the support's estimates, natural log, [n_bins].
    """

    generator: Generator
    correction: Tensor
    name: str = "prime_path_independent"

    @classmethod
    @torch.no_grad()
    def fit(cls, training_set: TrainingSet, generator: Generator) -> Self:
        """Average over the support's cases in the protocol's own calibration."""
        weight = next(generator.parameters())
        paths = AcousticPaths.from_impulse_responses(
            training_set.primary_estimates[0], training_set.secondary_estimates[0]
        ).to(weight.dtype, weight.device)
        total = torch.zeros((), device=weight.device)
        for start in range(0, paths.batch_size, CASES_AT_ONCE):
            features = _inputs(generator, paths[start : start + CASES_AT_ONCE]).features
            total = total + _correction(generator, features).sum(0)
        return cls(generator, total / paths.batch_size)

    @torch.no_grad()
    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Taps [batch, 2048] from estimated paths."""
        return ControlFilter(minimum_phase_fir(_inputs(self.generator, paths).log_base + self.correction))


def _inputs(generator: Generator, paths: AcousticPaths) -> PathInputs:
    if generator.config.kind != "prime":
        raise ValueError(f"conditioning control: found a {generator.config.kind!r} generator, expected 'prime'")
    return PathInputs.read(paths, generator.config.n_fft, generator.config.base)


def _correction(generator: Generator, features: Tensor) -> Tensor:
    """Delta, natural log: [batch, n_bins]."""
    # The standard generator has one output, on the Fourier grid itself.
    correction: Tensor = generator(features).flatten(1)
    return correction


def _is_same(queries: Tensor, pool: Tensor) -> np.ndarray:
    """Whether two spectra are one path, [n_queries, n_pool]."""
    flat_queries, flat_pool = (torch.view_as_real(each).flatten(1) for each in (queries, pool))
    # Differences first: the product form of the distance would round a small one away.
    distance = torch.cdist(flat_queries, flat_pool, compute_mode="donot_use_mm_for_euclid_dist")
    same: np.ndarray = (distance < SAME_PATH * flat_queries.norm(dim=-1, keepdim=True)).cpu().numpy()
    return same

"""Conditioning controls (Table 2 of the paper): a trained generator with wrong information about the path.

Neither is trained. Their loss of noise reduction shows how much the generator depends on the phase of the path and
on the path itself. Paths are on the generator's device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from prime_anc.method.arrays import minimum_phase_fir
from prime_anc.method.paths import AcousticPaths, ControlFilter
from prime_anc.method.start.features import CHANNELS
from prime_anc.method.start.generator import Generator
from training.baselines.network_training import PathInputs
from training.baselines.wmmse import support_estimates
from training.training_set import TrainingSet

# Channels of ratio, mismatch, primary and secondary path.
PHASE_CHANNELS = tuple(CHANNELS.index(name) for name in CHANNELS if name.endswith(("_re", "_im")))

# Relative distance below which two estimates count as the same path: variants of an ear share their primary path.
SAME_PATH = 1e-3


@dataclass(frozen=True)
class ShuffledPhase:
    """A control whose generator reads the phase channels of another query, the donor.

    The donor is drawn, by the seed, from the queries that share no path with the query; batching does not change it.
    """

    generator: Generator
    # Estimates of all queries, including those to design for.
    pool: AcousticPaths
    seed: int = 0

    @torch.no_grad()
    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Design taps [batch, 2048]; ValueError for a query outside the pool, or alone in it."""
        inputs = _inputs(self.generator, paths)
        correction = _correction(self.generator, self.shuffled_features(paths))
        return ControlFilter(minimum_phase_fir(inputs.log_base + correction))

    def shuffled_features(self, paths: AcousticPaths) -> Tensor:
        """Return the twelve channels with the donors' phase channels, [batch, 12, n_bins]."""
        donors = self.donors(paths)
        features = _inputs(self.generator, paths).features.clone()
        lent = _inputs(self.generator, AcousticPaths(self.pool.primary[donors], self.pool.secondary[donors]))
        features[:, PHASE_CHANNELS] = lent.features[:, PHASE_CHANNELS]
        return features

    def donors(self, paths: AcousticPaths) -> list[int]:
        """Return the pool index of each query's donor."""
        same_primary = _is_same(paths.primary, self.pool.primary)
        same_secondary = _is_same(paths.secondary, self.pool.secondary)
        return [
            self._donor(np.flatnonzero(both), np.flatnonzero(~either))
            for both, either in zip(same_primary & same_secondary, same_primary | same_secondary, strict=True)
        ]

    def _donor(self, same: np.ndarray, others: np.ndarray) -> int:
        if same.size == 0 or others.size == 0:
            raise ValueError(
                f"shuffled phase: found the query {same.size} times and {others.size} other paths in a pool of "
                f"{self.pool.batch_size}, expected at least one of each"
            )
        return int(np.random.default_rng([self.seed, int(same[0])]).choice(others))


@dataclass(frozen=True)
class PathIndependentCorrection:
    """A control with the same correction for every query, applied to the query's base."""

    generator: Generator
    # Mean of the generator's corrections over the support's estimates, natural log, [n_bins].
    correction: Tensor

    @classmethod
    @torch.no_grad()
    def fit(cls, training_set: TrainingSet, generator: Generator) -> Self:
        """Average over the support's cases in the run's calibration."""
        weight = next(generator.parameters())
        paths = support_estimates(training_set).to(weight.dtype, weight.device)
        # One at a time, for the memory of an ear's channels.
        corrections = [
            _correction(generator, _inputs(generator, paths[[n]]).features) for n in range(paths.batch_size)
        ]
        return cls(generator, torch.cat(corrections).mean(0))

    @torch.no_grad()
    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Design taps [batch, 2048] from estimated paths."""
        return ControlFilter(minimum_phase_fir(_inputs(self.generator, paths).log_base + self.correction))


def _inputs(generator: Generator, paths: AcousticPaths) -> PathInputs:
    return PathInputs.read(paths, generator.config.n_fft, generator.config.base)


def _correction(generator: Generator, features: Tensor) -> Tensor:
    """Compute Delta, natural log, [batch, n_bins]."""
    # The standard generator has one output, on the Fourier grid itself.
    return generator(features).flatten(1)


def _is_same(queries: Tensor, pool: Tensor) -> np.ndarray:
    """Return which spectra are of the same path, [n_queries, n_pool]."""
    flat_queries, flat_pool = (torch.view_as_real(item).flatten(1) for item in (queries, pool))
    # Differences are computed directly: the matrix-product form loses small distances to rounding.
    distance = torch.cdist(flat_queries, flat_pool, compute_mode="donot_use_mm_for_euclid_dist")
    return (distance < SAME_PATH * flat_queries.norm(dim=-1, keepdim=True)).cpu().numpy()

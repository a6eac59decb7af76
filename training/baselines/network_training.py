"""Inputs of the networks beside the generator, and a trained network as a method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from prime_anc.method.arrays import floored_log
from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.paths import AcousticPaths, ControlFilter
from prime_anc.method.start.features import Base, log_base_magnitude, path_features, regularised_ratio
from training.trainer import FilterNetwork

N_STATISTICS = 6


@dataclass(frozen=True)
class PathInputs:
    """Estimated paths as inputs of a network, on its Fourier grid."""

    # Log A_base, natural, [batch, n_bins].
    log_base: Tensor
    # The twelve channels, [batch, 12, n_bins].
    features: Tensor
    # Mean and SD across frequency of log|P|, log|S| and log A_base, [batch, 6], which keep the amplitude scale.
    statistics: Tensor

    @classmethod
    def read(cls, paths: AcousticPaths, n_fft: int = DESIGN_N_FFT, base: Base = "full_band") -> Self:
        """Read paths on the design grid; a coarser grid takes every n-th bin."""
        stride = DESIGN_N_FFT // n_fft
        coarse = AcousticPaths(paths.primary[..., ::stride], paths.secondary[..., ::stride])
        w_reg = regularised_ratio(coarse.primary, coarse.secondary)
        log_base = log_base_magnitude(w_reg, base)
        logs = torch.stack((floored_log(coarse.primary.abs()), floored_log(coarse.secondary.abs()), log_base), 1)
        statistics = torch.stack((logs.mean(-1), logs.std(-1, correction=0)), -1).flatten(1)
        return cls(log_base, path_features(coarse.primary, coarse.secondary, w_reg, log_base), statistics)


@dataclass(frozen=True)
class NetworkMethod:
    """A trained network as a design method."""

    network: FilterNetwork

    @torch.no_grad()
    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Design taps [batch, 2048] from estimated paths, on the paths' device and in their real type."""
        weight = next(self.network.parameters())
        taps = self.network(paths.to(weight.dtype, weight.device)).taps
        return ControlFilter(taps.to(paths.primary.real))

"""Generators: networks that correct the quantities that define a filter, and their filters: theory (3) to (5), (10).

`prime` is the paper's, on the full linear grid; it corrects the log magnitude of the ratio base, which is then
given its minimum phase. `prime-log` is the same stack of layers on a few log-spaced frequencies; it corrects the
weight and the penalty of a finite causal Wiener filter (or, as a control, the ratio base as `prime` does). Both
predict g and return Delta = (bound ln 10 / 20) tanh(g).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from prime_anc.method.arrays import floored_log, minimum_phase_fir
from prime_anc.method.bands import frequencies_hz, log_grid
from prime_anc.method.conventions import DESIGN_N_FFT
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.start.features import (
    N_CHANNELS,
    N_OUTPUTS,
    NEPER_PER_DB,
    GeneratorConfig,
    log_base_magnitude,
    path_features,
    regularised_ratio,
)
from prime_anc.method.start.fir_wiener import CEILING_SHARPNESS, drive_ceiling, fir_wiener, starting_weight
from prime_anc.method.types import ModelParameters

if TYPE_CHECKING:
    from prime_anc.measure.prior import PathPrior


@dataclass(frozen=True)
class PathRatio:
    """Inputs of a generator."""

    # Log A_base, natural, [batch, bins of the generator's Fourier grid].
    log_base: Tensor
    # Natural log |P| and log |S| on the generator's grid, [batch, 2, n_points].
    log_paths: Tensor
    # The twelve channels on the generator's grid, [batch, 12, n_points].
    features: Tensor


class LinearFrequencyGrid(nn.Module):
    """The Fourier grid itself: inputs are returned unchanged."""

    points_hz: Tensor

    def __init__(self, n_fft: int) -> None:
        """n_fft: points of the Fourier grid."""
        super().__init__()
        self.n_points = n_fft // 2 + 1
        # 0 Hz has no logarithm; half a bin replaces it.
        frequency = torch.from_numpy(frequencies_hz(n_fft))
        self.register_buffer("points_hz", frequency.clamp_min(frequency[1] / 2).float(), persistent=False)

    def pool(self, channels: Tensor) -> Tensor:
        """Return [batch, n_channels, n_bins] unchanged."""
        return channels

    def spread(self, values: Tensor) -> Tensor:
        """Return [..., n_bins] unchanged."""
        return values


class LogFrequencyGrid(nn.Module):
    """`log_grid` as tensors. They follow from the arguments, so they are kept out of the checkpoint."""

    points_hz: Tensor
    pooling: Tensor
    lower: Tensor
    fraction: Tensor

    def __init__(self, n_fft: int, n_points: int, low_hz: float, high_hz: float) -> None:
        """Copy the grid."""
        super().__init__()
        grid = log_grid(n_fft, n_points, low_hz, high_hz)
        self.n_points = n_points
        for name, values in (
            ("points_hz", grid.points_hz),
            ("pooling", grid.pooling.T),
            ("fraction", grid.fraction),
        ):
            self.register_buffer(name, torch.from_numpy(values.astype("float32")), persistent=False)
        self.register_buffer("lower", torch.from_numpy(grid.lower.copy()), persistent=False)

    def pool(self, channels: Tensor) -> Tensor:
        """Average around the points with weights: [batch, n_channels, n_bins] -> [batch, n_channels, n_points]."""
        return channels @ self.pooling

    def spread(self, values: Tensor) -> Tensor:
        """Interpolate linearly in log f, constant beyond both ends: [..., n_points] -> [..., n_bins]."""
        return torch.lerp(values[..., self.lower], values[..., self.lower + 1], self.fraction)


class ResidualBlock(nn.Module):
    """conv, norm, SiLU, conv, norm, add, SiLU; both convolutions dilated and zero-padded to equal length."""

    def __init__(self, config: GeneratorConfig, dilation: int) -> None:
        """dilation: spacing of the kernel's taps, in grid points."""
        super().__init__()
        width, kernel = config.n_channels, config.kernel_size
        padding = dilation * (kernel // 2)
        self.first = nn.Conv1d(width, width, kernel, padding=padding, dilation=dilation)
        self.first_norm = nn.GroupNorm(config.n_groups, width)
        self.second = nn.Conv1d(width, width, kernel, padding=padding, dilation=dilation)
        self.second_norm = nn.GroupNorm(config.n_groups, width)

    def forward(self, hidden: Tensor) -> Tensor:
        """Transform features, [batch, n_channels, n_points], to the same shape."""
        inner = nn.functional.silu(self.first_norm(self.first(hidden)))
        return nn.functional.silu(hidden + self.second_norm(self.second(inner)))


class Generator(nn.Module):
    """Path features -> bounded corrections Delta, in nepers.

    The last layer starts at zero, so an untrained generator is the analytic filter that it corrects.
    """

    def __init__(self, config: GeneratorConfig) -> None:
        """Draw weights by torch's default initialisation under the caller's seed."""
        super().__init__()
        self.config = config
        width = config.n_channels
        self.grid: LinearFrequencyGrid | LogFrequencyGrid = (
            LinearFrequencyGrid(config.n_fft)
            if config.kind == "prime"
            else LogFrequencyGrid(config.n_fft, config.n_points, config.low_hz, config.high_hz)
        )
        self.stem = nn.Sequential(
            nn.Conv1d(N_CHANNELS, width, config.kernel_size, padding=config.kernel_size // 2),
            nn.GroupNorm(config.n_groups, width),
            nn.SiLU(),
        )
        self.blocks = nn.Sequential(*(ResidualBlock(config, dilation) for dilation in config.dilations))
        head_norm = [nn.GroupNorm(config.n_groups, width)] if config.head_norm else []
        last = nn.Conv1d(width, N_OUTPUTS[config.realisation], 1)
        nn.init.zeros_(last.weight)
        assert last.bias is not None
        nn.init.zeros_(last.bias)
        self.head = nn.Sequential(nn.Conv1d(width, width, 1), *head_norm, nn.SiLU(), last)

    @property
    def n_parameters(self) -> int:
        """Return the number of trained parameters: 151,401 in the paper's layout."""
        return sum(parameter.numel() for parameter in self.parameters())

    def forward(self, pooled_features: Tensor) -> Tensor:
        """Compute Delta, theory (4), on the generator's grid, within +-bound_db ln 10 / 20.

        pooled_features: [batch, 12, grid.n_points] (`grid.pool`). Returns [batch, n_outputs, grid.n_points],
        n_outputs after N_OUTPUTS; `grid.spread` takes them to the Fourier grid.
        """
        g: Tensor = self.head(self.blocks(self.stem(pooled_features)))
        return self.config.bound_db * NEPER_PER_DB * torch.tanh(g.to(pooled_features.dtype))

    def path_ratio(self, paths: AcousticPaths) -> PathRatio:
        """Compute the magnitude base, theory (3), and pooled features of paths on the design grid."""
        primary, secondary = self._coarse(paths)
        w_reg = regularised_ratio(primary, secondary)
        log_base = log_base_magnitude(w_reg, self.config.base)
        log_paths = floored_log(torch.stack((primary, secondary), dim=1).abs())
        features = path_features(primary, secondary, w_reg, log_base)
        pooled = self.grid.pool(torch.cat((log_paths, features), dim=1))
        return PathRatio(log_base, pooled[:, :2], pooled[:, 2:])

    def reconstruct(
        self,
        paths: AcousticPaths,
        ratio: PathRatio,
        correction: Tensor | None,
        max_gain_db: Tensor | float | None = None,
        shares: Tensor | None = None,
    ) -> Tensor:
        """Compute taps [batch, 2048] from corrections; without corrections, the ratio-base FIR.

        |W| is bent below the ceiling with the phase that keeps the response causal and short. For several conditions
        a finite Wiener filter sums their normal equations, a ratio averages their log magnitudes.

        Parameters
        ----------
        paths
            Paths on the design grid.
        max_gain_db, shares
            As for `Synthesizer`.
        """
        # In the magnitude's precision, so that a number and a tensor of it give the same taps; a number stays on the
        # host, since kernels take it as an argument even in a recorded graph.
        log_ceiling = (
            None if max_gain_db is None else torch.as_tensor(max_gain_db, dtype=ratio.log_base.dtype) * NEPER_PER_DB
        )
        if correction is not None and self.config.realisation == "fir_wiener":
            return self._wiener(paths, ratio.log_paths, correction, log_ceiling, shares)
        log_magnitude = ratio.log_base
        if correction is not None:
            log_magnitude = log_magnitude + self.grid.spread(correction[:, 0])
        if shares is not None:
            log_magnitude = (shares.unsqueeze(-1) * log_magnitude).sum(0, keepdim=True)
        if log_ceiling is not None:
            excess = log_magnitude - log_ceiling
            log_magnitude = log_magnitude - nn.functional.softplus(excess, beta=CEILING_SHARPNESS)
        return minimum_phase_fir(log_magnitude)

    def _wiener(
        self,
        paths: AcousticPaths,
        log_paths: Tensor,
        correction: Tensor,
        log_ceiling: Tensor | None,
        shares: Tensor | None,
    ) -> Tensor:
        """Compute taps of the finite Wiener filter with corrected weight and penalty; log_ceiling: of |W|."""
        grid = self.grid
        log_terms = starting_weight(log_paths, grid.points_hz) + 2 * correction
        log_weight, log_penalty = grid.spread(log_terms).unbind(1)
        ceiling = grid.spread(drive_ceiling(log_paths, grid.points_hz))
        if log_ceiling is not None:
            ceiling = torch.minimum(ceiling, log_ceiling)
        return fir_wiener(*self._coarse(paths), log_weight, log_penalty, ceiling, shares).value

    def _coarse(self, paths: AcousticPaths) -> tuple[Tensor, Tensor]:
        """Take every n-th bin of both paths: the same transforms, sampled less densely."""
        stride = DESIGN_N_FFT // self.config.n_fft
        return paths.primary[..., ::stride].contiguous(), paths.secondary[..., ::stride].contiguous()


def model_parameters(
    generator: Generator, reference_psd: Tensor, band_uncertainty: Tensor, path_prior: PathPrior | None = None
) -> ModelParameters:
    """Return a generator's parameters as float32 copies, for a model."""
    return ModelParameters(
        config=generator.config,
        weights={name: _float32(tensor) for name, tensor in generator.state_dict().items()},
        reference_psd=_float32(reference_psd),
        band_uncertainty=_float32(band_uncertainty),
        path_prior=path_prior,
    )


def _float32(tensor: Tensor) -> NDArray[np.float32]:
    values: NDArray[np.float32] = tensor.detach().to("cpu", torch.float32).numpy().copy()
    return values

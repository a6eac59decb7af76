"""The frequencies on which a generator looks at the paths, and the way back to the linear grid."""

import torch
from torch import Tensor, nn

from synthesis.log_grid import log_grid
from synthesis.spectra import frequencies_hz


class LinearFrequencyGrid(nn.Module):
    """The Fourier grid itself: what comes in goes out."""

    points_hz: Tensor

    def __init__(self, n_fft: int) -> None:
        """n_fft: points of the Fourier grid."""
        super().__init__()
        self.n_points = n_fft // 2 + 1
        # 0 Hz has no logarithm; half a bin stands for it.
        frequency = frequencies_hz(n_fft)
        self.register_buffer("points_hz", frequency.clamp_min(frequency[1] / 2).float(), persistent=False)

    def pool(self, channels: Tensor) -> Tensor:
        """[batch, n_channels, n_bins], unchanged."""
        return channels

    def spread(self, values: Tensor) -> Tensor:
        """[..., n_bins], unchanged."""
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
        """Weighted means around each point: [batch, n_channels, n_bins] -> [batch, n_channels, n_points]."""
        return channels @ self.pooling

    def spread(self, values: Tensor) -> Tensor:
        """Linear interpolation in log f, constant beyond both ends: [..., n_points] -> [..., n_bins]."""
        return torch.lerp(values[..., self.lower], values[..., self.lower + 1], self.fraction)

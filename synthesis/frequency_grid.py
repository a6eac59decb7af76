"""The frequencies on which a generator looks at the paths, and the way back to the linear grid."""

import torch
from torch import Tensor, nn

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
    """n_points frequencies equally spaced in log f from low_hz to high_hz.

    Acoustic paths and the scored bands have about as much detail in every octave, but a linear grid has half of its
    bins in the topmost one.
    """

    points_hz: Tensor
    pooling: Tensor
    lower: Tensor
    fraction: Tensor

    def __init__(self, n_fft: int, n_points: int, low_hz: float, high_hz: float) -> None:
        """The matrices follow from the arguments, so they are kept out of the checkpoint."""
        super().__init__()
        self.n_points = n_points
        frequency = frequencies_hz(n_fft)
        step = torch.log(torch.tensor(high_hz / low_hz, dtype=torch.float64)) / (n_points - 1)
        position = torch.log(frequency.clamp_min(frequency[1] / 2) / low_hz) / step  # bins, in points
        inside = position.clamp(0, n_points - 1)
        lower = inside.floor().clamp_max(n_points - 2).long()
        self.register_buffer("lower", lower, persistent=False)
        self.register_buffer("fraction", (inside - lower).float(), persistent=False)

        # A hat of one point's half-width on either side; where that is narrower than the bin spacing (below
        # about 27 Hz) it may meet no bin, so it is never narrower than the bins are apart.
        points = low_hz * torch.exp(step * torch.arange(n_points, dtype=torch.float64))
        self.register_buffer("points_hz", points.float(), persistent=False)
        half_width = torch.maximum(points * torch.expm1(step), frequency[1])
        hats = (1 - (frequency[:, None] - points).abs() / half_width).clamp_min(0)
        self.register_buffer("pooling", (hats / hats.sum(0)).float(), persistent=False)

    def pool(self, channels: Tensor) -> Tensor:
        """Weighted means around each point: [batch, n_channels, n_bins] -> [batch, n_channels, n_points]."""
        return channels @ self.pooling

    def spread(self, values: Tensor) -> Tensor:
        """Linear interpolation in log f, constant beyond both ends: [..., n_points] -> [..., n_bins]."""
        return torch.lerp(values[..., self.lower], values[..., self.lower + 1], self.fraction)

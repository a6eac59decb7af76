"""The generator's frequencies: pooling is a weighted mean, spreading an interpolation."""

import numpy as np
import torch

from synthesis.start.generator import LogFrequencyGrid

POINTS = np.geomspace(20, 24_000, 128)


def log_grid() -> LogFrequencyGrid:
    return LogFrequencyGrid(32_768, 128, 20.0, 24_000.0).double()


def test_spreading_interpolates_linearly_in_log_frequency() -> None:
    values = torch.randn(3, 128, dtype=torch.float64)
    frequency = np.fft.rfftfreq(32_768, 1 / 48_000)
    log_frequency = np.log(np.maximum(frequency, 1e-3))
    for row, found in zip(values, log_grid().spread(values), strict=True):
        expected = np.interp(log_frequency, np.log(POINTS), row.numpy())  # constant beyond both ends
        # The fractions are kept in float32: 1e-7 of differences of order 5.
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)


def test_pooling_is_mean_under_hat_around_each_point() -> None:
    channels = torch.randn(1, 2, 16_385, dtype=torch.float64)
    found = log_grid().pool(channels)
    assert found.shape == (1, 2, 128)
    frequency = np.fft.rfftfreq(32_768, 1 / 48_000)
    ratio = (24_000 / 20) ** (1 / 127)
    for index in (0, 5, 40, 100, 126, 127):
        half_width = max(POINTS[index] * (ratio - 1), frequency[1])
        hat = np.maximum(0, 1 - np.abs(frequency - POINTS[index]) / half_width)
        expected = channels[0].numpy() @ hat / hat.sum()
        # Weights are kept in float32: 1e-7 of a mean of numbers of order 1.
        np.testing.assert_allclose(found[0, :, index].numpy(), expected, atol=1e-6)

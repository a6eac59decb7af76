"""Minimum-phase reconstruction: magnitude kept, phase minimal, response causal."""

import numpy as np
import torch

from synthesis.arrays import minimum_phase_fir, minimum_phase_response
from tests.oracles import minimum_phase as oracle
from tests.synthesis.cases import relative_error


def smooth_log_magnitudes(n_bins: int = 2049, n_cases: int = 4) -> torch.Tensor:
    """Random cosine series of low order: log magnitudes of short minimum-phase responses, +-20 dB or so."""
    angle = torch.linspace(0, torch.pi, n_bins, dtype=torch.float64)
    orders = torch.arange(1, 9, dtype=torch.float64)
    return torch.randn(n_cases, 8, dtype=torch.float64) @ torch.cos(orders[:, None] * angle)


def test_magnitude_is_kept_on_grid(dtype: torch.dtype) -> None:
    log_magnitude = smooth_log_magnitudes().to(dtype)
    found = minimum_phase_response(log_magnitude).abs()
    # exp of a log magnitude of order 5, through two transforms of 4096 points.
    tolerance = 500 * torch.finfo(dtype).eps
    torch.testing.assert_close(found, log_magnitude.exp(), rtol=tolerance, atol=0)


def test_zeros_outside_unit_circle_are_reflected_inside() -> None:
    # (1 - 0.5 z^-1)(1 + 1.25 z^-1)(1 + 0.6 z^-2) times z^-3: one zero outside, and a pure delay.
    mixed = np.convolve(np.convolve([1, -0.5], [1, 1.25]), [1, 0, 0.6])
    minimum = np.convolve(np.convolve([1, -0.5], [1.25, 1]), [1, 0, 0.6])
    magnitude = np.abs(np.fft.rfft(np.pad(mixed, (3, 0)), 4096))
    taps = minimum_phase_fir(torch.from_numpy(np.log(magnitude))[None], 5)[0].numpy()
    # The nearest zero (0.8) makes cepstral aliasing of order 0.8^4096: below rounding.
    np.testing.assert_allclose(taps, minimum, atol=1e-12)
    assert np.all(np.abs(np.roots(taps)) < 1)


def test_equals_hilbert_twin_on_random_magnitudes() -> None:
    rough = torch.randn(3, 4097, dtype=torch.float64)
    for row, taps in zip(rough, minimum_phase_fir(rough, 2048), strict=True):
        assert relative_error(taps, oracle.fir(row.numpy(), 2048)) < 1e-12


def test_is_differentiable() -> None:
    log_magnitude = smooth_log_magnitudes(33, 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: minimum_phase_fir(x, 8), (log_magnitude,))

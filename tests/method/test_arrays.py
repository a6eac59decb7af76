"""Arithmetic on spectra: plain formulas' values, derivatives where those have none, kept power, minimum phase."""

import numpy as np
import pytest
import torch

from prime_anc.method.arrays import complex_exponential, minimum_phase_fir, squared_magnitude
from prime_anc.method.bands import collected
from tests.oracles import spectra as oracle


def random_spectrum(dtype: torch.dtype) -> torch.Tensor:
    return torch.complex(torch.randn(3, 33, dtype=dtype), torch.randn(3, 33, dtype=dtype))


def test_squared_magnitude_has_gradient_zero_at_zero() -> None:
    spectrum = torch.zeros(4, dtype=torch.complex128, requires_grad=True)
    (gradient,) = torch.autograd.grad(squared_magnitude(spectrum).sum(), spectrum)
    assert not gradient.any()
    assert torch.autograd.gradcheck(squared_magnitude, (random_spectrum(torch.float64).requires_grad_(),))


def test_complex_exponential_is_exp(dtype: torch.dtype) -> None:
    exponent = 3 * random_spectrum(dtype)
    found = complex_exponential(exponent)
    torch.testing.assert_close(found, exponent.exp(), rtol=100 * torch.finfo(dtype).eps, atol=0)
    if dtype == torch.float64:
        assert torch.autograd.gradcheck(complex_exponential, (exponent.requires_grad_(),))


@pytest.mark.parametrize("stride", [2, 4, 8])
def test_collected_power_is_twins(stride: int, dtype: torch.dtype) -> None:
    power = torch.rand(3, 65, dtype=dtype)
    found = collected(power, stride)
    assert found.dtype == dtype
    assert found.shape == (3, 64 // stride + 1)
    for row in range(3):
        expected = oracle.collected(power[row].double().numpy(), stride)
        np.testing.assert_allclose(found[row].numpy(), expected, rtol=20 * torch.finfo(dtype).eps)


def test_zeros_outside_unit_circle_are_reflected_inside() -> None:
    # (1 - 0.5 z^-1)(1 + 1.25 z^-1)(1 + 0.6 z^-2) times z^-3: one zero outside, and a pure delay.
    mixed = np.convolve(np.convolve([1, -0.5], [1, 1.25]), [1, 0, 0.6])
    minimum = np.convolve(np.convolve([1, -0.5], [1.25, 1]), [1, 0, 0.6])
    magnitude = np.abs(np.fft.rfft(np.pad(mixed, (3, 0)), 4096))
    taps = minimum_phase_fir(torch.from_numpy(np.log(magnitude))[None], 5)[0].numpy()
    # The nearest zero (0.8) makes cepstral aliasing of order 0.8^4096: below rounding.
    np.testing.assert_allclose(taps, minimum, atol=1e-12)
    assert np.all(np.abs(np.roots(taps)) < 1)

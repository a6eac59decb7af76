"""Arithmetic on spectra: plain formulas' values, derivatives where those have none, kept power."""

import numpy as np
import pytest
import torch

from prime_anc.method.arrays import complex_exponential, squared_magnitude
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


@pytest.mark.parametrize("stride", [2, 8])
def test_collected_power_is_twins(stride: int, dtype: torch.dtype) -> None:
    power = torch.rand(1, 65, dtype=dtype)
    found = collected(power, stride)
    assert found.dtype == dtype
    expected = oracle.collected(power[0].double().numpy(), stride)
    np.testing.assert_allclose(found[0].numpy(), expected, rtol=20 * torch.finfo(dtype).eps)

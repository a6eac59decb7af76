"""Arithmetic on spectra: plain formulas' values, derivatives where those have none, kept power."""

import torch

from prime_anc.method.arrays import complex_exponential, squared_magnitude


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

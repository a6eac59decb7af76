"""Arithmetic on spectra has derivatives where plain formulas have none."""

import torch

from prime_anc.method.arrays import squared_magnitude


def test_squared_magnitude_has_gradient_zero_at_zero() -> None:
    spectrum = torch.zeros(4, dtype=torch.complex128, requires_grad=True)
    (gradient,) = torch.autograd.grad(squared_magnitude(spectrum).sum(), spectrum)
    assert not gradient.any()

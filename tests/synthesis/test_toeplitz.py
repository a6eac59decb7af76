"""Toeplitz matrices against the dense ones they stand for, and approximate inverses against true ones."""

import numpy as np
import pytest
import torch

from synthesis.toeplitz import TAPER, GohbergSemencul, SymmetricToeplitz, solve_toeplitz
from tests.oracles import toeplitz as oracle


@pytest.mark.parametrize("n", [1, 2, 7, 48, 2048])
def test_the_product_is_the_dense_product(n: int, dtype: torch.dtype) -> None:
    column, vector = torch.randn(2, n, dtype=torch.float64), torch.randn(2, n, dtype=torch.float64)
    found = SymmetricToeplitz(column.to(dtype)) @ vector.to(dtype)
    assert found.dtype == dtype
    for row in range(2):
        expected = oracle.dense(column[row].numpy()) @ vector[row].numpy()
        # Rounding of a transform of 2n points relative to the norms of matrix row and vector.
        scale = column[row].norm().item() * vector[row].norm().item()
        tolerance = 20 * torch.finfo(dtype).eps * scale
        np.testing.assert_allclose(found[row].double().numpy(), expected, rtol=0, atol=tolerance)


def recursive_symbol(n_fft: int) -> torch.Tensor:
    """1 / |A|^2 of two polynomials of order 3 with their zeros at 0.5 to 0.8 from the origin: [2, n_bins]."""
    zeros = np.array([[0.8, 0.5 + 0.4j, 0.5 - 0.4j], [-0.6, 0.1 + 0.7j, 0.1 - 0.7j]])
    polynomials = np.array([np.poly(item).real for item in zeros])
    return torch.from_numpy(1 / np.abs(np.fft.rfft(polynomials, n_fft)) ** 2)


def dense(operator: SymmetricToeplitz | GohbergSemencul, n: int) -> np.ndarray:
    """The operator of a single item as a matrix, column by column."""
    return (operator @ torch.eye(n, dtype=torch.float64)).numpy().T


@pytest.mark.parametrize("n", [5, 64, 500])
def test_recursive_symbol_is_inverted_exactly(n: int, dtype: torch.dtype) -> None:
    """1 / F ends before the matrix does, so that nothing is cut: the formula is then exact, untapered."""
    symbol = recursive_symbol(4096)
    column, vector = torch.fft.irfft(symbol)[:, :n], torch.randn(2, n, dtype=torch.float64)
    inverse = GohbergSemencul(symbol.to(dtype), n, taper=0.0)
    found = inverse @ (SymmetricToeplitz(column.to(dtype)) @ vector.to(dtype))
    assert found.dtype == dtype
    # Rounding times the matrix' condition, below 2000.
    tolerance = 2000 * torch.finfo(dtype).eps * vector.norm().item()
    torch.testing.assert_close(found, vector.to(dtype), rtol=0, atol=tolerance)


@pytest.mark.parametrize("taper", [0.0, TAPER])
def test_gohberg_semencul_is_the_formulas_dense_matrix(taper: float) -> None:
    n = 48
    spectrum = torch.rand(2, 2 * n, dtype=torch.float64)[:, : n + 1] + 0.1
    for row in range(2):
        found = dense(GohbergSemencul(spectrum[row : row + 1], n, taper), n)
        expected = oracle.gohberg_semencul(spectrum[row].numpy(), n, taper)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_arrays_of_numpy_give_the_same() -> None:
    frequency = np.linspace(0, 1, 1025)
    symbol = 1e-3 + np.exp(-6 * frequency) * (1.1 + np.cos(9 * np.pi * frequency))
    matched = np.fft.rfft(np.random.default_rng(3).standard_normal(256), 2048)
    found = solve_toeplitz(symbol, matched, 256, n_iterations=4)
    expected = solve_toeplitz(torch.from_numpy(symbol), torch.from_numpy(matched), 256, n_iterations=4)
    np.testing.assert_allclose(found.value, expected.value.numpy(), rtol=0, atol=1e-12 * np.abs(found.value).max())
    assert found.n_iterations == expected.n_iterations.item()

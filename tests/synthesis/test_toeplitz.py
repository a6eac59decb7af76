"""Toeplitz and circulant operators against the dense matrices they stand for."""

import numpy as np
import pytest
import torch

from synthesis.toeplitz import CirculantPreconditioner, SymmetricToeplitz
from tests.oracles import toeplitz as oracle


def definite_column(n: int, n_cases: int = 2) -> torch.Tensor:
    """First columns of positive-definite Toeplitz matrices: autocorrelations of a positive spectrum."""
    spectrum = torch.rand(n_cases, 2 * n, dtype=torch.float64)[:, : n + 1] + 0.1
    return torch.fft.irfft(spectrum)[:, :n]


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


def test_the_operator_is_symmetric() -> None:
    matrix = SymmetricToeplitz(torch.randn(1, 33, dtype=torch.float64))
    as_dense = torch.stack([(matrix @ unit[None])[0] for unit in torch.eye(33, dtype=torch.float64)])
    torch.testing.assert_close(as_dense, as_dense.T, rtol=0, atol=1e-13)


@pytest.mark.parametrize("n", [2, 7, 8, 48, 512])
def test_strang_applies_the_inverse_of_the_wrapped_matrix(n: int) -> None:
    column, vector = definite_column(n), torch.randn(2, n, dtype=torch.float64)
    preconditioner = CirculantPreconditioner.strang(
        SymmetricToeplitz(column), floor=torch.full((2, 1), 1e-12, dtype=torch.float64)
    )
    found = preconditioner @ vector
    for row in range(2):
        wrapped = oracle.strang(column[row].numpy())
        assert np.linalg.eigvalsh(wrapped).min() > 0.01  # the case does not lean on the floor
        # Condition below 100: eps times that, times the dense product's own rounding.
        np.testing.assert_allclose(wrapped @ found[row].numpy(), vector[row].numpy(), atol=1e-10)


def test_eigenvalues_below_the_floor_are_raised_to_it() -> None:
    column = torch.zeros(1, 8, dtype=torch.float64)
    column[0, 0], column[0, 4] = 1.0, -2.0  # wrapped: eigenvalues 1 - 2 (-1)^k, that is -1 and 3
    preconditioner = CirculantPreconditioner.strang(
        SymmetricToeplitz(column), floor=torch.tensor([[0.5]], dtype=torch.float64)
    )
    constant, alternating = torch.ones(1, 8, dtype=torch.float64), torch.tensor([[1.0, -1.0] * 4]).double()
    torch.testing.assert_close(preconditioner @ constant, constant / 0.5)  # -1, raised
    torch.testing.assert_close(preconditioner @ alternating, alternating / 0.5)
    odd = torch.tensor([[1.0, 0.0, -1.0, 0.0] * 2]).double()
    torch.testing.assert_close(preconditioner @ odd, odd / 0.5)  # k = 2: -1 again


def test_a_circulant_toeplitz_matrix_is_its_own_strang_preconditioner() -> None:
    m = torch.arange(16)
    column = 0.5 ** torch.minimum(m, 16 - m).double()[None]
    matrix = SymmetricToeplitz(column)
    preconditioner = CirculantPreconditioner.strang(matrix, floor=torch.full((1, 1), 1e-9, dtype=torch.float64))
    vector = torch.randn(1, 16, dtype=torch.float64)
    torch.testing.assert_close(preconditioner @ (matrix @ vector), vector, rtol=0, atol=1e-12)

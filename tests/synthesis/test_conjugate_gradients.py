"""Conjugate gradients against dense solves and SciPy's own recursion."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.linalg import solve_toeplitz
from scipy.sparse.linalg import LinearOperator, cg
from torch import Tensor

from synthesis.conjugate_gradients import conjugate_gradients
from synthesis.toeplitz import CirculantPreconditioner, SymmetricToeplitz
from tests.oracles import toeplitz as oracle


@dataclass(frozen=True)
class Dense:
    """A batch of dense matrices [batch, n, n] with the operators' `@`."""

    matrix: Tensor

    def __matmul__(self, vector: Tensor) -> Tensor:
        return (self.matrix @ vector[..., None])[..., 0]


def definite(n: int, n_cases: int, condition: float) -> Tensor:
    """Random symmetric matrices with eigenvalues from 1 to `condition`, evenly in their logarithm."""
    q = torch.linalg.qr(torch.randn(n_cases, n, n, dtype=torch.float64))[0]
    return (q * torch.logspace(0, np.log10(condition), n, dtype=torch.float64)) @ q.mT


def test_solves_what_a_dense_solver_solves() -> None:
    matrix, rhs = definite(24, 3, 100.0), torch.randn(3, 24, dtype=torch.float64)
    found = conjugate_gradients(Dense(matrix), rhs, n_iterations=60, tolerance=1e-13)
    expected = torch.linalg.solve(matrix, rhs)
    # The relative residual asked for, times the condition number.
    torch.testing.assert_close(found.value, expected, rtol=0, atol=1e-10)
    assert found.residual.max().item() <= 1e-13


def test_the_residual_is_that_of_the_value(dtype: torch.dtype) -> None:
    matrix, rhs = definite(64, 4, 1e4).to(dtype), torch.randn(4, 64, dtype=dtype)
    for n_iterations in (1, 5, 20):
        found = conjugate_gradients(Dense(matrix), rhs, n_iterations=n_iterations)
        true = (rhs - Dense(matrix) @ found.value).norm(dim=-1) / rhs.norm(dim=-1)
        # The recursion drifts from b - A x by rounding times the largest |A| |x| met (condition 1e4).
        torch.testing.assert_close(found.residual, true, rtol=0, atol=1e4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("preconditioned", [False, True])
def test_each_iterate_is_scipys(preconditioned: bool) -> None:
    n = 96
    spectrum = torch.rand(1, 2 * n, dtype=torch.float64)[:, : n + 1] + 0.02
    column, rhs = torch.fft.irfft(spectrum)[:, :n], torch.randn(1, n, dtype=torch.float64)
    operator = SymmetricToeplitz(column)
    preconditioner = (
        CirculantPreconditioner.strang(operator, torch.full((1, 1), 1e-3, dtype=torch.float64))
        if preconditioned
        else None
    )
    inverse = np.linalg.inv(oracle.strang(column[0].numpy())) if preconditioned else np.eye(n)
    for n_iterations in (1, 4, 16):
        expected, _ = cg(
            oracle.dense(column[0].numpy()),
            rhs[0].numpy(),
            rtol=0,
            maxiter=n_iterations,
            M=LinearOperator((n, n), matvec=lambda v: inverse @ v, dtype=np.float64),
        )
        found = conjugate_gradients(operator, rhs, preconditioner, n_iterations=n_iterations, tolerance=0.0)
        # The same recursion; rounding grows with iterations, here 16 of a matrix of condition 50.
        np.testing.assert_allclose(found.value[0].numpy(), expected, rtol=0, atol=1e-10)
        assert found.n_iterations.item() == n_iterations


def test_enough_iterations_give_the_levinson_solution() -> None:
    column = torch.from_numpy(0.9 ** np.arange(512.0))[None]
    column[0, 0] += 0.01
    rhs = torch.randn(1, 512, dtype=torch.float64)
    operator = SymmetricToeplitz(column)
    preconditioner = CirculantPreconditioner.strang(operator, torch.full((1, 1), 1e-3, dtype=torch.float64))
    found = conjugate_gradients(operator, rhs, preconditioner, n_iterations=40, tolerance=1e-12)
    np.testing.assert_allclose(found.value[0], solve_toeplitz(column[0].numpy(), rhs[0].numpy()), atol=1e-9)
    assert found.n_iterations.item() < 40  # the preconditioner clusters the eigenvalues


def test_an_item_that_has_converged_keeps_its_value() -> None:
    # Item 0 is solved by one iteration (identity); item 1 needs many.
    matrix = torch.stack([torch.eye(32, dtype=torch.float64), definite(32, 1, 1e3)[0]])
    rhs = torch.randn(2, 32, dtype=torch.float64)
    found = conjugate_gradients(Dense(matrix), rhs, n_iterations=16)
    assert torch.equal(found.value[0], rhs[0])
    assert found.n_iterations.tolist() == [1, 16]
    alone = conjugate_gradients(Dense(matrix[1:]), rhs[1:], n_iterations=16)
    # Batched products round differently; 16 iterations without reorthogonalisation amplify it (measured 2e-9).
    torch.testing.assert_close(found.value[1:], alone.value, rtol=0, atol=1e-7)


def test_a_zero_right_hand_side_has_the_zero_solution(dtype: torch.dtype) -> None:
    found = conjugate_gradients(Dense(torch.eye(4, dtype=dtype)[None]), torch.zeros(1, 4, dtype=dtype))
    assert not found.value.any()
    assert found.residual.item() == 0
    assert found.n_iterations.item() == 0


def test_the_scale_of_the_problem_does_not_matter() -> None:
    matrix, rhs = definite(32, 1, 50.0), torch.randn(1, 32, dtype=torch.float64)
    plain = conjugate_gradients(Dense(matrix), rhs)
    tiny = conjugate_gradients(Dense(1e-20 * matrix), 1e-12 * rhs)
    torch.testing.assert_close(1e-8 * tiny.value, plain.value, rtol=1e-9, atol=0)
    torch.testing.assert_close(tiny.residual, plain.residual, rtol=1e-6, atol=0)


def test_energy_norm_of_the_error_never_rises() -> None:
    matrix, rhs = definite(48, 1, 1e4), torch.randn(1, 48, dtype=torch.float64)
    solution = torch.linalg.solve(matrix, rhs)
    errors = []
    for n_iterations in range(1, 40, 3):
        error = conjugate_gradients(Dense(matrix), rhs, n_iterations=n_iterations).value - solution
        errors.append((error * (Dense(matrix) @ error)).sum().item())
    assert all(later <= earlier * (1 + 1e-9) for earlier, later in pairwise(errors))


def test_reorthogonalised_iterates_do_not_depend_on_precision() -> None:
    # A few eigenvalues far above the rest, as in the measured normal matrices: the plain recursion loses
    # orthogonality once it has found them.
    q = torch.linalg.qr(torch.randn(2, 256, 256, dtype=torch.float64))[0]
    eigenvalues = torch.cat([torch.logspace(0, 1, 246), torch.logspace(3, 5, 10)]).double()
    matrix, rhs = (q * eigenvalues) @ q.mT, torch.randn(2, 256, dtype=torch.float64)

    def difference(reorthogonalise: bool) -> float:
        found = [
            conjugate_gradients(
                Dense(matrix.to(dtype)), rhs.to(dtype), n_iterations=24, reorthogonalise=reorthogonalise
            ).value.double()
            for dtype in (torch.float32, torch.float64)
        ]
        return float(((found[0] - found[1]).norm(dim=-1) / found[1].norm(dim=-1)).max())

    # eps of float32 (6e-8) times the condition (1e5) is what any solver may lose.
    assert difference(reorthogonalise=True) < 6e-3
    assert difference(reorthogonalise=True) < 0.1 * difference(reorthogonalise=False)


def test_reorthogonalising_changes_nothing_where_rounding_does_no_harm() -> None:
    matrix, rhs = definite(32, 2, 50.0), torch.randn(2, 32, dtype=torch.float64)
    plain = conjugate_gradients(Dense(matrix), rhs, n_iterations=8)
    careful = conjugate_gradients(Dense(matrix), rhs, n_iterations=8, reorthogonalise=True)
    torch.testing.assert_close(careful.value, plain.value, rtol=0, atol=1e-12)
    torch.testing.assert_close(careful.residual, plain.residual, rtol=1e-9, atol=0)


def test_a_converged_item_keeps_its_residual_too() -> None:
    matrix, rhs = definite(48, 2, 1e3), torch.randn(2, 48, dtype=torch.float64)
    found = conjugate_gradients(Dense(matrix), rhs, n_iterations=48, tolerance=0.02, reorthogonalise=True)
    true = (rhs - Dense(matrix) @ found.value).norm(dim=-1) / rhs.norm(dim=-1)
    assert found.n_iterations.max().item() < 48
    assert (found.residual <= 0.02).all()
    assert found.residual.min().item() > 1e-4  # it stopped there; later iterations would have gone on to 1e-15
    torch.testing.assert_close(found.residual, true, rtol=1e-9, atol=0)

"""The solver for one ear against the reference's operators and iterations, and against a direct solution."""

import numpy as np
import pytest
import torch
from scipy.linalg import solve_toeplitz
from scipy.sparse.linalg import LinearOperator, eigsh

from synthesis.conjugate_gradients import conjugate_gradients
from synthesis.cpu.toeplitz import ToeplitzSolver
from synthesis.cpu.transforms import RealTransform
from synthesis.toeplitz import GohbergSemencul, SymmetricToeplitz

N_FFT = 8192


def symbol_and_rhs(seed: int, range_db: float, n_fft: int = N_FFT) -> tuple[np.ndarray, np.ndarray]:
    """A smooth symbol that spans a range of levels, and a right-hand side without any structure."""
    rng = np.random.default_rng(seed)
    waves = np.cos(np.outer(np.arange(1, 9), np.linspace(0, np.pi, n_fft // 2 + 1)))
    shape = rng.standard_normal(8) @ waves
    shape *= range_db / 10 * np.log(10) / np.ptp(shape)
    return np.exp(shape).astype(np.float32), rng.standard_normal(2048).astype(np.float32)


@pytest.mark.parametrize("n_fft", [4096, N_FFT])
@pytest.mark.parametrize("range_db", [20.0, 40.0])
def test_each_iterate_is_the_references(range_db: float, n_fft: int) -> None:
    solver = ToeplitzSolver(RealTransform(n_fft))
    for seed in range(3):
        symbol, rhs = symbol_and_rhs(seed, range_db, n_fft)
        exact = torch.from_numpy(symbol).double()[None]
        matrix = SymmetricToeplitz(torch.fft.irfft(exact)[:, :2048])
        for n_iterations in (1, 2, 4):
            found = solver.solve(symbol, rhs, n_iterations=n_iterations)
            expected = conjugate_gradients(
                matrix,
                torch.from_numpy(rhs).double()[None],
                GohbergSemencul(exact, 2048),
                n_iterations=n_iterations,
            )
            value = expected.value[0].numpy()
            assert found.value.dtype == np.float32
            # The symbol's range is the matrix' condition: 100 and 1e4, which multiply float32's 6e-8. Measured:
            # 2e-6 and 2e-4.
            assert np.linalg.norm(found.value - value) < 2e-7 * 10 ** (range_db / 10) * np.linalg.norm(value)
            assert found.residual == pytest.approx(expected.residual.item(), rel=2e-2)


def test_enough_iterations_give_the_direct_solution() -> None:
    symbol, rhs = symbol_and_rhs(0, 20.0)
    kept = symbol.copy(), rhs.copy()
    found = ToeplitzSolver(RealTransform(N_FFT)).solve(symbol, rhs, n_iterations=40)
    expected = solve_toeplitz(np.fft.irfft(symbol.astype(np.float64))[:2048], rhs.astype(np.float64))
    assert np.linalg.norm(found.value - expected) < 1e-4 * np.linalg.norm(expected)
    assert found.residual < 1e-6
    assert np.array_equal(symbol, kept[0])
    assert np.array_equal(rhs, kept[1])


def test_one_solution_does_not_change_the_next() -> None:
    solver = ToeplitzSolver(RealTransform(N_FFT))
    first = solver.solve(*symbol_and_rhs(0, 40.0), n_iterations=4).value
    copy = first.copy()
    solver.solve(*symbol_and_rhs(1, 20.0), n_iterations=3)
    assert np.array_equal(first, copy)
    assert np.array_equal(solver.solve(*symbol_and_rhs(0, 40.0), n_iterations=4).value, first)


def test_nothing_to_solve_gives_the_zero_solution() -> None:
    symbol, _ = symbol_and_rhs(0, 20.0)
    found = ToeplitzSolver(RealTransform(N_FFT)).solve(symbol, np.zeros(2048, np.float32), n_iterations=4)
    assert not found.value.any()
    assert found.residual == 0


@pytest.mark.parametrize(("share", "n_iterations"), [(200.0, 4), (1e9, 0)])
def test_an_inverse_that_shows_itself_not_to_be_positive_ends_the_iteration(
    share: float, n_iterations: int
) -> None:
    """A symbol too rough for its inverse, and a right-hand side with more or less of the worst direction."""
    rng = np.random.default_rng(0)
    symbol = np.exp(3 * rng.standard_normal(N_FFT // 2 + 1)).astype(np.float32)
    exact = torch.from_numpy(symbol).double()[None]
    inverse = GohbergSemencul(exact, 2048)

    def apply(vector: np.ndarray) -> np.ndarray:
        found: np.ndarray = (inverse @ torch.from_numpy(vector)[None])[0].numpy()
        return found

    operator = LinearOperator((2048, 2048), matvec=apply, dtype=np.float64)
    (smallest,), worst = eigsh(operator, k=1, which="SA", tol=1e-3, v0=np.ones(2048))
    assert smallest < 0
    rhs = (rng.standard_normal(2048) + share * worst[:, 0]).astype(np.float32)
    matrix = SymmetricToeplitz(torch.fft.irfft(exact)[:, :2048])
    expected = conjugate_gradients(matrix, torch.from_numpy(rhs).double()[None], inverse, n_iterations=6)
    assert expected.n_iterations.item() == n_iterations
    found = ToeplitzSolver(RealTransform(N_FFT)).solve(symbol, rhs, n_iterations=6)
    np.testing.assert_allclose(found.value, expected.value[0], rtol=0, atol=1e-4 * np.abs(found.value).max())
    assert found.residual == pytest.approx(expected.residual.item(), rel=1e-4)


def test_not_a_number_is_not_taken_for_a_matrix_that_is_not_positive() -> None:
    """A filter of zeros would look like a design."""
    symbol, rhs = symbol_and_rhs(0, 20.0)
    solver = ToeplitzSolver(RealTransform(N_FFT))
    broken = symbol.copy()
    broken[7] = np.nan
    assert np.isnan(solver.solve(broken, rhs, n_iterations=4).value).all()
    assert np.isnan(solver.solve(symbol, np.full_like(rhs, np.nan), n_iterations=4).value).all()
    assert np.isfinite(solver.solve(symbol, rhs, n_iterations=4).value).all()

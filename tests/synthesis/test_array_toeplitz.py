"""NumPy's Toeplitz systems and minimum phase against the oracles and SciPy."""

import numpy as np
import pytest
import scipy.linalg

from synthesis import array_toeplitz, toeplitz
from tests.oracles import minimum_phase

N = 256
FREQUENCY = np.arange(4 * N + 1) / (4 * N)
SYMBOL = 1e-3 + np.exp(-6 * FREQUENCY) * (1.1 + np.cos(9 * np.pi * FREQUENCY))
RHS = np.random.default_rng(3).standard_normal(N)


def test_minimum_phase_is_the_oracles() -> None:
    log_magnitude = 0.5 * np.log(SYMBOL)
    found = array_toeplitz.minimum_phase_response(log_magnitude)
    np.testing.assert_allclose(found, minimum_phase.response(log_magnitude), atol=1e-12)


def test_the_product_is_the_matrix() -> None:
    column = np.fft.irfft(SYMBOL)[:N]
    dense = scipy.linalg.toeplitz(column)
    np.testing.assert_allclose(array_toeplitz.SymmetricToeplitz(column) @ RHS, dense @ RHS, atol=1e-12)


@pytest.mark.parametrize("n_iterations", [1, 3, 30])
def test_iterations_approach_the_direct_solution(n_iterations: int) -> None:
    """A condition of 1e3: the preconditioner leaves about a tenth in each of the first iterations."""
    direct = scipy.linalg.solve_toeplitz(np.fft.irfft(SYMBOL)[:N], RHS)
    found = array_toeplitz.solve_toeplitz(SYMBOL, RHS, n_iterations)
    bound = {1: 0.6, 3: 0.1, 30: 1e-8}[n_iterations]
    assert np.linalg.norm(found - direct) < bound * np.linalg.norm(direct)


def test_the_taper_is_the_one_of_the_tensors() -> None:
    assert array_toeplitz.TAPER == toeplitz.TAPER

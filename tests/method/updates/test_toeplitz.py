"""Conjugate gradients on a batch: an item that has converged, or whose matrix is indefinite, stops alone."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from prime_anc.method.updates.toeplitz import Solution, conjugate_gradients


@dataclass(frozen=True)
class Dense:
    """A batch of dense matrices [batch, n, n] with the operators' `@`."""

    matrix: Tensor

    def __matmul__(self, vector: Tensor) -> Tensor:
        return (self.matrix @ vector[..., None])[..., 0]


def definite(n: int, condition: float) -> Tensor:
    """Random symmetric matrices with eigenvalues from 1 to `condition`, evenly in their logarithm."""
    q = torch.linalg.qr(torch.randn(1, n, n, dtype=torch.float64))[0]
    return (q * torch.logspace(0, np.log10(condition), n, dtype=torch.float64)) @ q.mT


def test_item_that_has_converged_keeps_value() -> None:
    # Item 0 is solved by one iteration (identity); item 1 needs many.
    matrix = torch.stack([torch.eye(32, dtype=torch.float64), definite(32, 1e3)[0]])
    rhs = torch.randn(2, 32, dtype=torch.float64)
    found = conjugate_gradients(Dense(matrix), rhs, n_iterations=16)
    assert torch.equal(found.value[0], rhs[0])
    assert found.n_iterations.tolist() == [1, 16]
    alone = conjugate_gradients(Dense(matrix[1:]), rhs[1:], n_iterations=16)
    # Batched products round differently; 16 iterations amplify it (measured 2e-9).
    torch.testing.assert_close(found.value[1:], alone.value, rtol=0, atol=1e-7)


def late_failure(n: int = 24) -> tuple[Tensor, Tensor]:
    """A matrix with one small negative eigenvalue and a right-hand side that hardly shows it: [1, n, n], [1, n]."""
    q = torch.linalg.qr(torch.randn(1, n, n, dtype=torch.float64))[0]
    eigenvalues = torch.linspace(1, 2, n, dtype=torch.float64)
    eigenvalues[0] = -0.5
    rhs = (q @ torch.ones(n, dtype=torch.float64).index_fill(0, torch.tensor(0), 1e-3)[:, None])[..., 0]
    return (q * eigenvalues) @ q.mT, rhs


@pytest.mark.parametrize("which", ["operator", "preconditioner"])
def test_indefinite_matrix_stops_item(which: str) -> None:
    indefinite, hidden = late_failure()
    good, unit = definite(24, 50.0), torch.eye(24, dtype=torch.float64)[None]
    rhs = torch.cat((hidden, torch.randn(1, 24, dtype=torch.float64)))
    suspect, sound = Dense(torch.cat((indefinite, good))), Dense(unit)
    operator, preconditioner = (suspect, sound) if which == "operator" else (sound, suspect)

    def after(n_iterations: int) -> Solution:
        return conjugate_gradients(operator, rhs, preconditioner, n_iterations=n_iterations, tolerance=1e-14)

    found = after(20)
    applied = int(found.n_iterations[0])
    assert 1 <= applied < found.n_iterations[1].item()
    # It keeps what it had when it stopped, with that value's residual; the item beside it goes on.
    assert torch.equal(found.value[0], after(applied).value[0])
    true = rhs - operator @ found.value
    torch.testing.assert_close(found.residual, true.norm(dim=-1) / rhs.norm(dim=-1), rtol=1e-6, atol=1e-12)
    assert found.residual[1].item() < 1e-3

"""Preconditioned conjugate gradients over anything with `@` (Hestenes & Stiefel 1952; Saad 2003, alg. 9.1)."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class LinearOperator(Protocol):
    """A symmetric positive-definite matrix, dense or implicit, one for each item of the batch."""

    def __matmul__(self, vector: Tensor) -> Tensor:
        """The product with real vectors [batch, n]."""
        ...


@dataclass(frozen=True)
class Solution:
    """value: [batch, n]. residual: |b - A x| / |b|, [batch]. n_iterations: those that changed the item, [batch]."""

    value: Tensor
    residual: Tensor
    n_iterations: Tensor


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum(-1, keepdim=True)


def conjugate_gradients(
    operator: LinearOperator,
    rhs: Tensor,
    preconditioner: LinearOperator | None = None,
    *,
    n_iterations: int = 16,
    tolerance: float = 1e-6,
) -> Solution:
    """Solve A x = b from x = 0 for real b [batch, n].

    The number of iterations is fixed and nothing is read back, so that a CUDA graph can record the solve and
    autograd differentiate it. An item whose relative residual has reached `tolerance`, or whose operator or
    preconditioner turns out not to be positive definite, keeps its value. The residual returned is the recursion's,
    which equals b - A x up to rounding.
    """
    tiny = torch.finfo(rhs.dtype).tiny
    threshold = tolerance**2 * _dot(rhs, rhs)
    value, residual = torch.zeros_like(rhs), rhs
    direction, previous = torch.zeros_like(rhs), torch.ones_like(threshold)
    running = torch.ones_like(threshold, dtype=torch.bool)
    count = torch.zeros_like(threshold, dtype=torch.int64)
    for _ in range(n_iterations):
        preconditioned = residual if preconditioner is None else preconditioner @ residual
        energy = _dot(residual, preconditioned)
        direction = preconditioned + energy / previous * direction
        product = operator @ direction
        curvature = _dot(direction, product)
        running = running & (_dot(residual, residual) > threshold) & (energy > tiny) & (curvature > tiny)
        # The divisors of stopped items are replaced too, since derivatives pass through both branches of `where`.
        step = torch.where(running, energy, 0.0) / torch.where(running, curvature, 1.0)
        value = value + step * direction
        residual = residual - step * product
        # Without this a stopped item's direction would grow by its energy at each iteration.
        previous = torch.where(running, energy, torch.inf)
        count = count + running
    norm = _dot(rhs, rhs).clamp_min(tiny)
    return Solution(value, (_dot(residual, residual) / norm).sqrt()[..., 0], count[..., 0])

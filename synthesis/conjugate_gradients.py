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
    reorthogonalise: bool = False,
) -> Solution:
    """Solve A x = b from x = 0 for real b [batch, n].

    The schedule is fixed, so that it can be recorded once and replayed: an item whose relative residual has
    reached `tolerance` keeps its value through the remaining iterations, and nothing is read back to decide.
    The residual returned is the recursion's, which equals b - A x up to rounding.

    reorthogonalise: the one departure from the textbook. Each residual is made orthogonal to all earlier
    preconditioned ones, as it would be without rounding (Parlett 1998, ch. 13, for Lanczos). On badly
    conditioned systems the plain recursion amplifies rounding until its iterates depend on precision and batch
    size; this way float32 follows float64, for two small products an iteration.
    """
    tiny = torch.finfo(rhs.dtype).tiny
    value = torch.zeros_like(rhs)
    residual = rhs
    target = tolerance**2 * _dot(rhs, rhs)
    direction = torch.zeros_like(rhs)
    previous = torch.ones_like(target)
    count = torch.zeros_like(target, dtype=torch.int64)
    residuals: list[Tensor] = []
    images: list[Tensor] = []
    for _ in range(n_iterations):
        running = _dot(residual, residual) > target
        preconditioned = residual if preconditioner is None else preconditioner @ residual
        energy = _dot(residual, preconditioned)
        direction = preconditioned + (energy / previous) * direction
        product = operator @ direction
        curvature = _dot(direction, product)
        # Rounding may leave no positive curvature in an exhausted direction: such an item stays as it is.
        step = torch.where(running & (curvature > tiny), energy / curvature.clamp_min(tiny), 0.0)
        value = value + step * direction
        updated = residual - step * product
        if reorthogonalise:
            unit = energy.clamp_min(tiny).rsqrt()
            residuals.append(unit * residual)
            images.append(unit * preconditioned)
            overlap = torch.stack(images, -2) @ updated.unsqueeze(-1)
            updated = updated - (overlap.mT @ torch.stack(residuals, -2)).squeeze(-2)
        residual = torch.where(running, updated, residual)
        count = count + (step != 0)
        previous = energy.clamp_min(tiny)
    norm = _dot(rhs, rhs).clamp_min(tiny)
    return Solution(value, (_dot(residual, residual) / norm).sqrt()[..., 0], count[..., 0])

"""Preconditioned conjugate gradients over anything with `@` (Hestenes & Stiefel 1952; Saad 2003, alg. 9.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from array_api_compat import array_namespace

from synthesis.arrays import Array


class LinearOperator(Protocol):
    """A symmetric positive-definite matrix, dense or implicit, one for each item of the batch."""

    def __matmul__(self, vector: Array) -> Array:
        """Multiply real vectors [..., n]."""
        ...


@dataclass(frozen=True)
class Solution:
    """Solution of linear systems.

    Attributes
    ----------
    value
        [..., n].
    residual
        |b - A x| / |b|, [...].
    n_iterations
        Iterations that changed the item, [...].
    """

    value: Array
    residual: Array
    n_iterations: Array


def _dot(a: Array, b: Array) -> Array:
    return array_namespace(a).sum(a * b, axis=-1, keepdims=True)


def conjugate_gradients(
    operator: LinearOperator,
    rhs: Array,
    preconditioner: LinearOperator | None = None,
    *,
    n_iterations: int = 16,
    tolerance: float = 1e-6,
) -> Solution:
    """Solve A x = b from x = 0 for real b [..., n].

    The number of iterations is fixed and nothing is read back, so that a CUDA graph can record the solve and
    autograd differentiate it. An item whose relative residual has reached `tolerance`, or whose operator or
    preconditioner turns out not to be positive definite, keeps its value. The residual returned is the recursion's,
    which equals b - A x up to rounding.
    """
    xp = array_namespace(rhs)
    tiny = float(xp.finfo(rhs.dtype).smallest_normal)
    threshold = tolerance**2 * _dot(rhs, rhs)
    none, one, endless = xp.zeros_like(threshold), xp.ones_like(threshold), xp.full_like(threshold, float("inf"))
    value, residual, direction, previous = xp.zeros_like(rhs), rhs, xp.zeros_like(rhs), one
    running = xp.ones_like(threshold, dtype=xp.bool)
    count = xp.zeros_like(threshold, dtype=xp.int64)
    for _ in range(n_iterations):
        preconditioned = residual if preconditioner is None else preconditioner @ residual
        energy = _dot(residual, preconditioned)
        direction = preconditioned + energy / previous * direction
        product = operator @ direction
        curvature = _dot(direction, product)
        running = running & (_dot(residual, residual) > threshold) & (energy > tiny) & (curvature > tiny)
        # The divisors of stopped items are replaced too, since derivatives pass through both branches of `where`.
        step = xp.where(running, energy, none) / xp.where(running, curvature, one)
        value = value + step * direction
        residual = residual - step * product
        # Without this a stopped item's direction would grow by its energy at each iteration.
        previous = xp.where(running, energy, endless)
        count = count + xp.astype(running, xp.int64)
    norm = xp.clip(_dot(rhs, rhs), min=tiny)
    return Solution(value, xp.sqrt(_dot(residual, residual) / norm)[..., 0], count[..., 0])

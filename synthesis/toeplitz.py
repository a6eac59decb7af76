"""Symmetric Toeplitz matrices and their approximate inverses, as operators with `@`, and their linear systems.

Conjugate gradients: Hestenes & Stiefel 1952; Saad 2003, alg. 9.1.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from array_api_compat import array_namespace, device
from numpy.typing import NDArray

from synthesis.arrays import Array
from synthesis.minimum_phase import minimum_phase_response

# Nepers by which the inverse's generating polynomial is damped over its length; see `GohbergSemencul`.
TAPER = 4.0


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


class SymmetricToeplitz:
    """T[m, n] = t[|m - n|], applied through a circulant of twice the size: two 2n-point transforms."""

    def __init__(self, first_column: Array) -> None:
        """Prepare the operator; first_column: real [..., n]."""
        self.first_column = first_column
        self._xp = xp = array_namespace(first_column)
        mirrored = xp.flip(first_column[..., 1:], axis=-1)
        embedding = xp.concat((first_column, xp.zeros_like(first_column[..., :1]), mirrored), axis=-1)
        self._n = first_column.shape[-1]
        # The embedding is even, so its transform is real; dropping the rounding keeps T exactly symmetric.
        self._spectrum = xp.fft.rfft(embedding).real

    def __matmul__(self, vector: Array) -> Array:
        """Return T v for real vectors [..., n]."""
        fft, n = self._xp.fft, self._n
        return fft.irfft(self._spectrum * fft.rfft(vector, n=2 * n), n=2 * n)[..., :n]


class GohbergSemencul:
    """Approximate inverse of a symmetric Toeplitz matrix, from its symbol: six 2n-point transforms a product.

    The inverse of T is (L(a) L(a)^T - L(b) L(b)^T) / a_0, L(a) lower triangular Toeplitz with first column a, the
    solution of T a = e_0, and b = (0, a[n-1], ..., a[1]) (Gohberg & Semencul 1972). Without the finite end, a
    would be the impulse response of 1 / F, F the minimum-phase factor of the symbol |F|^2 = f, over F's first
    sample. Cut after n samples it is close to the true one, but its zeros may leave the unit circle, and with them
    goes the positive definiteness that conjugate gradients ask for. a[k] e^(-taper k / n) moves all zeros inwards
    by the same factor. Measured on 30 ears, one Gauss-Newton update from two starts: no indefinite case at a taper
    of 2, several at 1; four iterations at 4 end at a lower objective than 16 with Strang's circulant.
    """

    def __init__(self, symbol: Array, n: int, taper: float = TAPER) -> None:
        """Prepare the operator.

        Parameters
        ----------
        symbol
            Real, positive, one-sided, [..., n_bins], of at least 2n points.
        n
            Size of the matrix.
        taper
            Nepers, more for a steeper symbol.
        """
        self._xp = xp = array_namespace(symbol)
        polynomial = generating_polynomial(symbol, n, taper)
        self._n = n
        # 1 / F holds a[k] / sqrt(a[0]), so that no division is left. b is a reversed, so its spectrum needs no
        # transform: B[k] = (-1)^k (conj A[k] - a[0]).
        self._forward = xp.fft.rfft(polynomial, n=2 * n)
        self._backward = xp.conj(self._forward) - polynomial[..., :1]
        self._backward[..., 1::2] *= -1

    def __matmul__(self, vector: Array) -> Array:
        """Return about T^-1 v for real vectors [..., n]."""
        xp, n = self._xp, self._n
        spectrum = xp.fft.rfft(vector, n=2 * n)
        # L^T is a correlation, L a convolution; in between, what falls outside the n samples is dropped.
        both = xp.stack((xp.conj(self._forward) * spectrum, xp.conj(self._backward) * spectrum))
        correlations = xp.fft.irfft(both, n=2 * n)[..., :n]
        forward, backward = xp.fft.rfft(correlations, n=2 * n)
        return xp.fft.irfft(self._forward * forward - self._backward * backward, n=2 * n)[..., :n]


def generating_polynomial(symbol: Array, n: int, taper: float = TAPER) -> Array:
    """Return a[k] e^(-taper k / n) / sqrt(a[0]) of `GohbergSemencul`, real [..., n]."""
    xp = array_namespace(symbol)
    decay = xp.exp(xp.arange(n, dtype=symbol.dtype, device=device(symbol)) * (-taper / n))
    return xp.fft.irfft(minimum_phase_response(-0.5 * xp.log(symbol)))[..., :n] * decay


def solve_toeplitz(
    symbol: Array,
    matched: Array,
    n: int,
    *,
    n_iterations: int,
    tolerance: float = 1e-6,
    preconditioned: bool = True,
) -> Solution:
    """Solve T x = b by conjugate gradients, T and b given by their spectra.

    Both are the first n samples of the inverse transforms, T's of its first column.

    Parameters
    ----------
    symbol
        Of T: real, positive, one-sided, [..., n_bins], of at least 2n points.
    matched
        Of b: complex [..., n_bins].
    n
        Size of the system.
    n_iterations, tolerance
        As for `conjugate_gradients`.
    preconditioned
        By `GohbergSemencul`.
    """
    fft = array_namespace(symbol, matched).fft
    return conjugate_gradients(
        SymmetricToeplitz(fft.irfft(symbol)[..., :n]),
        fft.irfft(matched)[..., :n],
        GohbergSemencul(symbol, n) if preconditioned else None,
        n_iterations=n_iterations,
        tolerance=tolerance,
    )


def solve_directly(symbol: Array, matched: Array, n: int) -> Array:
    """Solve T x = b as `solve_toeplitz` does, by Levinson's recursion in float64 on the host: [..., n].

    A system that has no solution is answered by NaN.
    """
    xp = array_namespace(symbol, matched)
    columns = np.fft.irfft(_on_host(symbol), axis=-1)[..., :n]
    sides = np.fft.irfft(_on_host(matched), axis=-1)[..., :n]
    from scipy.linalg import solve_toeplitz as levinson  # the service starts without SciPy

    solved = np.full(sides.shape, np.nan)
    for place in np.ndindex(sides.shape[:-1]):
        with suppress(ValueError, np.linalg.LinAlgError):
            solved[place] = levinson(columns[place], sides[place])
    return xp.asarray(solved, device=device(symbol))


def _on_host(values: Array) -> NDArray[Any]:
    """As NumPy's, in double precision."""
    found = np.asarray(values.cpu() if hasattr(values, "cpu") else values)
    return found.astype(np.result_type(found, np.float64))

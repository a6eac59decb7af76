"""Symmetric Toeplitz systems of one size (`synthesis.toeplitz`, `synthesis.conjugate_gradients`)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from synthesis.conventions import N_TAPS
from synthesis.cpu.minimum_phase import MinimumPhase
from synthesis.cpu.transforms import Real, RealTransform
from synthesis.toeplitz import TAPER

_TINY = float(np.finfo(np.float32).tiny)


class Solved(NamedTuple):
    """value: [2048]. residual: |b - A x| / |b|."""

    value: Real
    residual: float


class ToeplitzSolver:
    """Preconditioned conjugate gradients for matrices that are given by their symbol. For one thread."""

    def __init__(self, transform: RealTransform) -> None:
        """transform: of the grid that symbols come on."""
        self._grid = transform
        self._minimum_phase = MinimumPhase(transform)
        self._double = RealTransform(2 * N_TAPS)
        self._other = RealTransform(2 * N_TAPS)
        self._embedding = np.zeros(2 * N_TAPS, np.float32)
        # What spectra are multiplied with holds the 1 / n of the transform back, a power of two.
        self._scale = np.float32(1 / self._double.n)
        self._decay = np.exp(np.arange(N_TAPS) * (-TAPER / N_TAPS)).astype(np.float32) * self._scale
        self._matrix = np.empty(N_TAPS + 1, np.float32)
        # Spectra of the two generating vectors of Gohberg and Semencul's formula, and their conjugates.
        self._forward, self._forward_conj, self._backward, self._backward_conj = np.empty(
            (4, N_TAPS + 1), np.complex64
        )

    def solve(self, symbol: Real, rhs: Real, *, n_iterations: int, tolerance: float = 1e-6) -> Solved:
        """The vector x with T x = rhs, T[m, n] = (inverse transform of the symbol)[|m - n|].

        symbol: real, positive, [n_bins]. rhs: [2048], kept as it is.
        """
        self._set_matrix(symbol)
        self._set_preconditioner(symbol)
        value, residual = np.zeros(N_TAPS, np.float32), rhs.copy()
        direction, previous = np.zeros(N_TAPS, np.float32), 1.0
        norm = float(rhs @ rhs)
        remaining = norm
        for _ in range(n_iterations):
            if remaining <= tolerance**2 * norm:
                break
            preconditioned = self._precondition(residual)
            energy = float(residual @ preconditioned)
            direction *= np.float32(energy / previous)
            direction += preconditioned
            product = self._multiply(direction)
            curvature = float(direction @ product)
            # An operator or preconditioner that shows itself not to be positive ends the iteration; where either is
            # not a number, the solution is none either.
            if not (energy > _TINY and curvature > _TINY):
                if math.isnan(energy) or math.isnan(curvature):
                    value.fill(np.nan)
                break
            step = np.float32(energy / curvature)
            value += step * direction
            product *= step
            residual -= product
            remaining = float(residual @ residual)
            previous = energy
        return Solved(value, float(np.sqrt(remaining / max(norm, _TINY))))

    def _set_matrix(self, symbol: Real) -> None:
        """Eigenvalues of the circulant of twice the size that T is a corner of."""
        column = self._grid.inverse(symbol)[:N_TAPS]
        self._embedding[:N_TAPS] = column
        self._embedding[N_TAPS + 1 :] = column[:0:-1]
        np.multiply(self._double.forward(self._embedding).real, self._scale, out=self._matrix)

    def _set_preconditioner(self, symbol: Real) -> None:
        log_gain = np.log(symbol)
        log_gain *= np.float32(-0.5)
        phase = self._minimum_phase.phase(log_gain)
        gain = np.exp(log_gain)
        inverse_factor = np.empty(len(gain), np.complex64)
        np.multiply(gain, np.cos(phase), out=inverse_factor.real)
        np.multiply(gain, np.sin(phase), out=inverse_factor.imag)
        polynomial = self._grid.inverse(inverse_factor)[:N_TAPS] * self._decay
        np.copyto(self._forward, self._double.forward(polynomial))
        np.conj(self._forward, out=self._forward_conj)
        np.subtract(self._forward_conj, polynomial[0], out=self._backward)
        self._backward[1::2] *= -1
        np.conj(self._backward, out=self._backward_conj)

    def _multiply(self, vector: Real) -> Real:
        spectrum = self._double.forward(vector)
        spectrum *= self._matrix
        return self._double.unscaled_inverse()[:N_TAPS]

    def _precondition(self, vector: Real) -> Real:
        # L^T is a correlation, L a convolution; in between, what falls outside the samples is dropped.
        spectrum = self._double.forward(vector)
        np.multiply(spectrum, self._forward_conj, out=self._other.spectrum)
        spectrum *= self._backward_conj
        forward = self._other.forward(self._other.unscaled_inverse()[:N_TAPS])
        backward = self._double.forward(self._double.unscaled_inverse()[:N_TAPS])
        forward *= self._forward
        backward *= self._backward
        np.subtract(forward, backward, out=backward)
        return self._double.unscaled_inverse()[:N_TAPS]

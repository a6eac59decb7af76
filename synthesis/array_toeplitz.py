"""Symmetric Toeplitz systems, their preconditioner and minimum-phase responses on NumPy arrays, for one ear.

The same operators as in `toeplitz`, `conjugate_gradients` and `minimum_phase`, for what all backends share and a
service without torch needs; float64.
"""

from __future__ import annotations

import numpy as np
from numpy.fft import irfft, rfft
from numpy.typing import NDArray

TAPER = 4.0
"""Of `toeplitz.GohbergSemencul`."""

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]


def minimum_phase_response(log_magnitude: Real) -> Complex:
    """Spectrum with the magnitude exp(log_magnitude) and minimum phase, [n_bins]; log_magnitude: natural."""
    cepstrum = irfft(log_magnitude)
    half = len(cepstrum) // 2
    folded = np.concatenate((cepstrum[:1], 2 * cepstrum[1:half], cepstrum[half : half + 1]))
    return np.exp(rfft(folded, len(cepstrum)))


class SymmetricToeplitz:
    """T[m, n] = t[|m - n|], applied through a circulant of twice the size."""

    def __init__(self, first_column: Real) -> None:
        """first_column: [n]."""
        self._n = len(first_column)
        self._spectrum = rfft(np.concatenate((first_column, [0.0], first_column[:0:-1]))).real

    def __matmul__(self, vector: Real) -> Real:
        return irfft(self._spectrum * rfft(vector, 2 * self._n), 2 * self._n)[: self._n]


class GohbergSemencul:
    """About the inverse of the Toeplitz matrix of a symbol; see `toeplitz.GohbergSemencul`."""

    def __init__(self, symbol: Real, n: int) -> None:
        """symbol: positive, one-sided, of at least 2n points. n: the matrix's size."""
        polynomial = irfft(minimum_phase_response(-0.5 * np.log(symbol)))[:n] * np.exp(-TAPER / n * np.arange(n))
        self._n = n
        self._forward = rfft(polynomial, 2 * n)
        self._backward = self._forward.conj() - polynomial[0]
        self._backward[1::2] *= -1

    def __matmul__(self, vector: Real) -> Real:
        n = self._n
        spectrum = rfft(vector, 2 * n)
        correlations = irfft(np.stack((self._forward.conj() * spectrum, self._backward.conj() * spectrum)), 2 * n)
        forward, backward = rfft(correlations[:, :n], 2 * n)
        return irfft(self._forward * forward - self._backward * backward, 2 * n)[:n]


def solve_toeplitz(symbol: Real, rhs: Real, n_iterations: int) -> Real:
    """About T^-1 b by conjugate gradients from zero, [n]. symbol: T's, real, positive, one-sided, of at least 2n
    points; rhs: b, [n]. Ends early where rounding leaves no positive energy."""
    n = len(rhs)
    matrix, inverse = SymmetricToeplitz(irfft(symbol)[:n]), GohbergSemencul(symbol, n)
    value, residual = np.zeros(n), rhs
    direction, previous = np.zeros(n), 1.0
    for _ in range(n_iterations):
        preconditioned = inverse @ residual
        energy = float(residual @ preconditioned)
        direction = preconditioned + energy / previous * direction
        product = matrix @ direction
        curvature = float(direction @ product)
        if not (energy > 0 and curvature > 0):
            break
        step = energy / curvature
        value = value + step * direction
        residual = residual - step * product
        previous = energy
    return value

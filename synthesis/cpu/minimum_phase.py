"""Minimum-phase partner of a log magnitude, over kept buffers (`synthesis.minimum_phase`)."""

from __future__ import annotations

import numpy as np

from synthesis.cpu.transforms import Complex, Real, RealTransform


class MinimumPhase:
    """The phase of a minimum-phase response on one grid."""

    def __init__(self, transform: RealTransform) -> None:
        """transform: of the grid; shared with whoever uses it between calls."""
        self._transform = transform
        half = transform.n // 2
        self._half = half
        # c[0] and c[half] belong to both halves of the cepstrum; the sine series of the rest is the phase.
        self._folded = np.zeros(transform.n, np.float32)

    def phase(self, log_magnitude: Real) -> Real:
        """Radians per bin; log_magnitude: natural, [n_bins]."""
        cepstrum = self._transform.inverse(log_magnitude)
        np.multiply(cepstrum[1 : self._half], 2, out=self._folded[1 : self._half])
        return self._transform.forward(self._folded).imag


def unit(phase: Real) -> Complex:
    """exp(i phase)."""
    turned: Complex = np.empty(phase.shape, np.complex64)
    np.cos(phase, out=turned.real)
    np.sin(phase, out=turned.imag)
    return turned

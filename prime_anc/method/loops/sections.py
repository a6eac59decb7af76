"""Second-order sections: a cascade at any sample rate, and its response."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.bands import BINS_HZ
from prime_anc.method.conventions import N_BINS

Complex = NDArray[np.complex128]

# Frequencies evaluated at once: memory for all bins of all sections takes an allocator longer than their arithmetic.
AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class Sections:
    """A cascade of second-order sections."""

    # B0, b1, b2, 1, a1, a2 per section, float64 [n, 6] (SciPy's `sos`).
    rows: NDArray[np.float64]
    sample_rate_hz: float

    def response(self, frequency_hz: NDArray[np.floating]) -> Complex:
        """Evaluate W at frequencies up to half the sample rate, complex [n]."""
        found = []
        for part in np.split(frequency_hz, range(AT_ONCE, len(frequency_hz), AT_ONCE)):
            numerators, denominators = _polynomials(self.rows, part, self.sample_rate_hz)
            found.append(numerators.prod(0) / denominators.prod(0))
        return np.concatenate(found)

    def at_design_rate(self) -> Complex:
        """Evaluate W on the design grid: zero above half the sample rate, complex [16385]."""
        audible = self.sample_rate_hz / 2 >= BINS_HZ
        response = np.zeros(N_BINS, complex)
        response[audible] = self.response(BINS_HZ[audible])
        return response

    def scaled(self, gain: float) -> Sections:
        """Multiply the cascade by a gain."""
        rows = self.rows.copy()
        rows[0, :3] *= gain
        return Sections(rows, self.sample_rate_hz)

    def in_single_precision(self) -> Sections:
        """Round the coefficients to float32."""
        return Sections(self.rows.astype(np.float32).astype(np.float64), self.sample_rate_hz)

    @property
    def is_stable(self) -> bool:
        """Return whether all poles lie inside the unit circle."""
        a1, a2 = self.rows[:, 4], self.rows[:, 5]
        return bool(((np.abs(a2) < 1) & (np.abs(a1) < 1 + a2)).all())


def section_responses(
    rows: NDArray[np.float64], frequency_hz: NDArray[np.floating], sample_rate_hz: float
) -> Complex:
    """Evaluate the response of each section, complex [n_sections, n_frequencies]."""
    numerators, denominators = _polynomials(rows, frequency_hz, sample_rate_hz)
    responses: Complex = numerators / denominators
    return responses


def _polynomials(
    rows: NDArray[np.float64], frequency_hz: NDArray[np.floating], sample_rate_hz: float
) -> tuple[Complex, Complex]:
    delay = np.exp(-2j * np.pi * np.asarray(frequency_hz, np.float64) / sample_rate_hz)
    powers = np.stack([np.ones_like(delay), delay, delay**2])
    return rows[:, :3] @ powers, rows[:, 3:] @ powers

"""Sums over contiguous bins: bands (`octave_bands.band_matrix`) and coarser grids (`spectra.collected`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synthesis.cpu.transforms import Real
from synthesis.octave_bands import band_matrix


class BandSums:
    """Adjacent bands on one grid."""

    def __init__(self, bands: tuple[int, ...], n_fft: int) -> None:
        """bands: numbers of adjacent bands, ascending."""
        membership = band_matrix(bands, n_fft).numpy()
        self.counts = membership.sum(0).astype(np.int64)
        first = int(np.argmax(membership.any(1)))
        self.bins = slice(first, first + int(self.counts.sum()))
        starts = np.cumsum(self.counts) - self.counts
        self._filled = self.counts > 0
        self._starts = starts[self._filled]

    def sums(self, power: Real) -> NDArray[np.float64]:
        """Power in each band, [n_bands]; 0 where a band holds no bin."""
        found = np.zeros(len(self.counts))
        found[self._filled] = np.add.reduceat(power[self.bins], self._starts)
        return found

    def spread(self, values: NDArray[np.float64]) -> Real:
        """Each band's value at its bins: [length of `bins`]."""
        return np.repeat(values.astype(np.float32), self.counts)


def collected(power: Real, stride: int) -> Real:
    """Power per bin on a grid coarser by the even number `stride`; a bin half-way between two is shared."""
    half = stride // 2
    found = power[::stride].copy()
    for offset in range(1, half + 1):
        share = np.float32(0.5 if offset == half else 1)
        found[:-1] += share * power[offset::stride]
        found[1:] += share * power[stride - offset :: stride]
    return found

"""Twin of spectra on coarser grids: where each fine bin's power goes, one bin after the other."""

import numpy as np


def collected(power: np.ndarray, stride: int) -> np.ndarray:
    """Move the bins' power to the nearest coarse bin, in halves if two are equally near."""
    found = np.zeros((len(power) - 1) // stride + 1)
    for k, value in enumerate(power):
        distance = np.abs(np.arange(len(found)) * stride - k)
        nearest = np.flatnonzero(distance == distance.min())
        found[nearest] += value / len(nearest)
    return found

"""From the grid of a request to the design grid."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from service.designs import Float32, Path
from synthesis.conventions import N_BINS
from synthesis.cpu.transforms import RealTransform
from synthesis.errors import InvalidPaths
from synthesis.paths import resample_spectrum

Float64 = NDArray[np.float64]


def path_spectrum(path: Path, name: str, transform: RealTransform) -> Tensor:
    """A path as a spectrum on the design grid, complex64 [16385], valid until the next call.

    An impulse response is transformed; a spectrum of another grid goes through its impulse response. transform: of
    the design grid. Raises InvalidPaths (field `name`) where that would cut off more than -40 dB of its energy.
    """
    if not np.iscomplexobj(path):
        return torch.from_numpy(transform.forward(path.real))
    try:
        return resample_spectrum(as_tensor(path))
    except InvalidPaths as error:
        raise InvalidPaths(str(error).replace("spectrum:", f"{name}:", 1), name) from error


def coherence_on_design_grid(coherence: Float32) -> Tensor:
    """Coherence [bins of any grid] interpolated linearly over frequency, float32 [16385]."""
    if len(coherence) == N_BINS:
        return as_tensor(coherence)
    found = np.interp(np.linspace(0, 1, N_BINS), np.linspace(0, 1, len(coherence)), coherence)
    return torch.from_numpy(found.astype(np.float32))


def psd_on_design_grid(psd: Float32) -> Tensor:
    """Mean square per bin [bins of any grid] -> the same noise per bin of the design grid, float32 [16385].

    Each bin spreads its power evenly over its width (half a width at 0 Hz and at Nyquist), and the design grid's
    bins collect what falls into theirs: no power is lost, made or negative, and white noise stays white.
    """
    if len(psd) == N_BINS:
        return as_tensor(psd)
    cumulative = np.concatenate(([0.0], np.cumsum(psd, dtype=np.float64)))
    collected = np.diff(np.interp(_bin_edges(N_BINS), _bin_edges(len(psd)), cumulative))
    return torch.from_numpy(collected.astype(np.float32))


def _bin_edges(n_bins: int) -> Float64:
    """Edges of the bins of a one-sided spectrum, 0 to 1 from 0 Hz to Nyquist: [n_bins + 1]."""
    return np.clip((np.arange(n_bins + 1) - 0.5) / (n_bins - 1), 0, 1)


def as_tensor(values: NDArray[Any]) -> Tensor:
    """A tensor over the array's memory, or over a copy of it where that may not be written to."""
    return torch.from_numpy(values if values.flags.writeable else values.copy())

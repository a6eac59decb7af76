"""Small random cases: stable, causal paths on a reduced grid, dense enough to solve as matrices."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from prime_anc.method.paths import AcousticPaths

SMALL_N_FFT = 16_384  # 2.9 Hz apart: the coarsest power of two with a bin in each of the 31 bands
SMALL_N_TAPS = 48


@dataclass(frozen=True)
class Case:
    """A batch of paths as one-sided spectra, complex128 [batch, n_bins], and a reference spectrum [n_bins]."""

    primary: np.ndarray
    secondary: np.ndarray
    reference_psd: np.ndarray

    @property
    def n_bins(self) -> int:
        return self.primary.shape[-1]

    def paths(self, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> AcousticPaths:
        """Return the paths as the package's type."""
        both = AcousticPaths(torch.from_numpy(self.primary), torch.from_numpy(self.secondary))
        return both.to(dtype, device)

    def psd(self, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu") -> torch.Tensor:
        """The reference spectrum as a tensor."""
        return torch.from_numpy(self.reference_psd).to(device, dtype)


def decaying_noise(rng: np.random.Generator, n_cases: int, delay: int, length: int, decay: float) -> np.ndarray:
    """Impulse responses: `delay` zeros, a unit sample, then noise that falls by e every `decay` samples."""
    n = np.arange(length - delay)
    tail = rng.standard_normal((n_cases, length - delay)) * 0.3 * np.exp(-n / decay)
    tail[:, 0] = 1
    return np.pad(tail, ((0, 0), (delay, 0)))


def pink_psd(n_bins: int) -> np.ndarray:
    """Mean square per bin of a noise falling by 3 dB an octave above 20 Hz, RMS 0.05."""
    shape = 1 / np.maximum(np.linspace(0, 24_000, n_bins), 20.0)
    return 0.05**2 * shape / shape.sum()


def random_case(n_cases: int = 3, n_fft: int = SMALL_N_FFT, seed: int = 0) -> Case:
    """Random paths with a little more delay in the secondary than causal cancellation would like."""
    rng = np.random.default_rng(seed)
    primary = decaying_noise(rng, n_cases, delay=5, length=96, decay=18.0)
    secondary = 0.8 * decaying_noise(rng, n_cases, delay=3, length=64, decay=8.0)
    return Case(np.fft.rfft(primary, n_fft), np.fft.rfft(secondary, n_fft), pink_psd(n_fft // 2 + 1))


def _outside(hz: torch.Tensor) -> torch.Tensor:
    """1 but for a band."""
    return ~((hz > 900) & (hz < 2000))


def _tone(path: torch.Tensor, place: int) -> torch.Tensor:
    """One bin of a path."""
    return torch.where(torch.arange(path.shape[-1]) == place, path, 0)


# Paths that a careless inversion would divide by, or whose squares leave single precision: from P, S and frequency.
HOPELESS: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]] = {
    "primary without a band": lambda p, s, hz: (p * _outside(hz), s),
    "secondary without a band": lambda p, s, hz: (p, s * _outside(hz)),
    "both without a band": lambda p, s, hz: (p * _outside(hz), s * _outside(hz)),
    "both without bass": lambda p, s, hz: (p * (hz >= 120), s * (hz >= 120)),
    "secondary without treble": lambda p, s, hz: (p, s * (hz <= 8000)),
    "60 dB notch": lambda p, s, hz: (p, s * (1 - 0.999 * torch.exp(-(((hz - 700) / 20) ** 2)))),
    "one sample": lambda p, s, hz: (p, torch.ones_like(s)),
    "one late sample": lambda p, s, hz: (p, torch.exp(-2j * torch.pi * hz * 2000 / 48_000).expand_as(s)),
    "one tone": lambda p, s, hz: (_tone(p, 683), s),  # between the bins of every coarser grid
    "one tone on the coarse grid": lambda p, s, hz: (_tone(p, 684), s),
    "primary beyond every band": lambda p, s, hz: (p * (hz >= 22_500), s),
    "secondary beyond every band": lambda p, s, hz: (p, s * (hz >= 22_500)),
    "primary a millionth": lambda p, s, hz: (1e-6 * p, s),
    "secondary a millionth": lambda p, s, hz: (p, 1e-6 * s),
}


def hopeless(name: str, case: Case) -> AcousticPaths:
    """A design-grid case made into one of HOPELESS."""
    paths = case.paths()
    frequency_hz = torch.linspace(0, 24_000, paths.n_bins, dtype=torch.float64)
    return AcousticPaths(*HOPELESS[name](paths.primary, paths.secondary, frequency_hz))


def relative_error(found: torch.Tensor | np.ndarray, expected: torch.Tensor | np.ndarray) -> float:
    """Largest over the batch of |found - expected| / |expected|, Euclidean over the last axis."""
    found, expected = (
        item.detach().cpu().numpy() if isinstance(item, torch.Tensor) else item for item in (found, expected)
    )
    difference = np.linalg.norm(found.astype(expected.dtype) - expected, axis=-1)
    size = np.linalg.norm(expected, axis=-1)
    return float(np.max(np.where(difference == 0, 0, difference / np.where(size == 0, 1, size))))


def both(paths: AcousticPaths) -> tuple[torch.Tensor, torch.Tensor]:
    """Primary and secondary spectra."""
    return paths.primary, paths.secondary

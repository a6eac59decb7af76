"""Small random cases: stable, causal paths on a reduced grid, dense enough to solve as matrices."""

from dataclasses import dataclass

import numpy as np
import torch

from synthesis.conventions import DESIGN_N_FFT
from synthesis.paths import AcousticPaths
from synthesis.predict import band_sums, predict
from synthesis.types import Prediction

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


def predictions(
    paths: AcousticPaths,
    taps: torch.Tensor,
    reference_psd: torch.Tensor,
    coherence: torch.Tensor | None = None,
    learned: torch.Tensor | None = None,
) -> list[Prediction]:
    """Predictions of each of `taps`, from a coherence or `learn_uncertainty`; with neither, the paths are true."""
    is_true = coherence is None and learned is None
    sums = band_sums(paths.primary, paths.secondary, taps, reference_psd, coherence, is_true=is_true)
    expected = np.zeros((2, 31)) if learned is None else learned.double().numpy()
    found = [
        predict(item, expected, has_coherence=coherence is not None, is_true=is_true)
        for item in sums.double().numpy()
    ]
    assert all(isinstance(item, Prediction) for item in found)
    return found


def mean_reductions_db(found: list[Prediction]) -> np.ndarray:
    """Mean noise reduction of each prediction."""
    return np.array([item.mean_noise_reduction_db for item in found])


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


# Paths that a careless inversion would divide by, or whose squares leave single precision.
HOPELESS = (
    "primary without a band",
    "secondary without a band",
    "both without bass",
    "primary without treble",
    "secondary without treble",
    "60 dB notch",
    "one sample",
    "one late sample",
    "one tone",
    "one tone on the coarse grid",
    "primary beyond every band",
    "secondary beyond every band",
    "both a millionth",
    "both a millionth, secondary without a band",
    "primary a millionth",
    "secondary a millionth",
    "both a million",
    "both without a band",
)


def hopeless(name: str, case: Case) -> AcousticPaths:
    """A design-grid case made into one of HOPELESS."""
    paths = case.paths()
    primary, secondary = paths.primary.clone(), paths.secondary.clone()
    frequency = torch.linspace(0, 24_000, paths.n_bins, dtype=torch.float64)
    index = torch.arange(paths.n_bins)
    band = (frequency > 900) & (frequency < 2000)
    if name == "primary without a band":
        primary[:, band] = 0
    elif name.endswith("secondary without a band"):
        secondary[:, band] = 0
    elif name == "both without a band":
        primary[:, band] = 0
        secondary[:, band] = 0
    elif name == "both without bass":
        primary[:, frequency < 120] = 0
        secondary[:, frequency < 120] = 0
    elif name == "primary without treble":
        primary[:, frequency > 8000] = 0
    elif name == "secondary without treble":
        secondary[:, frequency > 8000] = 0
    elif name == "60 dB notch":
        secondary *= 1 - 0.999 * torch.exp(-(((frequency - 700) / 20) ** 2))
    elif name == "one sample":
        secondary = torch.ones_like(secondary)
    elif name == "one late sample":
        secondary = torch.exp(-2j * torch.pi * frequency * 2000 / 48_000)[None].expand_as(secondary)
    elif name == "one tone":  # between the bins of every coarser grid
        primary = torch.where(index == 683, primary, 0)
    elif name == "one tone on the coarse grid":
        primary = torch.where(index == 684, primary, 0)
    elif name == "primary beyond every band":
        primary[:, frequency < 22_500] = 0
    elif name == "secondary beyond every band":
        secondary[:, frequency < 22_500] = 0
    levels = {
        "both a millionth": (1e-6, 1e-6),
        "primary a millionth": (1e-6, 1.0),
        "secondary a millionth": (1.0, 1e-6),
    }
    levels |= {"both a millionth, secondary without a band": (1e-6, 1e-6), "both a million": (1e6, 1e6)}
    louder = levels.get(name, (1.0, 1.0))
    assert name in HOPELESS
    return AcousticPaths(louder[0] * primary, louder[1] * secondary)


def hopeless_paths() -> AcousticPaths:
    """One case of the design grid in each of these kinds, one after the other."""
    case = random_case(n_cases=1, n_fft=DESIGN_N_FFT, seed=11)
    each_kind = [hopeless(name, case) for name in HOPELESS]
    return AcousticPaths(
        torch.cat([item.primary for item in each_kind]), torch.cat([item.secondary for item in each_kind])
    )


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

"""Paths that come without their recordings, freed from bins that say nothing.

A calibration whose probe was silent somewhere, regularised by a share of the probe's maximum, leaves a path with
next to nothing there. Log magnitudes 100 dB down would then rule the generator's features, the updates' weights and
the ceilings. Such bins show themselves: they lie far below what the support's listeners have there. They are
replaced by what the support and the heard bins let expect (`path_prior.posterior`); all others stay as they are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from synthesis.conventions import DESIGN_N_FFT, N_BINS, SAMPLE_RATE_HZ
from synthesis.path_prior import PRIOR_BINS, PRIOR_WINDOW, PathDistribution, PathPrior, posterior, smoothed

Path = TypeVar("Path", bound=NDArray[np.generic])
Real = NDArray[np.floating]
Complex = NDArray[np.complexfloating]

UNHEARD = 3e-4
"""Of the power to be expected: -35 dB. At -30 dB a notch of a measured ear counts; at -40 dB single recordings lose
0.1 dB."""

MIN_WIDTH_BINS = 16
"""Of the coarse grid, 375 Hz: less is a notch. An ear with the earphone pressed to it has one of 190 Hz. Gaps of
single recordings are wider: between 190 and 750 Hz this width changes their mean noise reduction by 0.01 dB."""

COARSE = 2048
AUDIBLE_BINS = round(20_000 * COARSE / SAMPLE_RATE_HZ)
"""Converters' filters leave gaps above, which mislead nobody."""

_SMOOTHING = np.ones(5) / 5
LEVEL_BINS = np.unique(np.geomspace(100, 8000, 64) * COARSE / SAMPLE_RATE_HZ).astype(np.intp)
_TINY = float(np.finfo(np.float64).tiny)


@np.errstate(all="ignore")  # what is not finite is left for the backends to refuse
def fill_unheard(primary: Path, secondary: Path, prior: PathPrior) -> tuple[Path, Path]:
    """Both paths, the same arrays where nothing is missing.

    Each is an impulse response [1 to 32768] or a one-sided spectrum on the design grid [16385], and so is its
    answer; what is neither, or not finite, comes back as it is.
    """
    return _without_gaps(primary, prior.primary), _without_gaps(secondary, prior.secondary)


def _without_gaps(path: Path, distribution: PathDistribution) -> Path:
    is_one = len(path) == N_BINS if np.iscomplexobj(path) else 0 < len(path) <= DESIGN_N_FFT
    if path.ndim != 1 or not is_one:
        return path
    missing = _vanished(path, distribution)
    audible = missing[:AUDIBLE_BINS]
    if not audible.any() or np.convolve(audible, np.ones(MIN_WIDTH_BINS)).max() < MIN_WIDTH_BINS:
        return path
    return _filled(path, distribution, np.repeat(missing, PRIOR_WINDOW // COARSE)[:PRIOR_BINS])


def _vanished(path: Path, distribution: PathDistribution) -> NDArray[np.bool_]:
    """Where a path lies below UNHEARD of what is to be expected at its level, per bin of the coarse grid [1025]."""
    spectrum = _sampled(path, COARSE)
    power = np.convolve(spectrum.real**2 + spectrum.imag**2, _SMOOTHING, "same")
    ratio = power / expected_power(distribution)
    level = np.sort(ratio[LEVEL_BINS])[len(LEVEL_BINS) // 2]
    vanished: NDArray[np.bool_] = ratio < UNHEARD * level
    return vanished


@lru_cache(maxsize=32)
def expected_power(distribution: PathDistribution) -> Real:
    """Mean |.|^2 over the support, per bin of the coarse grid [1025]."""
    power = smoothed(distribution.mean.real**2 + distribution.mean.imag**2) + distribution.variance
    return np.maximum(power[:: PRIOR_WINDOW // COARSE], _TINY)


def _sampled(path: NDArray[np.generic], n_fft: int) -> Complex:
    """The path's spectrum at the bins of a coarser grid, from a response or a spectrum."""
    if np.iscomplexobj(path):
        spectrum: Complex = path.astype(np.complex128)[:: DESIGN_N_FFT // n_fft]
        return spectrum
    folded = np.zeros((-(-len(path) // n_fft), n_fft))
    folded.reshape(-1)[: len(path)] = path
    return np.fft.rfft(folded.sum(0))


def _filled(path: Path, distribution: PathDistribution, missing: NDArray[np.bool_]) -> Path:
    spectrum = _sampled(path, PRIOR_WINDOW)
    expected = posterior(distribution, spectrum, np.where(missing, np.inf, 0.0)).mean
    correction = np.fft.irfft(np.where(missing, expected - spectrum, 0.0))
    if np.iscomplexobj(path):
        half = PRIOR_WINDOW // 2
        circular = np.zeros(DESIGN_N_FFT)
        circular[:half], circular[-half:] = correction[:half], correction[half:]
        return (path.astype(np.complex128) + np.fft.rfft(circular)).astype(path.dtype)  # type: ignore[return-value]
    filled = path.astype(np.float64)
    n_samples = min(len(path), PRIOR_WINDOW)
    filled[:n_samples] += correction[:n_samples]
    return filled.astype(path.dtype)  # type: ignore[return-value]

"""Statistics of the support listeners' measured paths, with which faulty measurements are recognised.

Two paths are described by their traits: the complex mean of the spectrum over a few bands, as log magnitude and phase,

    t = (ln |s_b|, arg s_b, ln |p_c|, arg p_c),    s_b = mean of S(f) exp(2 pi i f d) over band b,    p_c of P(f),

d being the delay of the support's secondary paths. A complex mean suppresses most of the measurement noise. The primary
path has bands up to 355 Hz only: there it hardly differs between ears, above it depends on the direction of the sound.
The statistics are the traits' mean and covariance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.arrays import (
    Array,
    Complex,
    Real,
    array_namespace,
    squared_magnitude,
    unexplained_power,
)
from prime_anc.method.bands import AMP_BANDS, BINS_HZ, WIDE_BANDS, band_matrix, edges_hz
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS, SAMPLE_RATE_HZ
from prime_anc.method.errors import InvalidOption

# Octaves from 45 Hz to 5.6 kHz, then one-third octaves to 14 kHz.
SECONDARY_EDGES_HZ = tuple(edges_hz(n)[0] for n in (*range(17, 36, 3), 38, 39, 40, 41, 42))

# Octaves from 45 to 355 Hz.
PRIMARY_EDGES_HZ = tuple(edges_hz(n)[0] for n in (17, 20, 23, 26))

N_SECONDARY, N_PRIMARY = len(SECONDARY_EDGES_HZ) - 1, len(PRIMARY_EDGES_HZ) - 1
N_TRAITS = 2 * (N_SECONDARY + N_PRIMARY)
# Marks traits that are phases (rad), [28]; the others are natural logarithms of magnitudes.
IS_PHASE = np.repeat([False, True, False, True], [N_SECONDARY, N_SECONDARY, N_PRIMARY, N_PRIMARY])

# Rate of recordings taken for SAMPLE_RATE_HZ, recognised by the change of their traits.
OTHER_RATE_HZ = 44_100

# Prior standard deviation: 14 degrees and 3 dB, so that few ears cannot claim certainty.
_PRIOR_SD = np.where(IS_PHASE, 0.25, 0.35)

# Limit on a mean or a change: 870 dB, or sixteen turns.
_MAX_TRAIT = 100.0

# Least variance of any combination of traits; `_PRIOR_SD` alone leaves a thousand ears 6e-5.
_MIN_VARIANCE = 1e-9

# Longest responses whose traits come from a matrix product; longer ones are transformed.
_MAX_TAPS = 8192

# -60 dB: a smaller uncertainty is not credible.
SMALLEST_SHARE = 1e-6

_SMALLEST = 1e-30
_SCORED_HZ = (edges_hz(AMP_BANDS[0])[0], edges_hz(AMP_BANDS[-1])[1])


@dataclass(frozen=True)
class SupportStatistics:
    """Traits of `n_ears` support ears."""

    n_ears: int
    # Median onset of their secondary paths, d above.
    delay_samples: int
    # Mean of the traits, [28].
    mean: tuple[float, ...]
    # Lower triangle of the covariance, row by row, [406].
    covariance: tuple[float, ...]
    # Mean change of the traits for recordings at 44.1 kHz taken for 48 kHz, [28].
    rate_change: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check the lengths and ranges of all fields.

        Raises
        ------
        InvalidOption
            The statistics are unusable.
        """
        values = (*self.mean, *self.rate_change)
        checks = {
            "n_ears": 0 < self.n_ears <= 10**6,
            "delay_samples": 0 <= self.delay_samples < _MAX_TAPS,
            "mean": len(self.mean) == N_TRAITS,
            "rate_change": len(self.rate_change) == N_TRAITS,
            "mean and rate_change": all(abs(value) <= _MAX_TRAIT for value in values),
            "covariance": len(self.covariance) == N_TRAITS * (N_TRAITS + 1) // 2
            and all(abs(item) <= _MAX_TRAIT**2 for item in self.covariance)
            and np.linalg.eigvalsh(self.covariance_matrix())[0] > _MIN_VARIANCE,
        }
        for name, holds in checks.items():
            if not holds:
                raise InvalidOption(f"support's {name}: out of range, or of the wrong length", name)

    def covariance_matrix(self) -> Real:
        """Return the whole matrix, [28, 28]."""
        matrix = np.zeros((N_TRAITS, N_TRAITS))
        lower = np.tril_indices(N_TRAITS)
        matrix[lower] = self.covariance
        matrix.T[lower] = self.covariance
        return matrix


def onset_samples(response: Real) -> int:
    """Find the first sample at which |h| reaches half of its maximum; response: real [n], not all zero."""
    magnitude = np.abs(response)
    return int((magnitude >= magnitude.max() / 2).argmax())


def delay_samples(response: Real) -> Real:
    """Find the onset within the scored bands: real [n, taps] -> [n]."""
    spectrum = np.fft.rfft(response, n=DESIGN_N_FFT)
    inside = (_SCORED_HZ[0] <= BINS_HZ) & (_SCORED_HZ[1] > BINS_HZ)
    magnitude = np.abs(np.fft.irfft(spectrum * inside, n=DESIGN_N_FFT))
    return (magnitude >= magnitude.max(-1, keepdims=True) / 2).argmax(-1).astype(float)


def path_traits(primary: Real | Complex, secondary: Real | Complex, advance_samples: int = 0) -> Real:
    """Compute the traits of two paths, [28].

    Parameters
    ----------
    primary, secondary
        Causal responses, real [n <= 32768], or spectra on the design grid, finite and not all zero.
    advance_samples
        d above.
    """
    found = []
    for path, edges, advance in ((secondary, SECONDARY_EDGES_HZ, advance_samples), (primary, PRIMARY_EDGES_HZ, 0)):
        peak = peak_of(path)  # taken out first, since sums of large float32 values overflow
        means = band_means(path / peak, edges, advance)
        found += [np.log(np.maximum(np.abs(means), _SMALLEST)) + np.log(peak), np.angle(means)]
    return np.concatenate(found)


def peak_of(path: Real | Complex) -> float:
    """Return the largest magnitude of a sample, or of a bin's real or imaginary part."""
    parts = path.view(path.real.dtype) if np.iscomplexobj(path) else path
    return float(max(parts.max(), -parts.min()))


def band_means(path: Real | Complex, band_edges_hz: tuple[float, ...], advance_samples: int = 0) -> Complex:
    """Average a path's spectrum over the bands, complex [n_bands]."""
    if not np.iscomplexobj(path) and path.shape[-1] <= _MAX_TAPS:
        kernel: Complex = _kernel(band_edges_hz, advance_samples)[:, : path.shape[-1]]
        means: Complex = kernel @ path
        return means
    spectrum: Complex = np.asarray(path if np.iscomplexobj(path) else np.fft.rfft(path, DESIGN_N_FFT))
    starts, phasor = first_bins(band_edges_hz), _phasor(advance_samples)
    first, last = starts[0], starts[-1]
    sums: Complex = np.add.reduceat(spectrum[first:last] * phasor[first:last], starts[:-1] - first)
    return sums / np.diff(starts)


def wrapped(traits: Real) -> Real:
    """Wrap the phases in differences of traits [..., 28] to -pi .. pi."""
    turned = (traits + np.pi) % (2 * np.pi) - np.pi
    return np.where(IS_PHASE, turned, traits)


def learn_support_statistics(primary: Real, secondary: Real, prior_ears: float = 1.0) -> SupportStatistics:
    """Learn the statistics of the support's ears.

    Parameters
    ----------
    primary, secondary
        Calibrated causal responses, [n_ears, taps].
    prior_ears
        Ears as many as which the prior's spread counts.
    """
    delay = int(np.median([onset_samples(item) for item in secondary]))
    pairs = list(zip(primary.astype(float), secondary.astype(float), strict=True))
    traits = np.array([path_traits(*pair, delay) for pair in pairs])
    # The mean phase is that of the mean direction, about which phases are unwrapped.
    centre = np.where(IS_PHASE, np.angle(np.exp(1j * np.where(IS_PHASE, traits, 0)).mean(0)), traits.mean(0))
    deviations = wrapped(traits - centre)
    mean = deviations.mean(0)
    scatter = (deviations - mean).T @ (deviations - mean) + prior_ears * np.diag(_PRIOR_SD**2)
    covariance = scatter / (len(pairs) + prior_ears)
    changes = [
        wrapped(path_traits(_as_other_rate(p), _as_other_rate(s), delay) - ear_traits)
        for (p, s), ear_traits in zip(pairs, traits, strict=True)
    ]
    return SupportStatistics(
        n_ears=len(pairs),
        delay_samples=delay,
        mean=_rounded(centre + mean),
        covariance=_rounded(covariance[np.tril_indices(N_TRAITS)]),
        rate_change=_rounded(np.mean(changes, axis=0)),
    )


def _as_other_rate(response: Real) -> Complex:
    """Return the spectrum of a path recorded at OTHER_RATE_HZ and taken for 48 kHz."""
    spectrum = np.fft.rfft(response, DESIGN_N_FFT)
    true_hz = BINS_HZ * (OTHER_RATE_HZ / SAMPLE_RATE_HZ)
    apparent: Complex = np.interp(true_hz, BINS_HZ, spectrum.real) + 1j * np.interp(true_hz, BINS_HZ, spectrum.imag)
    return apparent


@lru_cache(maxsize=8)
def first_bins(band_edges_hz: tuple[float, ...]) -> NDArray[np.intp]:
    """Return the first bin of the bands, and the first one after the last."""
    return np.searchsorted(BINS_HZ, band_edges_hz)


@lru_cache(maxsize=16)
def _phasor(advance_samples: int) -> Complex:
    turned: Complex = np.exp(2j * np.pi * advance_samples * np.arange(N_BINS) / DESIGN_N_FFT).astype(np.complex64)
    return turned


@lru_cache(maxsize=16)
def _kernel(band_edges_hz: tuple[float, ...], advance_samples: int) -> Complex:
    """Return the matrix from a response to `band_means`: complex64 [n_bands, 8192]."""
    starts = first_bins(band_edges_hz)
    members = np.zeros((len(starts) - 1, DESIGN_N_FFT), complex)
    for row, (low, high) in zip(members, pairwise(starts), strict=True):
        row[low:high] = _phasor(advance_samples)[low:high] / (high - low)
    kernel: Complex = np.fft.fft(members)[:, :_MAX_TAPS].astype(np.complex64)
    return kernel


def _rounded(values: Real) -> tuple[float, ...]:
    """Round to six digits, since people read manifests too."""
    return tuple(float(f"{value:.6g}") for value in values)


def band_uncertainty(primary: Array, coherence: Array, reference_psd: Array) -> Array:
    """Divide a coherence's unexplained by the explained power, per band of the 31: [batch, 31]."""
    power = reference_psd * squared_magnitude(primary)
    return _band_ratio(unexplained_power(power, coherence), power)


def learn_uncertainty(primary: Array, coherence: Array, reference_psd: Array) -> Array:
    """Learn from support listeners the uncertainty of estimates without coherence.

    Parameters
    ----------
    primary, coherence
        Support's ears, [batch, n_bins].
    reference_psd
        [n_bins].

    Returns
    -------
    Array
        [31], the geometric mean over the batch, because single ears span 10 dB and more.
    """
    xp = array_namespace(primary, coherence, reference_psd)
    uncertainty = xp.clip(band_uncertainty(primary, coherence, reference_psd), min=SMALLEST_SHARE)
    return xp.exp(xp.mean(xp.log(uncertainty), axis=0))


def _band_ratio(part: Array, whole: Array) -> Array:
    xp = array_namespace(part, whole)
    membership = band_matrix(WIDE_BANDS, 2 * (whole.shape[-1] - 1), whole)
    return (part @ membership) / xp.clip(whole @ membership, min=float(xp.finfo(whole.dtype).smallest_normal))

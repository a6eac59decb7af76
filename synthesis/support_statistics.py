"""What the measured paths of support listeners have in common, so that a faulty measurement can be recognised.

Two paths are described by their traits: the complex mean of the spectrum over a few bands, as log magnitude and
phase,

    t = (ln |s_b|, arg s_b, ln |p_c|, arg p_c),    s_b = mean of S(f) exp(2 pi i f d) over band b,    p_c of P(f),

d the delay of the support's secondary paths. A complex mean leaves out most of the measurement noise, which is what
a level would add up. The primary path has bands up to 355 Hz only: there it hardly differs between ears, above it
shows where the sound came from. From the support follow the traits' mean and covariance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from synthesis.bands import AMP_BANDS, edges_hz
from synthesis.conventions import DESIGN_N_FFT, N_BINS, SAMPLE_RATE_HZ
from synthesis.errors import InvalidOption

Real = NDArray[np.floating]
Complex = NDArray[np.complexfloating]

SECONDARY_EDGES_HZ = tuple(edges_hz(n)[0] for n in (*range(17, 36, 3), 38, 39, 40, 41, 42))
"""Octaves from 45 Hz to 5.6 kHz, then one-third octaves to 14 kHz."""

PRIMARY_EDGES_HZ = tuple(edges_hz(n)[0] for n in (17, 20, 23, 26))
"""Octaves from 45 to 355 Hz."""

N_SECONDARY, N_PRIMARY = len(SECONDARY_EDGES_HZ) - 1, len(PRIMARY_EDGES_HZ) - 1
N_TRAITS = 2 * (N_SECONDARY + N_PRIMARY)
IS_PHASE = np.repeat([False, True, False, True], [N_SECONDARY, N_SECONDARY, N_PRIMARY, N_PRIMARY])
"""Which traits are phases in rad, [28]; the others are natural logarithms of magnitudes."""

OTHER_RATE_HZ = 44_100
"""Recordings of this rate that are taken for SAMPLE_RATE_HZ are told by the change in their traits."""

_PRIOR_EARS = 1.0
_PRIOR_SD = np.where(IS_PHASE, 0.25, 0.35)
"""Before any ear is known: 14 degrees and 3 dB. It counts as one ear, so that few ears cannot claim certainty."""

_MAX_TRAIT = 100.0
"""Of a mean or a change: 870 dB, or sixteen turns."""

_MIN_VARIANCE = 1e-9
"""Of any combination of traits. `_PRIOR_SD` alone leaves a thousand ears 6e-5."""

_MAX_TAPS = 8192
"""Of responses whose traits come from a matrix product; longer ones are transformed."""

_SMALLEST = 1e-30
_SCORED_HZ = (edges_hz(AMP_BANDS[0])[0], edges_hz(AMP_BANDS[-1])[1])
_FREQUENCY_HZ = np.arange(N_BINS) * (SAMPLE_RATE_HZ / DESIGN_N_FFT)


@dataclass(frozen=True)
class SupportStatistics:
    """Traits of `n_ears` support ears.

    delay_samples: median onset of their secondary paths, d above. mean: [28]. covariance: its lower
    triangle, row by row, [406]. rate_change: how the traits change in the mean where recordings at 44.1 kHz are
    taken for 48 kHz, [28].
    """

    n_ears: int
    delay_samples: int
    mean: tuple[float, ...]
    covariance: tuple[float, ...]
    rate_change: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check the lengths and ranges of all fields.

        Raises
        ------
        InvalidOption
            If no measurement can be compared with these statistics.
        """
        values = (*self.mean, *self.rate_change)
        checks = {
            "n_ears": 0 < self.n_ears <= 10**6,
            "delay_samples": 0 <= self.delay_samples < _MAX_TAPS,
            "mean": len(self.mean) == N_TRAITS,
            "rate_change": len(self.rate_change) == N_TRAITS,
            "mean and rate_change": all(abs(each) <= _MAX_TRAIT for each in values),
            "covariance": len(self.covariance) == N_TRAITS * (N_TRAITS + 1) // 2
            and all(abs(each) <= _MAX_TRAIT**2 for each in self.covariance)
            and np.linalg.eigvalsh(self.covariance_matrix())[0] > _MIN_VARIANCE,
        }
        for name, holds in checks.items():
            if not holds:
                raise InvalidOption(f"support's {name}: out of range, or of the wrong length", name)

    def covariance_matrix(self) -> Real:
        """The whole matrix, [28, 28]."""
        matrix = np.zeros((N_TRAITS, N_TRAITS))
        lower = np.tril_indices(N_TRAITS)
        matrix[lower] = self.covariance
        matrix.T[lower] = self.covariance
        return matrix


def onset_samples(response: Real) -> int:
    """First sample at which |h| reaches half of its maximum; response: real [n], not all zero."""
    magnitude = np.abs(response)
    return int((magnitude >= magnitude.max() / 2).argmax())


def delay_samples(response: Real) -> Real:
    """The same within the scored bands: real [n, taps] -> [n]."""
    spectrum = np.fft.rfft(response, n=DESIGN_N_FFT)
    inside = (_SCORED_HZ[0] <= _FREQUENCY_HZ) & (_SCORED_HZ[1] > _FREQUENCY_HZ)
    magnitude = np.abs(np.fft.irfft(spectrum * inside, n=DESIGN_N_FFT))
    return (magnitude >= magnitude.max(-1, keepdims=True) / 2).argmax(-1).astype(float)


def path_traits(primary: Real | Complex, secondary: Real | Complex, advance_samples: int = 0) -> Real:
    """Traits of two paths, [28]: each a causal response, real [n <= 32768], or a spectrum on the design grid, with
    any finite numbers that are not all zero.

    advance_samples: d above.
    """
    found = []
    for path, edges, advance in ((secondary, SECONDARY_EDGES_HZ, advance_samples), (primary, PRIMARY_EDGES_HZ, 0)):
        peak = peak_of(path)  # taken out first, since sums of large float32 values overflow
        means = band_means(path / peak, edges, advance)
        found += [np.log(np.maximum(np.abs(means), _SMALLEST)) + np.log(peak), np.angle(means)]
    return np.concatenate(found)


def peak_of(path: Real | Complex) -> float:
    """Largest magnitude of a sample, or of a bin's real or imaginary part."""
    parts = path.view(path.real.dtype) if np.iscomplexobj(path) else path
    return float(max(parts.max(), -parts.min()))


def band_means(path: Real | Complex, band_edges_hz: tuple[float, ...], advance_samples: int = 0) -> Complex:
    """Complex mean of a path's spectrum over each band: [n_bands]."""
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
    """Differences of traits [..., 28] with their phases between -pi and pi."""
    turned = (traits + np.pi) % (2 * np.pi) - np.pi
    return np.where(IS_PHASE, turned, traits)


def learn_support_statistics(primary: Real, secondary: Real) -> SupportStatistics:
    """From the support's ears as a calibration estimates them, causal responses [n_ears, taps] each."""
    delay = int(np.median([onset_samples(each) for each in secondary]))
    pairs = list(zip(primary.astype(float), secondary.astype(float), strict=True))
    traits = np.array([path_traits(*pair, delay) for pair in pairs])
    # The mean phase is that of the mean direction, about which phases are unwrapped.
    centre = np.where(IS_PHASE, np.angle(np.exp(1j * np.where(IS_PHASE, traits, 0)).mean(0)), traits.mean(0))
    deviations = wrapped(traits - centre)
    mean = deviations.mean(0)
    scatter = (deviations - mean).T @ (deviations - mean) + _PRIOR_EARS * np.diag(_PRIOR_SD**2)
    covariance = scatter / (len(pairs) + _PRIOR_EARS)
    changes = [
        wrapped(path_traits(_as_other_rate(p), _as_other_rate(s), delay) - own)
        for (p, s), own in zip(pairs, traits, strict=True)
    ]
    return SupportStatistics(
        n_ears=len(pairs),
        delay_samples=delay,
        mean=_rounded(centre + mean),
        covariance=_rounded(covariance[np.tril_indices(N_TRAITS)]),
        rate_change=_rounded(np.mean(changes, axis=0)),
    )


def _as_other_rate(response: Real) -> Complex:
    """Spectrum that a path seems to have where recordings at OTHER_RATE_HZ are taken for 48 kHz."""
    spectrum = np.fft.rfft(response, DESIGN_N_FFT)
    true_hz = _FREQUENCY_HZ * (OTHER_RATE_HZ / SAMPLE_RATE_HZ)
    apparent: Complex = np.interp(true_hz, _FREQUENCY_HZ, spectrum.real) + 1j * np.interp(
        true_hz, _FREQUENCY_HZ, spectrum.imag
    )
    return apparent


@lru_cache(maxsize=8)
def first_bins(band_edges_hz: tuple[float, ...]) -> NDArray[np.intp]:
    """First bin of each band, and the first one after the last."""
    return np.searchsorted(_FREQUENCY_HZ, band_edges_hz)


@lru_cache(maxsize=16)
def _phasor(advance_samples: int) -> Complex:
    turned: Complex = np.exp(2j * np.pi * advance_samples * np.arange(N_BINS) / DESIGN_N_FFT).astype(np.complex64)
    return turned


@lru_cache(maxsize=16)
def _kernel(band_edges_hz: tuple[float, ...], advance_samples: int) -> Complex:
    """What turns a response into `band_means`: complex64 [n_bands, 8192]."""
    starts = first_bins(band_edges_hz)
    members = np.zeros((len(starts) - 1, DESIGN_N_FFT), complex)
    for row, (low, high) in zip(members, pairwise(starts), strict=True):
        row[low:high] = _phasor(advance_samples)[low:high] / (high - low)
    kernel: Complex = np.fft.fft(members)[:, :_MAX_TAPS].astype(np.complex64)
    return kernel


def _rounded(values: Real) -> tuple[float, ...]:
    """To six digits, as a manifest is read by people, too."""
    return tuple(float(f"{each:.6g}") for each in values)

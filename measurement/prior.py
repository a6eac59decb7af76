"""Prior of listeners' paths, and the posterior of a measurement under it, in NumPy.

A probe is silent at some frequencies and a microphone is never free of noise, so an estimate by spectra alone is either
noise or, regularised, zero there. Other listeners' paths show what to expect. Per bin of the window's grid a path H is
modelled, at the measurement's level a, as

    H = a (m + sum_j b_j D_j + r),    b_j ~ N(0, 1),    r ~ N(0, v),

m the mean over the support's ears, D their principal directions and v the variance that these leave of a person who was
left out. A measurement T = H + n with noise of variance q, weighted by NOISE_WEIGHT, gives b by least squares over all
bins, so that excited bins inform the others, and then in each bin

    H = (1 - k) T + k a (m + sum_j b_j D_j),    k = q / (q + v).

Where an ear differs from the support's, as its well measured bins show, v is raised until it explains them.

A response longer than the window is estimated wrongly even without noise: the window weights lag l by its
autocorrelation rho(l), and the rest, 1 - rho(l) of the response and what is cut off, appears as unexplained power. The
support's responses give the size of this tail; a measurement that explains more has a smaller one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from synthesis.arrays import SMALLEST, Complex, Real, squared_magnitude
from synthesis.bands import AMP_BANDS, band_membership
from synthesis.conventions import SAMPLE_RATE_HZ

PRIOR_WINDOW = 8192
PRIOR_BINS = PRIOR_WINDOW // 2 + 1
# Taps of primary and secondary estimates.
PRIOR_TAPS = (8192, 2048)

N_DIRECTIONS = 8
# Weight of the estimated noise variance in k. Part of the unexplained power is the primary path's tail, which is no
# noise: a weight of one would smooth away what was measured.
NOISE_WEIGHT = 0.2

SMOOTHING_BINS = 19
# Bins closer than the larger of these (the share is of the frequency) are alike in an ear and count as one in fits.
MIN_CELL_HZ, CELL_SHARE = 117.0, 0.1

MIN_SPREAD_DB = 0.5
# Reduction of a band's weight for the level where its noise is as large as the path.
NOISE_PENALTY = 30.0

# Estimate's error over a frame's unexplained power where that is the tail's: 0.73 on 30 measured ears without noise,
# whatever the probe and the number of windows.
TAIL_SHARE = 0.75

_FLOOR = 1e-12
# Share of the reference autospectrum's maximum below which power is rounding.
_SILENT = 1e-14


@dataclass(frozen=True, eq=False)
class PathDistribution:
    """One path over the support's ears at their common level, per bin of a window's grid."""

    # Mean, complex [n_bins].
    mean: Complex
    # Variance about the mean, smoothed, [n_bins].
    variance: Real
    # Principal directions times the standard deviation of their real coefficients, complex [r, n_bins].
    directions: Complex
    # Mean |.|^2 that mean and directions of the other persons leave of a person, smoothed, [n_bins].
    residual_variance: Real
    # Mean |.|^2 beyond windows of 8192 samples, smoothed, [n_bins].
    tail_variance: Real
    # Power of the 23 bands from 50 Hz to 8 kHz, mean over the ears.
    level_db: Real
    # Standard deviation of level_db, for the secondary path after the primary's level is removed.
    level_spread_db: Real

    def on_grid(self, n_bins: int) -> PathDistribution:
        """Interpolate to windows of another length, 2 * (n_bins - 1) samples of the same responses."""
        if n_bins == self.mean.shape[-1]:
            return self
        known = np.linspace(0, 1, self.mean.shape[-1])
        wanted = np.linspace(0, 1, n_bins)

        def spectrum(values: Complex) -> Complex:
            n_samples = 2 * (n_bins - 1)
            resampled: Complex = np.fft.rfft(np.fft.irfft(values)[..., :n_samples], n_samples)
            return resampled

        return PathDistribution(
            spectrum(self.mean),
            np.interp(wanted, known, self.variance),
            spectrum(self.directions),
            np.interp(wanted, known, self.residual_variance),
            np.interp(wanted, known, self.tail_variance),
            self.level_db,
            self.level_spread_db,
        )


@dataclass(frozen=True, eq=False)
class PathPrior:
    """Both paths over `n_ears` support ears, on the grid of a window of 8192 samples."""

    n_ears: int
    primary: PathDistribution
    secondary: PathDistribution

    @property
    def knows_tails(self) -> bool:
        """Return whether the power beyond windows is known; estimates, from which a device learns, do not hold it."""
        return bool(self.primary.tail_variance.any())

    def without_tails(self) -> PathPrior:
        """Return the prior with the power beyond windows unknown."""
        paths = (replace(path, tail_variance=np.zeros(PRIOR_BINS)) for path in (self.primary, self.secondary))
        return PathPrior(self.n_ears, *paths)

    def arrays(self) -> dict[str, NDArray[np.float32]]:
        """Return float32 arrays by name; complex ones have real and imaginary part in a last axis of two."""
        found = {"n_ears": np.array([self.n_ears], np.float32)}
        for path in ("primary", "secondary"):
            for field in fields(PathDistribution):
                values = getattr(getattr(self, path), field.name)
                parts = np.stack((values.real, values.imag), -1) if np.iscomplexobj(values) else values
                found[f"{path}.{field.name}"] = parts.astype(np.float32)
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.floating]]) -> PathPrior:
        """Restore a prior from `arrays`."""

        def path(name: str) -> PathDistribution:
            def real(field: str) -> Real:
                return arrays[f"{name}.{field}"].astype(np.float64)

            def complex_(field: str) -> Complex:
                return real(field)[..., 0] + 1j * real(field)[..., 1]

            return PathDistribution(
                complex_("mean"),
                real("variance"),
                complex_("directions"),
                real("residual_variance"),
                real("tail_variance"),
                real("level_db"),
                real("level_spread_db"),
            )

        return cls(int(arrays["n_ears"][0]), path("primary"), path("secondary"))


class Posterior(NamedTuple):
    """Posterior of a path given a measurement."""

    # Spectrum, complex [..., n_bins].
    mean: Complex
    # Expected |error|^2 of the mean, [..., n_bins], if `noise` is the noise's variance.
    variance: Real
    # Factor a, [...].
    level: Real


def array_shapes(n_directions: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of `PathPrior.arrays`."""
    shapes: dict[str, tuple[int, ...]] = {
        "mean": (PRIOR_BINS, 2),
        "variance": (PRIOR_BINS,),
        "directions": (n_directions, PRIOR_BINS, 2),
        "residual_variance": (PRIOR_BINS,),
        "tail_variance": (PRIOR_BINS,),
        "level_db": (len(AMP_BANDS),),
        "level_spread_db": (len(AMP_BANDS),),
    }
    return {"n_ears": (1,)} | {
        f"{p}.{name}": shape for p in ("primary", "secondary") for name, shape in shapes.items()
    }


def learn_path_prior(
    primaries: Sequence[Real], secondaries: Sequence[Real], persons: Sequence[str], n_directions: int = N_DIRECTIONS
) -> PathPrior:
    """Learn the prior from the support's true paths.

    Parameters
    ----------
    primaries, secondaries
        Responses of up to 8192 samples.
    persons
        Person per pair.
    n_directions
        Number of directions; at most the number of persons less two.

    Raises
    ------
    ValueError
        Fewer than two ears, or lists of different lengths.
    """
    if not len(primaries) == len(secondaries) == len(persons) >= 2:
        raise ValueError(
            f"path prior: {len(primaries)} ears of {len(persons)} persons; give two or more, with a person per ear"
        )
    responses = [np.stack([_padded(item) for item in paths]) for paths in (primaries, secondaries)]
    names = np.asarray(persons)
    n_directions = max(min(n_directions, len(set(persons)) - 2), 0)
    primary_bands_db, secondary_bands_db = (_band_level_db(np.fft.rfft(response)) for response in responses)
    primary_db = _common_level_db(primary_bands_db)
    secondary_bands_db = secondary_bands_db - primary_db[:, None]
    secondary_db = primary_db + _common_level_db(secondary_bands_db)
    primary_bands_db = primary_bands_db - primary_db[:, None]
    learnt = [
        _learn(paths * 10 ** (-level_db[:, None] / 20), taps, names, n_directions, bands_db)
        for paths, level_db, taps, bands_db in zip(
            responses, (primary_db, secondary_db), PRIOR_TAPS, (primary_bands_db, secondary_bands_db), strict=True
        )
    ]
    return PathPrior(len(names), *learnt)


def posterior(
    distribution: PathDistribution,
    transfer: Complex,
    noise: Real,
    noise_weight: float = NOISE_WEIGHT,
    kept: float = 1.0,
    max_tail: Real | float = np.inf,
) -> Posterior:
    """Compute the posterior of measured spectra.

    Parameters
    ----------
    distribution
        Prior of the path.
    transfer
        Measured spectra, [..., n_bins].
    noise
        Variance of their noise, [..., n_bins]; infinite in bins without probe energy.
    noise_weight
        Weight of the noise in the mean.
    kept
        For the variance, share of the noise that remains after the response is cut to its taps.
    max_tail
        For the variance, bound on the power beyond the window, [..., n_bins].
    """
    prior = distribution.on_grid(transfer.shape[-1])
    noise = np.broadcast_to(noise, transfer.shape)
    is_excited = np.isfinite(noise)
    noise = np.where(is_excited, noise, 0.0)
    measured: Complex = np.where(is_excited, transfer, 0.0)
    level = measurement_level(prior, measured, noise, is_excited)
    measured, noise = measured / level[..., None], noise / level[..., None] ** 2
    weighted = noise_weight * noise
    cells = _cells(transfer.shape[-1])
    variance: Real = np.broadcast_to(prior.residual_variance, transfer.shape)
    fit, _ = _fit_directions(prior.mean, prior.directions, measured, weighted, is_excited, variance * cells)
    variance = variance * _misfit(measured - fit, weighted, is_excited, variance, cells)[..., None]
    fit, fit_variance = _fit_directions(
        prior.mean, prior.directions, measured, weighted, is_excited, variance * cells
    )
    share = np.where(is_excited, weighted / (weighted + variance), 1.0)
    mean: Complex = ((1 - share) * measured + share * fit) * level[..., None]
    tail = np.minimum(prior.tail_variance, max_tail / level[..., None] ** 2)
    error = (1 - share) ** 2 * (kept * noise + tail) + share**2 * (variance + fit_variance)
    return Posterior(mean, error * level[..., None] ** 2, level)


def measurement_level(
    prior: PathDistribution, measured: Complex, noise: Real, is_excited: NDArray[np.bool_]
) -> Real:
    """Compute the factor between a measurement [..., n_bins] and the support, [...]; 1 without probe energy.

    It is the median over bands of the level difference. A band's weight falls with its variation between ears and rises
    with its SNR.
    """
    membership = band_membership(AMP_BANDS, 2 * (measured.shape[-1] - 1))
    power, floor = squared_magnitude(measured) @ membership, (noise * is_excited) @ membership
    is_known = is_excited.astype(float) @ membership == membership.sum(0)
    above = np.maximum(power - floor, 0.0)
    weight = np.where(is_known, above / np.maximum(power + NOISE_PENALTY * floor, SMALLEST), 0.0)
    weight = weight / np.maximum(prior.level_spread_db, MIN_SPREAD_DB) ** 2
    difference_db = 10 * np.log10(np.maximum(above, SMALLEST)) - prior.level_db
    level: Real = 10 ** (_weighted_median(difference_db, weight) / 20)
    return level


def primary_noise(reference_power: Real, unexplained_power: Real, n_frames: int) -> Real:
    """Compute the variance of the primary estimate cross / reference_power, [..., n_bins].

    It is infinite in bins without probe energy.

    Parameters
    ----------
    unexplained_power
        Power at the error microphone that x does not explain, summed over n_frames windows as the reference's; a single
        window leaves none and counts as noise-free.
    """
    per_frame = smoothed(unexplained_power) / max(n_frames - 1, 1)
    is_excited = reference_power > _SILENT * reference_power.max(-1, keepdims=True)
    noise: Real = np.where(is_excited, per_frame / np.maximum(reference_power, SMALLEST), np.inf)
    return noise


def secondary_noise(transfer: Complex, upper_bound: Real) -> Real:
    """Compute the variance of the secondary estimate [..., n_bins] from lags where no ear rings any more.

    The noise of two windowed signals at a lag follows the autocorrelation of the squared window.

    Parameters
    ----------
    upper_bound
        Bound from what the states leave unexplained, infinite without probe energy. It includes what the primary's tail
        adds to both states, which cancels if the probe repeats.
    """
    is_excited = np.isfinite(upper_bound)
    window = 2 * (transfer.shape[-1] - 1)
    squared = np.hanning(window + 1)[:-1] ** 2
    over_lags = np.fft.irfft(squared_magnitude(np.fft.rfft(squared)), window)
    lags = slice(window // 2, window * 7 // 8)
    taper = np.hanning(window * 3 // 8 + 2)[1:-1]
    late = np.fft.irfft(np.where(is_excited, transfer, 0.0))[..., lags]
    scale = over_lags.sum() / np.sum(taper**2 * over_lags[lags])
    noise = scale * smoothed(squared_magnitude(np.fft.rfft(late * taper, window)))
    return np.where(is_excited, np.minimum(noise, upper_bound), np.inf)


def kept_noise_share(window: int, n_taps: int) -> float:
    """Return the share of an estimate's noise in its first n_taps lags (`secondary_noise`)."""
    over_lags = np.fft.irfft(squared_magnitude(np.fft.rfft(np.hanning(window + 1)[:-1] ** 2)), window)
    return float(over_lags[:n_taps].sum() / over_lags.sum())


def held_power(distribution: PathDistribution) -> Real:
    """Compute the power that windows of 8192 samples leave unexplained although the estimate has it, [4097].

    A window leaves 1 - rho^2 of the power at lag l unexplained, and the estimate lacks (1 - rho)^2 of it. The
    difference, 2 rho (1 - rho), is largest at a quarter of the window. The response is that of mean and directions.
    """
    weight = lag_weight(PRIOR_WINDOW)
    held = np.sqrt(2 * weight * (1 - weight))
    responses = np.fft.irfft(np.concatenate((distribution.mean[None], distribution.directions)))
    return squared_magnitude(np.fft.rfft(held * responses)).sum(0)


@cache
def lag_weight(window: int) -> Real:
    """Return the weight of lags in estimates by Hann windows, the windows' autocorrelation: [window]."""
    hann = np.hanning(window + 1)[:-1]
    weight: Real = np.fft.irfft(squared_magnitude(np.fft.rfft(hann, 2 * window)))[:window] / np.sum(hann**2)
    return weight


def smoothed(power: Real) -> Real:
    """Average SMOOTHING_BINS neighbouring bins of [..., n_bins], mirrored at the ends."""
    half = SMOOTHING_BINS // 2
    padded = np.pad(power, [(0, 0)] * (power.ndim - 1) + [(half, half)], mode="reflect")
    # Cumulative sums would round away bins that lie 100 dB below others.
    mean: Real = np.lib.stride_tricks.sliding_window_view(padded, SMOOTHING_BINS, axis=-1).mean(-1)
    return mean


def _learn(
    responses: Real, n_taps: int, persons: NDArray[np.str_], n_directions: int, bands_db: Real
) -> PathDistribution:
    """Learn one path's distribution from responses [n_ears, 8192] at the common level; bands_db [n_ears, 23]."""
    spectra = np.fft.rfft(responses)
    mean, variance, directions = _principal(spectra, n_directions)
    nothing, everything = np.zeros(PRIOR_BINS), np.ones(PRIOR_BINS, bool)
    left = []
    for person in dict.fromkeys(persons.tolist()):
        known = persons == person
        others = _principal(spectra[~known] if not known.all() else spectra, n_directions)
        cells = others[1] * _cells(PRIOR_BINS)
        fitted, _ = _fit_directions(others[0], others[2], spectra[known], nothing, everything, cells)
        left.append(squared_magnitude(spectra[known] - fitted))
    residual = smoothed(np.concatenate(left).mean(0))
    weight = np.where(np.arange(PRIOR_WINDOW) < n_taps, lag_weight(PRIOR_WINDOW), 0.0)
    tail = smoothed(squared_magnitude(np.fft.rfft((1 - weight) * responses)).mean(0))
    return PathDistribution(
        mean,
        variance,
        directions,
        np.maximum(residual, max(_FLOOR * residual.max(), SMALLEST)),
        tail,
        bands_db.mean(0),
        bands_db.std(0),
    )


def _principal(spectra: Complex, n_directions: int) -> tuple[Complex, Real, Complex]:
    """Compute mean, variance and principal directions of spectra [n_ears, n_bins].

    Directions are those of real and imaginary parts side by side, normalised by the standard deviation per bin, and
    with neighbouring bins of a cell counted once.
    """
    n_ears, n_bins = spectra.shape
    mean = spectra.mean(0)
    variance = smoothed(squared_magnitude(spectra - mean).sum(0) / max(n_ears - 1, 1))
    variance = np.maximum(variance, max(_FLOOR * variance.max(), SMALLEST))
    if n_directions == 0:
        return mean, variance, np.zeros((0, n_bins), complex)
    scale = 1 / np.sqrt(variance * _cells(n_bins))
    scaled = (spectra - mean) * scale
    _, singular, vectors = np.linalg.svd(np.concatenate((scaled.real, scaled.imag), -1), full_matrices=False)
    deviation = singular[:n_directions, None] / np.sqrt(n_ears - 1)
    directions = deviation * (vectors[:n_directions, :n_bins] + 1j * vectors[:n_directions, n_bins:]) / scale
    return mean, variance, directions


def _fit_directions(
    mean: Complex,
    directions: Complex,
    measured: Complex,
    noise: Real,
    is_excited: NDArray[np.bool_],
    variance: Real,
) -> tuple[Complex, Real]:
    """Fit m + sum_j b_j D_j by least squares with weights 1 / (noise + variance); also its variance, [..., n_bins]."""
    if len(directions) == 0:
        return np.broadcast_to(mean, measured.shape), np.zeros(measured.shape)
    weight = np.where(is_excited, 1 / (noise + variance), 0.0)
    # Real and imaginary parts side by side turn the complex problem into a real one.
    basis = np.concatenate((directions.real, directions.imag), -1)
    difference = measured - mean
    weighted = basis * np.concatenate((weight, weight), -1)[..., None, :]
    target = np.concatenate((difference.real, difference.imag), -1)[..., None]
    covariance = np.linalg.inv(weighted @ basis.T + np.eye(len(directions)))
    coefficients = (covariance @ (weighted @ target))[..., 0]
    fitted: Complex = mean + coefficients @ directions
    spread = np.einsum("jk,...jk->...k", directions.conj(), covariance @ directions).real
    return fitted, spread


def _misfit(
    difference: Complex, noise: Real, is_excited: NDArray[np.bool_], variance: Real, cells: Real
) -> NDArray[np.floating]:
    """Compute by what factor squared differences of well measured bins exceed expectation, [...], at least 1."""
    weight = np.where(is_excited, variance / (noise + variance), 0.0) / cells
    excess = squared_magnitude(difference) / (noise + variance)
    ratio: Real = np.sum(weight * excess, -1) / np.maximum(weight.sum(-1), SMALLEST)
    return np.maximum(ratio, 1.0)


def _cells(n_bins: int) -> Real:
    """Return the number of bins that count as one, per bin, [n_bins]."""
    bin_hz = SAMPLE_RATE_HZ / 2 / (n_bins - 1)
    cells: Real = np.maximum(np.maximum(MIN_CELL_HZ, CELL_SHARE * bin_hz * np.arange(n_bins)) / bin_hz, 1.0)
    return cells


def _band_level_db(spectra: Complex) -> Real:
    level: Real = 10 * np.log10(
        np.maximum(squared_magnitude(spectra) @ band_membership(AMP_BANDS, 2 * (spectra.shape[-1] - 1)), SMALLEST)
    )
    return level


def _common_level_db(bands_db: Real) -> Real:
    """Compute the level of each ear relative to the others, [n_ears], with mean 0.

    It is the median over bands of [n_ears, 23], weighted by how little a band varies once levels are removed.
    """
    level_db: Real = np.zeros(len(bands_db))
    spread_db: Real = np.ones(bands_db.shape[-1])
    for _ in range(5):
        mean_db = (bands_db - level_db[:, None]).mean(0)
        weight = np.broadcast_to(1 / np.maximum(spread_db, MIN_SPREAD_DB) ** 2, bands_db.shape)
        level_db = _weighted_median(bands_db - mean_db, weight)
        level_db = level_db - level_db.mean()
        spread_db = (bands_db - level_db[:, None]).std(0)
    return level_db


def _weighted_median(values: Real, weight: Real) -> Real:
    """Return the weighted median over [..., n]; 0 without weight."""
    order = np.argsort(values, -1)
    summed = np.cumsum(np.take_along_axis(weight, order, -1), -1)
    place = np.argmax(summed >= summed[..., -1:] / 2, -1)[..., None]
    middle = np.take_along_axis(np.take_along_axis(values, order, -1), place, -1)[..., 0]
    return np.where(summed[..., -1] > 0, middle, 0.0)


def _padded(response: Real) -> Real:
    padded = np.zeros(PRIOR_WINDOW)
    kept = response[:PRIOR_WINDOW]
    padded[: len(kept)] = kept
    return padded

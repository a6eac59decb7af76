"""What the paths of a device's listeners have in common, and what that says of a measurement.

Per bin of the windows' grid a path H is modelled, at the measurement's level a, as

    H = a (m + sum_j b_j D_j + r),    b_j ~ N(0, 1),    r ~ N(0, v),

m the mean over the support's ears, D their principal directions and v the variance that these leave of a person who was
left out. A measurement with noise of variance q gives b by least squares over all bins, so that excited bins inform the
others. Where an ear differs from the support's, as its well measured bins show, v is raised until it explains them.
`prime_anc.measure.posterior` estimates the remainder r.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.arrays import SMALLEST, Complex, Real, squared_magnitude
from prime_anc.method.bands import AMP_BANDS, band_membership
from prime_anc.method.conventions import SAMPLE_RATE_HZ

PRIOR_WINDOW = 8192
PRIOR_BINS = PRIOR_WINDOW // 2 + 1

N_DIRECTIONS = 8
SMOOTHING_BINS = 19
# Bins closer than the larger of these (the share is of the frequency) are alike in an ear and count as one in fits.
MIN_CELL_HZ, CELL_SHARE = 117.0, 0.1

MIN_SPREAD_DB = 0.5
# Reduction of a band's weight for the level where its noise is as large as the path.
NOISE_PENALTY = 30.0

_FLOOR = 1e-12


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
            self.level_db,
            self.level_spread_db,
        )


@dataclass(frozen=True, eq=False)
class PathPrior:
    """Both paths over `n_ears` support ears, on the grid of a window of 8192 samples."""

    n_ears: int
    primary: PathDistribution
    secondary: PathDistribution

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
            values: dict[str, Any] = {
                field.name: arrays[f"{name}.{field.name}"].astype(np.float64) for field in fields(PathDistribution)
            }
            for field in ("mean", "directions"):
                values[field] = values[field][..., 0] + 1j * values[field][..., 1]
            return PathDistribution(**values)

        return cls(int(arrays["n_ears"][0]), path("primary"), path("secondary"))


def array_shapes(n_directions: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of `PathPrior.arrays`."""
    shapes: dict[str, tuple[int, ...]] = {
        "mean": (PRIOR_BINS, 2),
        "variance": (PRIOR_BINS,),
        "directions": (n_directions, PRIOR_BINS, 2),
        "residual_variance": (PRIOR_BINS,),
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
        _learn(paths * 10 ** (-level_db[:, None] / 20), names, n_directions, bands_db)
        for paths, level_db, bands_db in zip(
            responses, (primary_db, secondary_db), (primary_bands_db, secondary_bands_db), strict=True
        )
    ]
    return PathPrior(len(names), *learnt)


def device_mean(distribution: PathDistribution, transfer: Complex, noise: Real) -> tuple[Complex, Real]:
    """Fit a device's mean and principal directions to a measurement.

    Parameters
    ----------
    distribution
        The device's paths.
    transfer
        Measured spectrum, [n_bins].
    noise
        Variance of its error, [n_bins].

    Returns
    -------
    mean
        The fit, complex [n_bins].
    remainder
        Expected power of what the fit leaves of the path, [n_bins]: that of the listeners, raised where well measured
        bins show that this ear differs more.
    """
    prior = distribution.on_grid(len(transfer))
    is_excited = np.ones(len(noise), bool)
    level = measurement_level(prior, transfer, noise, is_excited)
    measured, noise = transfer / level, noise / level**2
    cells, variance = _cells(len(transfer)), prior.residual_variance
    fit, _ = _fit_directions(prior.mean, prior.directions, measured, noise, is_excited, variance * cells)
    variance = variance * _misfit(measured - fit, noise, is_excited, variance, cells)
    fit, of_fit = _fit_directions(prior.mean, prior.directions, measured, noise, is_excited, variance * cells)
    return level * fit, level**2 * (variance + of_fit)


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


@cache
def lag_weight(window: int) -> Real:
    """Return the weight of lags in estimates by Hann windows, the windows' autocorrelation: [window]."""
    hann = np.hanning(window + 1)[:-1]
    weight: Real = np.fft.irfft(squared_magnitude(np.fft.rfft(hann, 2 * window)))[:window] / np.sum(hann**2)
    return weight


def smoothed(power: Real, n_bins: int = SMOOTHING_BINS) -> Real:
    """Average an odd number of neighbouring bins of [..., n_bins], mirrored at the ends."""
    half = n_bins // 2
    padded = np.pad(power, [(0, 0)] * (power.ndim - 1) + [(half, half)], mode="reflect")
    # Cumulative sums would round away bins that lie 100 dB below others.
    mean: Real = np.lib.stride_tricks.sliding_window_view(padded, n_bins, axis=-1).mean(-1)
    return mean


def _learn(responses: Real, persons: NDArray[np.str_], n_directions: int, bands_db: Real) -> PathDistribution:
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
    return PathDistribution(
        mean,
        variance,
        directions,
        np.maximum(residual, max(_FLOOR * residual.max(), SMALLEST)),
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

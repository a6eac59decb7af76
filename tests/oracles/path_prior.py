"""Twin of the fit of a device's listeners to a measurement, in complex128."""

import numpy as np

from prime_anc.measure.prior import PathDistribution

FS, CELL_HZ, CELL_SHARE = 48_000, 117.0, 0.1


def cells(n_bins: int) -> np.ndarray:
    """Bins that count as one."""
    bin_hz = FS / (2 * (n_bins - 1))
    return np.array([max(CELL_HZ, CELL_SHARE * k * bin_hz, bin_hz) / bin_hz for k in range(n_bins)])


def fit(mean: np.ndarray, directions: np.ndarray, measured: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Mean and directions by ridge regression on all bins, as one dense least-squares problem.

    deviation: standard deviation of each bin about the fit, infinite where nothing was heard.
    """
    rows = directions.T / deviation[:, None]
    target = (measured - mean) / deviation
    matrix = np.vstack((rows.real, rows.imag, np.eye(len(directions))))
    right = np.concatenate((target.real, target.imag, np.zeros(len(directions))))
    return mean + np.linalg.lstsq(matrix, right, rcond=None)[0] @ directions


def device_mean(prior: PathDistribution, measured: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Mean and directions fitted to a measurement at the support's own level, [n_bins]."""
    variance, count = prior.residual_variance, cells(len(measured))
    first = fit(prior.mean, prior.directions, measured, np.sqrt(noise + variance * count))
    excess = np.abs(measured - first) ** 2 / (noise + variance)
    raised = variance * max(1.0, np.average(excess, weights=variance / (noise + variance) / count))
    return fit(prior.mean, prior.directions, measured, np.sqrt(noise + raised * count))

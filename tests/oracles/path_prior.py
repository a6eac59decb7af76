"""Twin of a path's posterior: one measurement, one bin after the other, in complex128."""

import numpy as np

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


def posterior_mean(
    mean: np.ndarray,
    directions: np.ndarray,
    variance: np.ndarray,
    measured: np.ndarray,
    noise: np.ndarray,
    noise_weight: float,
) -> np.ndarray:
    """At the support's own level: measured and mean [n_bins], directions [r, n_bins], noise may be infinite."""
    count, noise = cells(len(mean)), noise_weight * noise
    first = fit(mean, directions, measured, np.sqrt(noise + variance * count))
    is_excited = np.isfinite(noise)
    weight = (variance / (noise + variance) / count)[is_excited]
    excess = (np.abs(measured - first) ** 2 / (noise + variance))[is_excited]
    variance = variance * max(1.0, np.average(excess, weights=weight))
    final = fit(mean, directions, measured, np.sqrt(noise + variance * count))
    found = final.copy()
    for k in np.flatnonzero(is_excited):
        precision = np.array([1 / noise[k], 1 / variance[k]])
        found[k] = precision @ np.array([measured[k], final[k]]) / precision.sum()
    return found

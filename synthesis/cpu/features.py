"""What the generator reads of one ear's paths (`Synthesizer.path_ratio`, `path_features`)."""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse import csr_array

from synthesis.conventions import SAMPLE_RATE_HZ
from synthesis.cpu.minimum_phase import MinimumPhase, unit
from synthesis.cpu.refinement import squared
from synthesis.cpu.transforms import Complex, Real, RealTransform
from synthesis.features import N_CHANNELS
from synthesis.frequency_grid import LogFrequencyGrid
from synthesis.path_ratio import HELD_HIGH_HZ, HELD_LOW_HZ, MAGNITUDE_FLOOR, REGULARISATION

_TINY = float(np.finfo(np.float32).tiny)


class FeatureReader:
    """Pooled log paths and features on one generator's grid, from a held-band base. For one thread."""

    def __init__(self, grid: LogFrequencyGrid, transform: RealTransform) -> None:
        """transform: of the generator's Fourier grid."""
        self._minimum_phase = MinimumPhase(transform)
        n_bins = transform.n // 2 + 1
        # Each bin lies below few points' hats: 2 in 128 of the pooling matrix' entries are not zero.
        self._pooling = csr_array(grid.pooling.numpy().T)
        self._frequency = self._pooling @ np.linspace(-1, 1, n_bins, dtype=np.float32)
        spacing_hz = SAMPLE_RATE_HZ / transform.n
        self._low, self._high = math.ceil(HELD_LOW_HZ / spacing_hz), math.floor(HELD_HIGH_HZ / spacing_hz)
        # Side by side, for one product pools them all: four complex phases, three logarithms, nothing.
        columns = np.zeros((n_bins, 12), np.float32)
        self._columns, self._phases, self._logs = columns, columns[:, :8].view(np.complex64), columns[:, 8:11]

    def read(self, primary: Complex, secondary: Complex) -> tuple[Real, Real, Real]:
        """log_base [n_bins], log_paths [2, n_points] and features [12, n_points]."""
        primary_power, secondary_power = squared(primary), squared(secondary)
        epsilon_squared = np.float32(REGULARISATION**2) * secondary_power.max()
        # Squared twice, a level of 1e-11 would leave single precision.
        scale = 1 / (secondary_power + epsilon_squared)
        ratio_power = (primary_power * scale) * (secondary_power * scale)
        columns = [_floored_log(power) for power in (ratio_power, primary_power, secondary_power)]
        for column, values in enumerate(columns):
            self._logs[:, column] = values
        log_base = columns[0].copy()
        log_base[: self._low] = log_base[self._low]
        log_base[self._high + 1 :] = log_base[self._high]

        ratio, mismatch, unit_primary, unit_secondary = self._phases.T
        np.multiply(primary, 1 / np.sqrt(np.maximum(primary_power, _TINY)), out=unit_primary)
        np.multiply(secondary, 1 / np.sqrt(np.maximum(secondary_power, _TINY)), out=unit_secondary)
        np.multiply(unit_primary, np.conj(unit_secondary), out=ratio)
        np.multiply(ratio, unit(-self._minimum_phase.phase(log_base)), out=mismatch)

        pooled = np.ascontiguousarray((self._pooling @ self._columns).T)
        phases, logs = pooled[:8], pooled[8:11]
        # Pooling is a mean, so a standardised channel's pooled one is the pooled channel, standardised alike.
        ratio_log, *path_logs = (_standardised(each, values) for each, values in zip(logs, columns, strict=True))
        features = np.empty((N_CHANNELS, pooled.shape[1]), np.float32)
        features[0], features[1], features[2:6] = ratio_log, self._frequency, phases[:4]
        features[6:8], features[8:] = path_logs, phases[4:]
        return log_base, logs[1:], features


def _standardised(pooled: Real, values: Real) -> Real:
    """By mean and SD of values."""
    mean = np.add.reduce(values) / np.float32(len(values))
    deviation = values - mean
    standard: Real = (pooled - mean) / max(math.sqrt(deviation @ deviation / len(values)), 1e-6)
    return standard


def _floored_log(power: Real) -> Real:
    """Natural log of magnitudes from their squares, floored 120 dB below the largest."""
    floor = max(np.float32(MAGNITUDE_FLOOR**2) * power.max(), _TINY)
    logs = np.log(np.maximum(power, floor))
    logs *= np.float32(0.5)
    return logs

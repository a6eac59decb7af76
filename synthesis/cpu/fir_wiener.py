"""The finite Wiener filter of one ear (`synthesis.fir_wiener`)."""

from __future__ import annotations

import numpy as np
import torch

from synthesis.conventions import N_TAPS
from synthesis.cpu.minimum_phase import MinimumPhase
from synthesis.cpu.refinement import squared
from synthesis.cpu.toeplitz import ToeplitzSolver
from synthesis.cpu.transforms import Complex, Real, RealTransform
from synthesis.fir_wiener import (
    CEILING_SHARPNESS,
    DAMPING,
    HIGH_EDGE_HZ,
    LOW_EDGE_HZ,
    N_ITERATIONS,
    drive_ceiling,
    starting_weight,
)
from synthesis.frequency_grid import LogFrequencyGrid
from synthesis.generator import NEPER_PER_DB

_TINY = float(np.finfo(np.float32).tiny)
_UNTOUCHED_NEPER = -1.0
"""A response that stays this far below its ceiling is bent by less than 1e-5 neper: it is left as it is."""


class FirWiener:
    """Taps from a generator's corrections. For one thread."""

    def __init__(self, grid: LogFrequencyGrid, transform: RealTransform, solver: ToeplitzSolver) -> None:
        """grid: the generator's; transform and solver: of its Fourier grid."""
        self._transform = transform
        self._solver = solver
        self._minimum_phase = MinimumPhase(transform)
        n_points = grid.n_points
        # The start is affine in the log paths: a constant, their share, and the mean that levels it.
        silent = torch.zeros(1, 2, n_points)
        self._start = starting_weight(silent, grid.points_hz)[0].numpy()
        self._ceiling = drive_ceiling(silent, grid.points_hz)[0].numpy()
        between = ((grid.points_hz > LOW_EDGE_HZ) & (grid.points_hz < HIGH_EDGE_HZ)).numpy()
        self._average_between = (between / between.sum()).astype(np.float32)
        # How many bins lie between each point and the next, and how far on each of them is.
        self._spans = np.bincount(grid.lower.numpy(), minlength=n_points - 1)
        self._fraction = grid.fraction.numpy()

    def design(
        self, primary: Complex, secondary: Complex, log_paths: Real, correction: Real, max_gain_db: float | None
    ) -> Real:
        """Taps [2048]; log_paths [2, n_points] and correction [2, n_points] on the generator's own grid."""
        log_primary, log_secondary = log_paths
        log_ratio = log_primary - log_secondary
        terms = np.empty((3, len(log_primary)), np.float32)
        np.add(self._start, 2 * correction, out=terms[:2])
        terms[0] += 2 * (log_ratio @ self._average_between - log_primary)
        np.add(self._ceiling, log_ratio, out=terms[2])
        log_weight, log_penalty, log_ceiling = self._spread(terms)
        if max_gain_db is not None:
            np.minimum(log_ceiling, np.float32(max_gain_db * NEPER_PER_DB), out=log_ceiling)

        weight = np.exp(log_weight)
        secondary_power = squared(secondary)
        drive = np.sqrt(squared(primary) * secondary_power)
        drive *= np.exp(-log_ceiling)
        drive -= secondary_power
        drive *= weight
        symbol = np.maximum(np.exp(log_penalty), drive)
        symbol += weight * secondary_power
        symbol += np.float32(DAMPING / len(symbol)) * np.add.reduce(symbol)
        matched = np.conj(secondary)
        matched *= primary
        matched *= weight
        rhs = self._transform.inverse(matched)[:N_TAPS].copy()
        taps = self._solver.solve(symbol, rhs, n_iterations=N_ITERATIONS).value
        return self._below_ceiling(taps, log_ceiling)

    def _spread(self, terms: Real) -> Real:
        """`LogFrequencyGrid.spread`: [n_terms, n_points] -> [n_terms, n_bins]."""
        spread = np.repeat(np.diff(terms), self._spans, axis=1)
        spread *= self._fraction
        spread += np.repeat(terms[:, :-1], self._spans, axis=1)
        return spread

    def _below_ceiling(self, taps: Real, log_ceiling: Real) -> Real:
        response = self._transform.forward(taps).copy()
        excess = np.log(np.maximum(squared(response), _TINY))
        excess *= np.float32(0.5)
        excess -= log_ceiling
        if excess.max() < _UNTOUCHED_NEPER:
            return taps
        # softplus, in the form that neither overflows nor loses small values
        sharp = np.float32(CEILING_SHARPNESS)
        bend = np.exp(-sharp * np.abs(excess))
        bend += 1
        log_bend = np.log(bend)
        log_bend /= -sharp
        log_bend -= np.maximum(excess, 0)
        phase = self._minimum_phase.phase(log_bend)
        gain = np.exp(log_bend)
        bending = np.empty_like(response)
        np.multiply(gain, np.cos(phase), out=bending.real)
        np.multiply(gain, np.sin(phase), out=bending.imag)
        bending *= response
        return self._transform.inverse(bending)[:N_TAPS].copy()

"""Gauss-Newton updates of one ear's filter in the `fast` and `fine` profiles (`synthesis.gauss_newton`)."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from synthesis.conventions import N_TAPS
from synthesis.cpu.bands import BandSums
from synthesis.cpu.toeplitz import ToeplitzSolver
from synthesis.cpu.transforms import Complex, Real, RealTransform
from synthesis.fir_wiener import DRIVE_LIMIT
from synthesis.gauss_newton import (
    DAMPING_FLOOR,
    FAST,
    LEAST_CEILING,
    MOST_CEILING,
    SILENCE,
    STEP_SCALES,
    SUFFICIENT_DECREASE,
    TEMPERATURE,
    VERDICTS,
)
from synthesis.noise_reduction import HIGH_BANDS
from synthesis.octave_bands import NR_BANDS

_TINY = float(np.finfo(np.float32).tiny)


class Refiner:
    """Updates on one grid, with its buffers. For one thread."""

    def __init__(self, transform: RealTransform, solver: ToeplitzSolver) -> None:
        """transform: of the profile's grid; solver: on that grid."""
        self._transform = transform
        self._solver = solver
        n_bins = transform.n // 2 + 1
        self._bands = BandSums(FAST.risk_bands, transform.n)
        self._high = BandSums(HIGH_BANDS, transform.n)
        first = FAST.risk_bands.index(NR_BANDS[0])
        self._in_target = np.zeros(len(FAST.risk_bands), np.float64)
        self._in_target[first : first + len(NR_BANDS)] = 1 / len(NR_BANDS)
        per_octave = np.zeros(n_bins)
        per_octave[1:-1] = 1 / np.arange(1, n_bins - 1)
        self._ceiling_weight = (FAST.ceiling_weight * per_octave / per_octave.sum()).astype(np.float32)

    def begin(
        self, primary: Complex, secondary: Complex, psd: Real, taps: Real, max_gain_db: float | None
    ) -> EarRefining:
        """No update yet of taps [2048]; spectra and psd on the profile's grid."""
        return EarRefining(self, _Problem(self, primary, secondary, psd, max_gain_db), primary, secondary, taps)


class EarRefining:
    """Updates of one ear's filter, one at a time (`synthesis.gauss_newton.Refining`).

    taps: [2048]; objective [n_applied + 1], step_scale and pcg_residual [n_applied]; stopped: index into VERDICTS.
    """

    def __init__(
        self, refiner: Refiner, problem: _Problem, primary: Complex, secondary: Complex, taps: Real
    ) -> None:
        self._own, self._problem, self._secondary = refiner, problem, secondary
        self._response = refiner._transform.forward(taps).copy()
        self._residual = primary - secondary * self._response
        self._band_power = problem.band_power(self._residual)
        self.taps = taps
        self.objective = [problem.value(self._band_power, np.abs(self._response))]
        self.step_scale: list[float] = []
        self.pcg_residual: list[float] = []
        self.stopped = 0

    def update(self) -> None:
        """One update, unless it has stopped."""
        if self.stopped:
            return
        own, problem, value = self._own, self._problem, self.objective[-1]
        symbol, descent = problem.normal_equations(self._residual, self._response, self._band_power)
        # The column's first sample: the mean over the whole circle.
        both = 2 * float(np.add.reduce(symbol, dtype=np.float64)) - float(symbol[0]) - float(symbol[-1])
        level = both / own._transform.n
        symbol += np.float32(FAST.damping * max(level, 1e-6) + DAMPING_FLOOR)
        step, solve_residual = own._solver.solve(
            symbol, descent, n_iterations=FAST.n_iterations, tolerance=FAST.tolerance
        )
        step_response = own._transform.forward(step).copy()
        change = self._secondary * step_response
        cross, square = problem.step_powers(self._residual, change)
        decrease = -math.inf
        for scale in STEP_SCALES:
            power = np.maximum(self._band_power - 2 * scale * cross + scale**2 * square, SILENCE)
            trial = problem.value(power, np.abs(self._response + np.float32(scale) * step_response))
            gained = value - trial if math.isfinite(trial) else -math.inf
            decrease = max(decrease, gained)
            if gained >= SUFFICIENT_DECREASE * max(abs(value), 1.0):
                break
        else:
            self.stopped = VERDICTS.index("converged" if decrease > 0 else "no_decrease")
            return
        scale32 = np.float32(scale)
        self.taps = self.taps + scale32 * step
        self._response += scale32 * step_response
        self._residual -= scale32 * change
        self._band_power = problem.band_power(self._residual)
        self.objective.append(problem.value(self._band_power, np.abs(self._response)))
        self.step_scale.append(scale)
        self.pcg_residual.append(solve_residual)


class _Problem:
    """J for one ear, with what its derivatives need (`synthesis.gauss_newton.TapObjective`)."""

    def __init__(
        self, refiner: Refiner, primary: Complex, secondary: Complex, psd: Real, max_gain_db: float | None
    ) -> None:
        self._own = refiner
        bands = refiner._bands
        self._secondary_conj = np.conj(secondary)
        self._secondary_power = squared(secondary)
        primary_power = squared(primary)
        power = psd * primary_power
        disturbance = bands.sums(power)
        # A primary path that is silent in every band must not turn the reference into infinite weights, nor one
        # that is silent at every point of this grid.
        loudest = float(psd.sum()) * float(primary_power.max())
        total = max(float(disturbance.sum()), SILENCE * loudest, _TINY)
        self._weight = psd * np.float32(1 / total if total > _TINY else 0.0)
        self._disturbance = disturbance / total + SILENCE
        ceiling = np.full(len(psd), np.inf if max_gain_db is None else 10 ** (max_gain_db / 20), np.float32)
        high = refiner._high
        ratio = np.sqrt(high.sums(primary_power) / np.maximum(high.sums(self._secondary_power), _TINY))
        drive = high.spread(np.minimum(np.maximum(DRIVE_LIMIT * ratio, LEAST_CEILING), MOST_CEILING))
        np.minimum(ceiling[high.bins], drive, out=ceiling[high.bins])
        self._inverse_ceiling = 1 / ceiling

    def band_power(self, residual: Complex) -> NDArray[np.float64]:
        """E_b, [n_bands]."""
        return self._own._bands.sums(self._weight * squared(residual)) + SILENCE

    def value(self, band_power: NDArray[np.float64], gain: Real) -> float:
        """J, from E_b and |W|."""
        log_ratio = np.log(band_power / self._disturbance)
        scaled = log_ratio / TEMPERATURE
        largest = scaled.max()
        risk = TEMPERATURE * (largest + math.log(np.add.reduce(np.exp(scaled - largest)) / len(scaled)))
        overshoot = np.maximum(gain * self._inverse_ceiling - 1, 0)
        overshoot *= overshoot
        penalty = float(self._own._ceiling_weight @ overshoot)
        return float(log_ratio @ self._own._in_target) + FAST.risk_weight * float(risk) + penalty

    def normal_equations(
        self, residual: Complex, response: Complex, band_power: NDArray[np.float64]
    ) -> tuple[Real, Real]:
        """The undamped normal matrix' symbol [n_bins], and minus the gradient of J [2048]."""
        own = self._own
        log_ratio = np.log(band_power / self._disturbance) / TEMPERATURE
        softmax = np.exp(log_ratio - log_ratio.max())
        softmax /= softmax.sum()
        weight = np.zeros_like(self._weight)
        bins = own._bands.bins
        band_weight = (own._in_target + FAST.risk_weight * softmax) / band_power
        np.multiply(self._weight[bins], own._bands.spread(band_weight), out=weight[bins])
        symbol = weight * self._secondary_power
        descent = weight * self._secondary_conj
        descent *= residual
        # The ceiling's residual is the excess of |W|, linearised towards ceiling * W / |W|.
        gain = np.abs(response)
        overshoot = np.maximum(gain * self._inverse_ceiling - 1, 0)
        if overshoot.any():
            pull = own._ceiling_weight * self._inverse_ceiling
            symbol += pull * self._inverse_ceiling * (overshoot > 0)
            descent -= response * (pull * overshoot / np.maximum(gain, _TINY))
        n_fft = np.float32(own._transform.n)
        symbol *= n_fft
        return symbol, own._transform.inverse(descent)[:N_TAPS] * n_fft

    def step_powers(self, residual: Complex, change: Complex) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Cross and square terms of E_b as a quadratic in the step's scale: trials need no transform."""
        cross = residual.real * change.real
        cross += residual.imag * change.imag
        sums = self._own._bands.sums
        return sums(self._weight * cross), sums(self._weight * squared(change))


def squared(spectrum: Complex) -> Real:
    """|X|^2."""
    power = np.square(spectrum.real)
    power += np.square(spectrum.imag)
    return power

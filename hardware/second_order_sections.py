"""Design n second-order sections that minimise J directly.

    W(s) = g prod_i (s^2 + s z_i / q_i + z_i^2) / (s^2 + s p_i / r_i + p_i^2),    s = j tan(pi f / f_s)

The variable is that of the bilinear transform, so one form serves every sample rate. The unknowns are the logarithms of
p, r, z, q and g: a section is stable for all their values, real poles (r < 1/2) included, and d ln W / d theta is a
short formula. J is minimised by Levenberg-Marquardt steps on the residual of `ResidualPower`. Sections are added one at
a time, tried at several frequencies, to the best filter with fewer, so that more sections are never worse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardware.residual_power import Complex, Real, ResidualPower, centres_hz, spread
from synthesis.conventions import DESIGN_N_FFT, N_BINS, SAMPLE_RATE_HZ
from synthesis.errors import check_interruption
from synthesis.gain_curve import GainCurve, ceiling_at

MAX_SECTIONS = 32
# Frequency range of poles and zeros (Hz).
LOWEST_HZ, HIGHEST_HZ = 3.0, 22_000.0
# Highest frequency of the fit over the sample rate; at one half the variable s is infinite.
HIGHEST_SHARE = 0.499
# Range of r and q; sharper resonances do not recur from one fit of the earphone to the next.
QUALITIES = (0.1, 12.0)
# An added section is tried at this many frequencies, evenly per octave, jittered by up to SPREAD nepers.
N_PLACES, SPREAD = 6, 0.2
# Steps for all tried frequencies on half of the sub-bands, then the number of the best kept and their steps.
ADDED_STEPS, N_TRIED, TRIED_STEPS = 3, 3, 6
# Steps on all sub-bands after a section is added, the last one included: the result for n starts n + 1.
FINE_STEPS = 12
# Stop when LOOK_EVERY steps have lowered no row's J by SETTLED (0.004 dB).
SETTLED, LOOK_EVERY = 1e-3, 10
# Most loss of mean noise reduction (50 Hz to 5 kHz) for a section that lowers J in other bands.
MAX_REDUCTION_LOST_DB = 0.04
# Quality of an added section, whose pole and zero coincide at first.
START_QUALITY = 1.5
# Largest change of an unknown in one step, in nepers.
MAX_STEP = 1.0
# Weight of the mean square excess of |W| over the ceiling; what remains of it costs less than 0.1 dB.
CEILING_WEIGHT = 100.0
# Attempts, and steps of one, to correct a |W| above MAX_EXCESS times the ceiling by lowering the fit's ceiling.
N_CORRECTIONS, CORRECTION_STEPS, MAX_EXCESS = 3, 20, 1.005
# Steps after quantising one section, with which the others make up for its moved resonance; their ceiling weight.
REFIT_STEPS, HELD_CEILING_WEIGHT = 10, 1e4
# Loss of J (0.04 dB) that is accepted without another attempt.
HELD_LOSS = 0.01
_LEAST_GAIN = 1e-8


@dataclass(frozen=True, eq=False)
class Sections:
    """A cascade of second-order sections."""

    # B0, b1, b2, 1, a1, a2 per section, float64 [n, 6] (SciPy's `sos`).
    rows: NDArray[np.float64]
    sample_rate_hz: float

    def response(self, frequency_hz: NDArray[np.floating]) -> Complex:
        """Evaluate W at frequencies up to half the sample rate, complex [n]."""
        return np.prod(section_responses(self.rows, frequency_hz, self.sample_rate_hz), axis=0)

    def at_design_rate(self) -> Complex:
        """Evaluate W on the design grid: zero above half the sample rate, complex [16385]."""
        frequency_hz = np.arange(N_BINS) * (SAMPLE_RATE_HZ / DESIGN_N_FFT)
        audible = frequency_hz <= self.sample_rate_hz / 2
        response = np.zeros(N_BINS, complex)
        response[audible] = self.response(frequency_hz[audible])
        return response

    @property
    def is_stable(self) -> bool:
        """Return whether all poles lie inside the unit circle."""
        a1, a2 = self.rows[:, 4], self.rows[:, 5]
        return bool(((np.abs(a2) < 1) & (np.abs(a1) < 1 + a2)).all())


# Quantises sections, of which the first n are quantised already.
Held = Callable[[Sections, int], Sections]


def section_responses(rows: Real, frequency_hz: NDArray[np.floating], sample_rate_hz: float) -> Complex:
    """Evaluate the response of each section, complex [n_sections, n_frequencies]."""
    delay = np.exp(-2j * np.pi * np.asarray(frequency_hz, np.float64) / sample_rate_hz)
    powers = np.stack([np.ones_like(delay), delay, delay**2])
    responses: Complex = (rows[:, :3] @ powers) / (rows[:, 3:] @ powers)
    return responses


def design_sections(
    power: ResidualPower,
    n_sections: int,
    *,
    sample_rate_hz: float = 48_000.0,
    max_gain_db: float | GainCurve = np.inf,
    rounded: Callable[[Sections], Sections] | None = None,
    held: Held | None = None,
    lowest_held_hz: float = LOWEST_HZ,
) -> Sections:
    """Minimise J under a ceiling on |W|, with all poles and zeros from 3 Hz to 22 kHz; deterministic.

    Parameters
    ----------
    power
        Residual power of the conditions.
    n_sections
        Number of sections.
    max_gain_db
        Ceiling on |W|.
    rounded
        Quantises finished sections; its result is returned if it costs at most HELD_LOSS.
    held
        Quantises the leading sections, so that the others can still be fitted to the loss.
    lowest_held_hz
        Lowest frequency of poles and zeros that `held` resolves.

    Returns
    -------
    Sections
        The sections, quantised if `rounded` or `held` is given.
    """

    power = power.below(sample_rate_hz / 2)
    peaks: list[tuple[float, float]] = []  # frequencies at which |W| exceeded its ceiling, and by what factor

    def new_fit(power: ResidualPower, n: int, lowest_hz: float) -> _Fit:
        fit = _Fit(power, n, sample_rate_hz, max_gain_db, lowest_hz)
        for peak in peaks:
            fit.lower_ceiling(*peak)
        return fit

    def one_more_each_time(lowest_hz: float) -> tuple[_Fit, Real]:
        random, coarse_power = np.random.default_rng(0), power.halved()
        best = np.log([[max(new_fit(power, 1, lowest_hz).level, _LEAST_GAIN)]])
        for n in range(1, n_sections + 1):
            fit, coarse = (new_fit(item, n, lowest_hz) for item in (power, coarse_power))
            rows = coarse.steps(coarse.with_one_more(best, N_PLACES, random), ADDED_STEPS, CEILING_WEIGHT)
            rows = coarse.steps(rows[:N_TRIED], TRIED_STEPS, CEILING_WEIGHT)
            # The result with fewer sections is a candidate too, or the coarse sub-bands might lose it.
            unchanged = fit.with_one_more(best, 1, random)
            rows = fit.steps(np.concatenate((rows[:1], unchanged)), FINE_STEPS, CEILING_WEIGHT)
            for _ in range(N_CORRECTIONS):
                excess, at_hz = largest_excess(fit.realise(rows[0]), max_gain_db)
                if excess < MAX_EXCESS:
                    break
                # Corrected before sections are added that rely on the excess.
                peaks.append((at_hz, excess))
                fit.lower_ceiling(at_hz, excess)
                rows = fit.steps(rows, CORRECTION_STEPS, CEILING_WEIGHT)
            if n > 1 and fit.reduction_db(rows) < fit.reduction_db(unchanged) - MAX_REDUCTION_LOST_DB:
                rows = np.concatenate((unchanged, rows))
            best = rows[:1]
        return fit, rows

    fit, unknowns = one_more_each_time(LOWEST_HZ)
    exact = _corrected(fit, unknowns[:1], max_gain_db)
    if held is None:
        return exact
    aim = objective(power, exact)
    if rounded is not None and objective(power, once := rounded(exact)) < aim + HELD_LOSS:
        return once
    if lowest_held_hz > LOWEST_HZ:
        # Minima of both fits: the limit spoils some of those found with free poles.
        free = unknowns
        fit, unknowns = one_more_each_time(lowest_held_hz)
        aim = min(aim, objective(power, _corrected(fit, unknowns[:1], max_gain_db)))
        moved = fit.steps(fit.within(free), FINE_STEPS, CEILING_WEIGHT)
        unknowns = np.concatenate((unknowns[:1], moved, unknowns[1:]))
    # Quantise all at once; if that costs too much, one after the other, starting from each row in turn.
    best = _corrected(fit, unknowns[:1], max_gain_db, held)
    for row in unknowns:
        if objective(power, best) < aim + HELD_LOSS:
            break
        other = _one_after_the_other(new_fit(power, n_sections, lowest_held_hz), row[None], max_gain_db, held)
        best = min(best, other, key=lambda item: objective(power, item))
    return best


def _corrected(fit: _Fit, unknowns: Real, max_gain_db: float | GainCurve, held: Held | None = None) -> Sections:
    """Realise and optionally quantise sections, and lower |W| below its ceiling between the fitted frequencies."""
    for n_left in reversed(range(N_CORRECTIONS + 1)):
        found = fit.realise(unknowns[0])
        if held is not None:
            found = held(found, 0)
        excess, at_hz = largest_excess(found, max_gain_db)
        if excess < MAX_EXCESS or n_left == 0:
            break
        fit.lower_ceiling(at_hz, excess)
        unknowns = fit.steps(unknowns.copy(), CORRECTION_STEPS, CEILING_WEIGHT)
    return _turned_down(found, max_gain_db, held)


def objective(power: ResidualPower, sections: Sections) -> float:
    """Compute J, infinite for unstable sections."""
    if not sections.is_stable:
        return np.inf
    return float(power.objective(power.in_bands(sections.response(centres_hz(power.per_band))))[0])


def _turned_down(sections: Sections, max_gain_db: float | GainCurve, held: Held | None = None) -> Sections:
    """Scale the last section so that the ceiling holds."""
    excess, _ = largest_excess(sections, max_gain_db)
    if excess <= 1:
        return sections
    rows = sections.rows.copy()
    rows[-1, :3] /= excess
    lower = Sections(rows, sections.sample_rate_hz)
    return lower if held is None else held(lower, len(rows) - 1)


def _one_after_the_other(fit: _Fit, unknowns: Real, max_gain_db: float | GainCurve, held: Held) -> Sections:
    """Quantise one section after the other from the lowest pole on, and refit the others to the loss."""
    found = fit.realise(unknowns[0])
    for n_held in range(1, fit.n):
        unknowns = fit.hold(held(found, n_held - 1).rows[:n_held], unknowns)
        excess, at_hz = largest_excess(fit.realise(unknowns[0]), max_gain_db)
        if excess > MAX_EXCESS:
            fit.watch(at_hz)
        unknowns = fit.steps(unknowns, REFIT_STEPS, HELD_CEILING_WEIGHT)
        found = fit.realise(unknowns[0])
    return _turned_down(held(found, len(found.rows) - 1), max_gain_db, held)


class _Fit:
    """Levenberg-Marquardt fit of n sections behind quantised ones.

    The unknowns are rows [ln p, ln r, ln z, ln q, ln g], real [n_starts, 4 n + 1]; p and z in tan(pi f / f_s).
    """

    def __init__(
        self,
        power: ResidualPower,
        n_sections: int,
        sample_rate_hz: float,
        max_gain_db: float | GainCurve,
        lowest_hz: float,
    ) -> None:
        self.power, self.n, self.sample_rate_hz = power, n_sections, sample_rate_hz
        # The ceiling also holds outside the bands, where J does not constrain W.
        centres = centres_hz(power.per_band)
        self.n_scored = len(centres)
        outside = np.concatenate(
            ([0.0], np.geomspace(1, 18, 40), np.geomspace(22_500, HIGHEST_SHARE * sample_rate_hz, 8))
        )
        # Sub-bands above half the rate, on which W has no effect, count as its last point.
        frequency_hz = np.concatenate((centres, outside)).clip(max=HIGHEST_SHARE * sample_rate_hz)
        self.frequency = self._warped(frequency_hz)
        self.highest_hz = min(HIGHEST_HZ, 0.46 * sample_rate_hz)
        self.limits = np.log(self._warped(np.array([lowest_hz, self.highest_hz])))
        self.ceiling = ceiling_at(max_gain_db, frequency_hz)
        # Sign and level of W, from the conditions' optima around the middle of the bands.
        weight = (
            power.curvature * np.abs(power.optimum) / np.maximum(spread(power.disturbance, power.per_band), 1e-30)
        )
        mean = (weight * power.optimum).sum(0)
        self.sign = 1.0 if mean.real.sum() >= 0 else -1.0
        self.level = float(np.median(np.abs(power.optimum[:, centres < 0.5 * sample_rate_hz])))
        self.held = Sections(np.empty((0, 6)), sample_rate_hz)
        self.before: Complex = np.ones(len(self.frequency), complex)

    def lower_ceiling(self, frequency_hz: float, excess: float) -> None:
        """Lower the ceiling by the factor by which |W| exceeded it at a frequency, and check that frequency from now
        on.
        """
        self.watch(frequency_hz)
        self.ceiling /= excess

    def watch(self, frequency_hz: float) -> None:
        """Check the ceiling at one more frequency, such as a resonance between the others."""
        frequency_hz = min(frequency_hz, HIGHEST_SHARE * self.sample_rate_hz)
        warped = self._warped(np.array(frequency_hz))
        nearest = np.abs(self.frequency - warped).argmin()
        self.frequency = np.append(self.frequency, warped)
        self.ceiling = np.append(self.ceiling, self.ceiling[nearest])
        self.before = np.append(self.before, self.held.response(np.array([frequency_hz])))

    def hold(self, rows: Real, unknowns: Real) -> Real:
        """Move quantised sections out of the fit, and drop the unknowns of the section that the last one replaces."""
        self.held = Sections(rows, self.sample_rate_hz)
        self.before = self.held.response(np.arctan(self.frequency) * (self.sample_rate_hz / np.pi))
        parts = unknowns[:, :-1].reshape(-1, 4, self.n)
        # Same pairing as in `realise`: lowest pole with lowest zero.
        poles, zeros = (np.argsort(parts[:, i : i + 1], -1)[..., 1:].repeat(2, 1) for i in (0, 2))
        parts = np.take_along_axis(parts, np.concatenate((poles, zeros), 1), -1)
        self.n -= 1
        # An unquantised section has gain one at half the sample rate.
        (gain,) = section_responses(rows[-1:], np.array([self.sample_rate_hz / 2]), self.sample_rate_hz)[0].real
        self.sign *= np.sign(gain)
        return np.concatenate((parts.reshape(len(parts), -1), unknowns[:, -1:] - np.log(np.abs(gain))), 1)

    def _warped(self, frequency_hz: Real) -> Real:
        warped: Real = np.tan(np.pi * frequency_hz / self.sample_rate_hz)
        return warped

    def with_one_more(self, unknowns: Real, n_places: int, random: np.random.Generator) -> Real:
        """Add a section without effect, its pole on its zero, at several frequencies.

        Parameters
        ----------
        unknowns
            Unknowns with one section fewer, [1, 4 n - 3].
        n_places
            Number of frequencies from 15 Hz to 15 kHz, or as high as the rate allows.
        random
            Jitters the frequencies.

        Returns
        -------
        Real
            Unknowns, [n_places, 4 n + 1].
        """
        lowest, highest = np.log([15.0, min(15_000.0, self.highest_hz)]).tolist()
        places = np.linspace(lowest, highest, n_places + 2)[1:-1] + random.uniform(-SPREAD, SPREAD, n_places)
        added = np.full((n_places, 4, 1), np.log(START_QUALITY))
        added[:, 0::2, 0] = np.log(self._warped(np.exp(places)))[:, None]
        before, gain = np.repeat(unknowns[:, :-1], n_places, 0), np.repeat(unknowns[:, -1:], n_places, 0)
        parts = np.concatenate((before.reshape(n_places, 4, self.n - 1), added), -1)
        return self.within(np.concatenate((parts.reshape(n_places, -1), gain), 1))

    def within(self, unknowns: Real) -> Real:
        """Clip unknowns to their limits."""
        parts = unknowns[:, : 4 * self.n].reshape(-1, 4, self.n)
        parts[:, 0::2] = parts[:, 0::2].clip(*self.limits)
        parts[:, 1::2] = parts[:, 1::2].clip(*np.log(QUALITIES))
        unknowns[:, : 4 * self.n] = parts.reshape(len(unknowns), -1)  # reshape has copied
        return unknowns

    def response(self, unknowns: Real) -> Complex:
        """Evaluate W, complex [n_starts, n]."""
        return self._ratio(unknowns, self.polynomials(unknowns))

    def _ratio(self, unknowns: Real, polynomials: tuple[Real, Real, Real]) -> Complex:
        real, imaginary, _ = polynomials
        values = np.empty(real.shape, complex)
        values.real, values.imag = real, imaginary
        ratio: Complex = values[:, 1].prod(1) / values[:, 0].prod(1)
        ratio *= self.before * (self.sign * np.exp(unknowns[:, -1:]))
        return ratio

    def polynomials(self, unknowns: Real) -> tuple[Real, Real, Real]:
        """Evaluate s^2 + s w / q + w^2, poles first: real and imaginary parts [n_starts, 2, n, n_bins], and w^2."""
        parts = unknowns[:, :-1].reshape(-1, 2, 2, self.n, 1)
        root, quality = np.exp(parts[:, :, 0]), np.exp(parts[:, :, 1])
        return root**2 - self.frequency**2, (root / quality) * self.frequency, root**2

    def slopes(self, polynomials: tuple[Real, Real, Real]) -> NDArray[np.float32]:
        """Compute real and imaginary parts of d ln W / d theta, [n_starts, 4 n + 1, 2, n].

        Single precision suffices for a step, since its gain is evaluated in double precision.
        """
        real, imaginary, square = (polynomial.astype(np.float32) for polynomial in polynomials)
        over = 1 / (real**2 + imaginary**2)
        over[:, 0] *= -1
        slopes = np.empty((len(real), 4 * self.n + 1, 2, len(self.frequency)), np.float32)
        # Derivative in ln w: (j b + 2 w^2) / (a + j b); in ln q: -j b / (a + j b).
        parts = slopes[:, :-1].reshape(-1, 2, 2, self.n, 2, len(self.frequency))
        imaginary_over = imaginary * over
        np.multiply(-imaginary, imaginary_over, out=parts[:, :, 1, :, 0])
        np.multiply(-real, imaginary_over, out=parts[:, :, 1, :, 1])
        square *= 2
        np.subtract(square * real * over, parts[:, :, 1, :, 0], out=parts[:, :, 0, :, 0])
        np.multiply(real - square, imaginary_over, out=parts[:, :, 0, :, 1])
        slopes[:, -1, 0], slopes[:, -1, 1] = 1, 0
        return slopes

    def objective(self, response: Complex, ceiling_weight: float) -> tuple[Real, Real, Real]:
        """Compute J with the ceiling's penalty [n_starts], and the weights of residuals and excess."""
        power = self.power.in_bands(response[:, : self.n_scored])
        value, slope = self.power.objective(power)
        weights = spread(slope / (power + 1e-12), self.power.per_band) * self.power.curvature
        excess = (np.abs(response) / self.ceiling - 1).clip(0)
        penalty = ceiling_weight / response.shape[-1]
        return value + penalty * (excess**2).sum(-1), weights, penalty * (excess > 0) / self.ceiling**2

    def normal_equations(
        self, polynomials: tuple[Real, Real, Real], response: Complex, weights: Real, over: Real
    ) -> tuple[Real, Real]:
        """Compute J^T J, [n_starts, 4 n + 1, 4 n + 1], and J^T r of the weighted residuals.

        Residuals are turned by the phase of W, so that their real parts include the excess of |W|.
        """
        total = weights.sum(1)
        # The conditions' residuals differ from that of their weighted mean optimum by terms independent of W.
        towards = (weights * self.power.optimum).sum(1) / np.maximum(total, 1e-300)
        scored, magnitude = slice(self.n_scored), np.abs(response)
        away = np.zeros((len(response), 2, response.shape[-1]))
        weight = np.zeros_like(away)
        turned = response[:, scored].conj() * (response[:, scored] - towards)
        away[:, 0, scored], away[:, 1, scored] = total * turned.real, total * turned.imag
        weight[:, :, scored] = (total * magnitude[:, scored] ** 2)[:, None]
        away[:, 0] += over * magnitude * (magnitude - np.minimum(self.ceiling, magnitude))
        weight[:, 0] += over * magnitude**2
        slopes = self.slopes(polynomials)
        flat = slopes.reshape(*slopes.shape[:2], -1)
        gradient = flat @ away.reshape(len(away), -1, 1).astype(np.float32)
        flat *= np.sqrt(weight).reshape(len(weight), 1, -1).astype(np.float32)
        return (flat @ flat.mT).astype(np.float64), gradient.astype(np.float64)

    def reduction_db(self, unknowns: Real) -> float:
        """Compute the noise reduction (dB) of the first row, mean from 50 Hz to 5 kHz."""
        power = self.power.in_bands(self.response(unknowns[:1])[:, : self.n_scored])
        return float(self.power.noise_reduction_db(power)[0])

    def steps(self, unknowns: Real, n_steps: int, ceiling_weight: float) -> Real:
        """Take Levenberg-Marquardt steps on every row, and sort the rows by J."""
        damping = np.full(len(unknowns), 1e-2)
        polynomials = self.polynomials(unknowns)
        response = self._ratio(unknowns, polynomials)
        value, weights, over = self.objective(response, ceiling_weight)
        normal, gradient = self.normal_equations(polynomials, response, weights, over)
        before = value.copy()
        for i in range(1, n_steps + 1):
            check_interruption()
            damped = normal.copy()
            diagonal = np.einsum("mii->mi", damped)
            diagonal += damping[:, None] * (diagonal + 1e-3 * diagonal.mean(-1, keepdims=True)) + 1e-12
            step = -np.linalg.solve(damped, gradient)[..., 0]
            step *= np.minimum(1, MAX_STEP / np.maximum(np.abs(step).max(-1, keepdims=True), 1e-30))
            trial = self.within(unknowns + step)
            polynomials = self.polynomials(trial)
            response = self._ratio(trial, polynomials)
            trial_value, weights, over = self.objective(response, ceiling_weight)
            better = trial_value < value
            damping = np.where(better, np.maximum(damping / 3, 1e-7), np.minimum(damping * 4, 1e4))
            unknowns[better], value[better] = trial[better], trial_value[better]
            if i % LOOK_EVERY == 0:
                if (before - value < SETTLED).all():
                    break
                before = value.copy()
            if better.any():
                real, imaginary, square = polynomials
                normal[better], gradient[better] = self.normal_equations(
                    (real[better], imaginary[better], square[better]),
                    response[better],
                    weights[better],
                    over[better],
                )
        return unknowns[np.argsort(value)]

    def realise(self, unknowns: Real) -> Sections:
        """Convert one row of unknowns to sections in the order of their poles, behind the quantised ones.

        The gain is in the first of them.
        """
        pole, pole_quality, zero, zero_quality = np.exp(unknowns[:-1].reshape(4, self.n))
        # Pair each pole with the nearest zero, which gives the smallest peaks between sections.
        order, zero_order = np.argsort(pole), np.argsort(zero)
        pole, pole_quality = pole[order], pole_quality[order]
        zero, zero_quality = zero[zero_order], zero_quality[zero_order]
        numerator, denominator = _bilinear(zero, zero_quality), _bilinear(pole, pole_quality)
        rows = np.concatenate((numerator, denominator), 1) / denominator[:, :1]
        rows[0, :3] *= self.sign * np.exp(unknowns[-1])
        return Sections(np.concatenate((self.held.rows, rows)), self.sample_rate_hz)


def largest_excess(sections: Sections, max_gain_db: float | GainCurve) -> tuple[float, float]:
    """Find the largest |W| over its ceiling from 0 Hz to half the sample rate, and its frequency (Hz).

    Evaluated at 8192 frequencies, half of them spaced evenly per octave.
    """
    half = sections.sample_rate_hz / 2
    frequency_hz = np.concatenate(([0.0], np.geomspace(0.1, half, 4096), np.linspace(0, half, 4096)))
    excess = np.abs(sections.response(frequency_hz)) / ceiling_at(max_gain_db, frequency_hz)
    largest = int(excess.argmax())
    return float(excess[largest]), float(frequency_hz[largest])


def largest_gain(sections: Sections) -> float:
    """Find the largest |W| from 0 Hz to half the sample rate."""
    return largest_excess(sections, 0.0)[0]


def _bilinear(frequency: Real, quality: Real) -> Real:
    """Transform s^2 + s w / q + w^2 by s = (1 - z^-1) / (1 + z^-1), times (1 + z^-1)^2: coefficients [n, 3]."""
    middle, last = frequency / quality, frequency**2
    coefficients: Real = np.stack((1 + middle + last, 2 * (last - 1), 1 - middle + last), -1)
    return coefficients

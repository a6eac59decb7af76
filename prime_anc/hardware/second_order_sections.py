"""Design n second-order sections that minimise J directly.

J is minimised by Levenberg-Marquardt steps on the residual of `ResidualPower`, over the unknowns of `Cascade`. Sections
are added one at a time, tried at several frequencies, to the best filter with fewer, so that more sections are never
worse.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from prime_anc.hardware.cascade import HIGHEST_SHARE, Cascade
from prime_anc.hardware.residual_power import Complex, Real, ResidualPower, centres_hz, spread
from prime_anc.method.gain_curve import GainCurve, ceiling_at
from prime_anc.method.loops.sections import Sections, section_responses

MAX_SECTIONS = 32
# Frequency range of poles and zeros (Hz).
LOWEST_HZ, HIGHEST_HZ = 3.0, 22_000.0
# Range of r and q; sharper resonances do not recur from one fit of the earphone to the next.
QUALITIES = (0.1, 12.0)
# An added section is tried at this many frequencies, evenly per octave, jittered by up to SPREAD nepers.
N_PLACES, SPREAD = 6, 0.2
# Steps for all tried frequencies on half of the sub-bands, then the number of the best kept and their steps.
ADDED_STEPS, N_TRIED, TRIED_STEPS = 3, 3, 6
# Steps on all sub-bands after a section is added, the last one included: the result for n starts n + 1.
FINE_STEPS = 12
# Most loss of mean noise reduction (50 Hz to 5 kHz) for a section that lowers J in other bands.
MAX_REDUCTION_LOST_DB = 0.04
# Quality of an added section, whose pole and zero coincide at first.
START_QUALITY = 1.5
# Weight of the mean square excess of |W| over the ceiling; what remains of it costs less than 0.1 dB.
CEILING_WEIGHT = 100.0
# Attempts, and steps of one, to correct a |W| above MAX_EXCESS times the ceiling by lowering the fit's ceiling.
N_CORRECTIONS, CORRECTION_STEPS, MAX_EXCESS = 3, 20, 1.005
# Steps after quantising one section, with which the others make up for its moved resonance; their ceiling weight.
REFIT_STEPS, HELD_CEILING_WEIGHT = 10, 1e4
# Loss of J (0.04 dB) that is accepted without another attempt.
HELD_LOSS = 0.01
_LEAST_GAIN = 1e-8


# Quantises sections, of which the first n are quantised already.
Held = Callable[[Sections, int], Sections]


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
    search = _Search(power, sample_rate_hz, max_gain_db)
    fit, unknowns = search.run(n_sections, LOWEST_HZ)
    exact = _corrected(fit, unknowns[:1])
    if held is None:
        return exact
    aim = objective(power, exact)
    if rounded is not None and objective(power, once := rounded(exact)) < aim + HELD_LOSS:
        return once
    if lowest_held_hz > LOWEST_HZ:
        # Minima of both fits: the limit spoils some of those found with free poles.
        free = unknowns
        fit, unknowns = search.run(n_sections, lowest_held_hz)
        aim = min(aim, objective(power, _corrected(fit, unknowns[:1])))
        moved = fit.steps(fit.within(free), FINE_STEPS, CEILING_WEIGHT)
        unknowns = np.concatenate((unknowns[:1], moved, unknowns[1:]))
    # Quantise all at once; if that costs too much, one after the other, starting from each row in turn.
    best = _corrected(fit, unknowns[:1], held)
    for row in unknowns:
        if objective(power, best) < aim + HELD_LOSS:
            break
        other = _one_after_the_other(search.fit(power, n_sections, lowest_held_hz), row[None], held)
        best = min(best, other, key=lambda item: objective(power, item))
    return best


class _Search:
    """Fits of more and more sections, whose ceiling is lowered where |W| of earlier ones exceeded it."""

    def __init__(self, power: ResidualPower, sample_rate_hz: float, max_gain_db: float | GainCurve) -> None:
        self.power, self.sample_rate_hz, self.max_gain_db = power, sample_rate_hz, max_gain_db
        # Frequencies at which |W| exceeded its ceiling, and by what factor.
        self.peaks: list[tuple[float, float]] = []

    def run(self, n_sections: int, lowest_hz: float) -> tuple[_Fit, Real]:
        """Add one section at a time; return the last fit, and its unknowns from the best row on."""
        random, coarse_power = np.random.default_rng(0), self.power.halved()
        best = np.log([[max(self.fit(self.power, 1, lowest_hz).level, _LEAST_GAIN)]])
        for n in range(1, n_sections + 1):
            fit, coarse = (self.fit(item, n, lowest_hz) for item in (self.power, coarse_power))
            rows = coarse.steps(coarse.with_one_more(best, N_PLACES, random), ADDED_STEPS, CEILING_WEIGHT)
            rows = coarse.steps(rows[:N_TRIED], TRIED_STEPS, CEILING_WEIGHT)
            # The result with fewer sections is a candidate too, or the coarse sub-bands might lose it.
            unchanged = fit.with_one_more(best, 1, random)
            rows = fit.steps(np.concatenate((rows[:1], unchanged)), FINE_STEPS, CEILING_WEIGHT)
            rows = self._below_ceiling(fit, rows)
            if n > 1 and fit.reduction_db(rows) < fit.reduction_db(unchanged) - MAX_REDUCTION_LOST_DB:
                rows = np.concatenate((unchanged, rows))
            best = rows[:1]
        return fit, rows

    def fit(self, power: ResidualPower, n_sections: int, lowest_hz: float) -> _Fit:
        """Return a fit with the lowered ceiling."""
        fit = _Fit(power, n_sections, self.sample_rate_hz, self.max_gain_db, lowest_hz)
        for peak in self.peaks:
            fit.lower_ceiling(*peak)
        return fit

    def _below_ceiling(self, fit: _Fit, rows: Real) -> Real:
        """Lower the ceiling where |W| exceeds it, before sections are added that rely on the excess."""
        for _ in range(N_CORRECTIONS):
            excess, at_hz = largest_excess(fit.realise(rows[0]), self.max_gain_db)
            if excess < MAX_EXCESS:
                break
            self.peaks.append((at_hz, excess))
            fit.lower_ceiling(at_hz, excess)
            rows = fit.steps(rows, CORRECTION_STEPS, CEILING_WEIGHT)
        return rows


def _corrected(fit: _Fit, unknowns: Real, held: Held | None = None) -> Sections:
    """Realise and optionally quantise sections, and lower |W| below its ceiling between the fitted frequencies."""
    for n_left in reversed(range(N_CORRECTIONS + 1)):
        found = fit.realise(unknowns[0])
        if held is not None:
            found = held(found, 0)
        excess, at_hz = largest_excess(found, fit.max_gain_db)
        if excess < MAX_EXCESS or n_left == 0:
            break
        fit.lower_ceiling(at_hz, excess)
        unknowns = fit.steps(unknowns.copy(), CORRECTION_STEPS, CEILING_WEIGHT)
    return _turned_down(found, fit.max_gain_db, held)


def objective(power: ResidualPower, sections: Sections) -> float:
    """Compute J, infinite for unstable sections."""
    if not sections.is_stable:
        return np.inf
    return float(power.objective(power.in_bands(sections.response(centres_hz(power.per_band))))[0])


def _turned_down(sections: Sections, max_gain_db: float | GainCurve, held: Held | None) -> Sections:
    """Scale the last section so that the ceiling holds."""
    excess, _ = largest_excess(sections, max_gain_db)
    if excess <= 1:
        return sections
    rows = sections.rows.copy()
    rows[-1, :3] /= excess
    lower = Sections(rows, sections.sample_rate_hz)
    return lower if held is None else held(lower, len(rows) - 1)


def _one_after_the_other(fit: _Fit, unknowns: Real, held: Held) -> Sections:
    """Quantise one section after the other from the lowest pole on, and refit the others to the loss."""
    found = fit.realise(unknowns[0])
    for n_held in range(1, fit.n):
        unknowns = fit.hold(held(found, n_held - 1).rows[:n_held], unknowns)
        excess, at_hz = largest_excess(fit.realise(unknowns[0]), fit.max_gain_db)
        if excess > MAX_EXCESS:
            fit.watch(at_hz)
        unknowns = fit.steps(unknowns, REFIT_STEPS, HELD_CEILING_WEIGHT)
        found = fit.realise(unknowns[0])
    return _turned_down(held(found, len(found.rows) - 1), fit.max_gain_db, held)


class _Fit(Cascade):
    """Fit of n sections behind quantised ones."""

    def __init__(
        self,
        power: ResidualPower,
        n_sections: int,
        sample_rate_hz: float,
        max_gain_db: float | GainCurve,
        lowest_hz: float,
    ) -> None:
        self.power, self.max_gain_db = power, max_gain_db
        # The ceiling also holds outside the bands, where J does not constrain W.
        centres = centres_hz(power.per_band)
        self.n_scored = len(centres)
        highest_hz = HIGHEST_SHARE * sample_rate_hz
        outside = np.concatenate(([0.0], np.geomspace(1, 18, 40), np.geomspace(22_500, highest_hz, 8)))
        # Sub-bands above half the rate, on which W has no effect, count as its last point.
        frequency_hz = np.concatenate((centres, outside)).clip(max=highest_hz)
        self.highest_hz = min(HIGHEST_HZ, 0.46 * sample_rate_hz)
        super().__init__(n_sections, frequency_hz, sample_rate_hz, (lowest_hz, self.highest_hz), QUALITIES)
        self.ceiling = ceiling_at(max_gain_db, frequency_hz)
        # Sign and level of W, from the conditions' optima around the middle of the bands.
        weight = (
            power.curvature * np.abs(power.optimum) / np.maximum(spread(power.disturbance, power.per_band), 1e-30)
        )
        mean = (weight * power.optimum).sum(0)
        self.sign = 1.0 if mean.real.sum() >= 0 else -1.0
        self.level = float(np.median(np.abs(power.optimum[:, centres < 0.5 * sample_rate_hz])))

    def lower_ceiling(self, frequency_hz: float, excess: float) -> None:
        """Lower the ceiling by the factor by which |W| exceeded it at a frequency, which is checked from now on."""
        self.watch(frequency_hz)
        self.ceiling /= excess

    def watch(self, frequency_hz: float) -> None:
        """Check the ceiling at one more frequency, such as a resonance between the others."""
        frequency_hz = min(frequency_hz, HIGHEST_SHARE * self.sample_rate_hz)
        warped = self.warped(np.array(frequency_hz))
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
        added[:, 0::2, 0] = np.log(self.warped(np.exp(places)))[:, None]
        before, gain = np.repeat(unknowns[:, :-1], n_places, 0), np.repeat(unknowns[:, -1:], n_places, 0)
        parts = np.concatenate((before.reshape(n_places, 4, self.n - 1), added), -1)
        return self.within(np.concatenate((parts.reshape(n_places, -1), gain), 1))

    def objective(self, response: Complex, weight: float) -> tuple[Real, ...]:
        """Compute J with the ceiling's penalty [n_starts], and the weights of residuals and excess."""
        power = self.power.in_bands(response[:, : self.n_scored])
        value, slope = self.power.objective(power)
        weights = spread(slope / (power + 1e-12), self.power.per_band) * self.power.curvature
        excess = (np.abs(response) / self.ceiling - 1).clip(0)
        penalty = weight / response.shape[-1]
        return value + penalty * (excess**2).sum(-1), weights, penalty * (excess > 0) / self.ceiling**2

    def normal_equations(
        self, polynomials: tuple[Real, Real, Real], response: Complex, *details: Real
    ) -> tuple[Real, Real]:
        """Compute J^T J, [n_starts, 4 n + 1, 4 n + 1], and J^T r of the weighted residuals.

        Residuals are turned by the phase of W, so that their real parts include the excess of |W|.
        """
        weights, over = details
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

"""Fit the sections of a feedback controller to its closed loop.

With L = S K + W F, the residual of the filter is left times 1 / (1 + L). J is minimised over the sections' unknowns by
Levenberg-Marquardt steps from several starts, which are answers for other systems. Penalties keep every plant's L away
from the real axis below -1, and |K| below its ceiling. A step that takes L across that ray is refused: 1 + L stays in
the plane without the negative real axis and cannot encircle 0, so that the loop is stable for every gain from 0 to the
present one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.hardware.cascade import HIGHEST_SHARE, Cascade
from prime_anc.hardware.residual_power import SUB_BANDS_PER_BAND, Complex, Real, spread, sub_bands
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.errors import InvalidOption
from prime_anc.method.loops.loop import crosses_below, lines_cross_below
from prime_anc.method.profiles import FAST, SILENCE, RefinementProfile
from prime_anc.method.updates.objective import objective

# Frequency range of poles and zeros (Hz), and range of their quality.
LIMITS_HZ, QUALITIES = (15.0, 20_000.0), (0.25, 6.0)
# Share of the disturbance that no reduction by both counts below: without it, the fit drives poles to 0 Hz. At 1e-4
# (40 dB), filter and controller of a measured ear reach it from 63 to 250 Hz: 2 dB less in the mean, and less from 250
# to 500 Hz as well; at 1e-6, what is gained below 250 Hz is lost above.
CAP = 1e-5
# Weight of a squared violation (nepers) at one frequency of one plant.
BARRIER_WEIGHT = 20.0
# Starts have a gain at which no |L| exceeds START_GAIN, times the factor (nepers) that lowers J most.
START_GAIN, LOUDER = 0.4, np.arange(0, 4.6, 0.25)
# Most sections of a start.
N_OF_START = 8
# Range (Hz) of further sections, which are added to the answer of these eight: from starts of their own, sixteen left
# measured ears 1 dB more noise than eight, at most 4 dB.
ADDED_HZ = (60, 8000)
# Sections of all rows together, and steps: on half of the sub-bands, of the best on these, and of the best on all.
N_STARTED, N_FIRST, N_TRIED, N_SECOND, N_KEPT, N_LAST = 80, 12, 32, 25, 12, 60
# Step (nepers) by which a cascade is turned down.
TURNED_DOWN = 0.1
_TINY = 1e-30


@dataclass(frozen=True, eq=False)
class LoopProblem:
    """What a controller is fitted to. Frequencies [n] are those of the sub-bands, then others outside."""

    # Hz, up to half of the chip's rate.
    frequency_hz: Real
    # S of the scored conditions with the chip's delay, complex [n_conditions, n_sub_bands].
    scored: Complex
    # W F of the scored conditions, as `scored`.
    scored_before: Complex
    # S and W F of all plants that have to be stable, complex [n_plants, n]; 0 above the measured band.
    plants: Complex
    plants_before: Complex
    # Least and largest factor on S, [n_plants, 2]; the loops keep their distance at all between.
    levels: Real
    # Pairs of plants between which all on a straight line have to be stable as well, [n_lines, 2].
    lines: NDArray[np.intp]
    # Power of |P (1 + W F) - S W|^2 per sub-band over the total disturbance, [n_conditions, n_sub_bands].
    residual: Real
    # Power of the disturbance per band over its total, [n_conditions, 31].
    disturbance: Real
    # Weights of the conditions, with sum one.
    share: Real
    # Largest |K|, [n].
    ceiling: Real
    # Least distance of L from the real axis below -1.
    distance: float
    sample_rate_hz: float
    # Profile whose weights J has.
    profile: RefinementProfile = FAST
    per_band: int = SUB_BANDS_PER_BAND

    def halved(self) -> LoopProblem:
        """Join neighbouring sub-bands in pairs: coarser, and twice as fast."""
        fine, coarse = sub_bands(self.per_band)[0], sub_bands(self.per_band // 2)[0]
        first = np.searchsorted(fine, coarse[:-1])
        kept = np.concatenate((first, np.arange(len(fine) - 1, len(self.frequency_hz))))
        return replace(
            self,
            frequency_hz=self.frequency_hz[kept],
            scored=self.scored[:, first],
            scored_before=self.scored_before[:, first],
            plants=self.plants[:, kept],
            plants_before=self.plants_before[:, kept],
            residual=np.add.reduceat(self.residual, first, axis=-1),
            ceiling=self.ceiling[kept],
            per_band=self.per_band // 2,
        )


@cache
def start_roots() -> Real:
    """Read the starts of a fit: ln of poles (Hz), their qualities, zeros (Hz) and theirs, [n_starts, 4, 8].

    They are controllers for measured ears, pairs of them and simulated systems (`studies.controller_starts`), their
    sections in the order of their effect, so that the first of them start a fit of fewer; last the one that is 0 at
    0 Hz.
    """
    with files(__package__).joinpath("controller_starts.csv").open(encoding="utf-8") as table:
        rows = np.loadtxt(table, delimiter=",", skiprows=1)
    roots: Real = np.log(rows[:, 1:]).reshape(-1, N_OF_START, 4).swapaxes(1, 2)
    return roots


def fit_bins(extra: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the bins of the design grid at which a loop is fitted: the sub-bands' middles, then bins outside."""
    first, _ = sub_bands()
    outside = [*range(1, first[0]), *(np.array([22_500, 23_200, 23_900]) * DESIGN_N_FFT // SAMPLE_RATE_HZ)]
    return np.concatenate(((first[:-1] + first[1:] - 1) // 2, np.setdiff1d(np.append(extra, outside), first)))


def frequencies_beyond_hz(sample_rate_hz: float) -> Real:
    """Return frequencies above the design grid, up to nearly half of the chip's rate."""
    highest_hz = HIGHEST_SHARE * sample_rate_hz
    beyond: Real = np.geomspace(24_500, highest_hz, 8) if highest_hz > 24_500 else np.zeros(0)
    return beyond


class ControllerFit(Cascade):
    """Fit of n sections to all plants."""

    max_step = 0.7
    n_at_zero = 1
    # Near K = 0 most unknowns change nothing, and undamped steps in them would hide the others.
    least_damping = 0.3

    def __init__(self, problem: LoopProblem, n_sections: int, lowest_hz: float = LIMITS_HZ[0]) -> None:
        rate = problem.sample_rate_hz
        limits_hz = (lowest_hz, min(LIMITS_HZ[1], 0.46 * rate))
        super().__init__(n_sections, problem.frequency_hz, rate, limits_hz, QUALITIES)
        self.problem, self.n_scored = problem, problem.residual.shape[-1]
        self.ascending = np.argsort(problem.frequency_hz)
        # Without W F, a loop that does not cross the ray at one level does not at lower ones.
        self.ends = [0, 1] if problem.plants_before.any() else [1]
        # W F and levels of all plants, and of the nearest one on every line.
        worn, taken_off = problem.lines.T
        self.before_all = np.concatenate((problem.plants_before, problem.plants_before[worn]))
        self.levels = np.concatenate((problem.levels, problem.levels[taken_off]))
        self.first_of_band = np.flatnonzero(np.diff(sub_bands(problem.per_band)[1], prepend=-1))

    def starts(self, roots: Real) -> tuple[Real, Real]:
        """Return cascades with given roots at the gain with the least J, and that J, and choose K's sign.

        Both signs of a quiet cascade are compared: the one with which K lowers J also does when it is louder.

        Parameters
        ----------
        roots
            As of `start_roots`, of any number of sections from n; the last is used always.

        Returns
        -------
        tuple[Real, Real]
            Unknowns, [n_starts, 4 n + 1], and J, [n_starts].
        """
        parts = roots[:, :, [*range(self.n - 1), -1]]
        parts[:, 0::2] = np.log(self.warped(np.exp(parts[:, 0::2]).clip(max=0.46 * self.sample_rate_hz)))
        unknowns = self.within(np.concatenate((parts.reshape(len(parts), -1), np.zeros((len(parts), 1))), 1))
        response = self.response(unknowns)
        size = np.abs(response)
        loudest_plant = (self.problem.levels[:, 1:] * np.abs(self.problem.plants)).max(0)
        loudest = np.maximum((size * loudest_plant).max(1), (size / self.problem.ceiling).max(1))
        quiet = START_GAIN / np.maximum(loudest, _TINY)
        response *= quiet[:, None]
        inverted, upright = (self.objective(sign * response, BARRIER_WEIGHT)[0].min() for sign in (-1, 1))
        if inverted < upright:
            self.sign, response = -self.sign, -response
        tried = np.array([self.objective(np.exp(louder) * response, BARRIER_WEIGHT)[0] for louder in LOUDER])
        unknowns[:, -1] = np.log(quiet) + LOUDER[tried.argmin(0)]
        return unknowns, tried.min(0)

    def extended(self, unknowns: Real) -> Real:
        """Add sections without effect, their poles on their zeros, to rows of fewer."""
        parts = unknowns[:, :-1].reshape(len(unknowns), 4, -1)
        n_added = self.n - parts.shape[-1]
        added = np.zeros((len(unknowns), 4, n_added))
        added[:, 0::2] = np.log(self.warped(np.geomspace(*ADDED_HZ, n_added)))
        rows = np.concatenate((parts[..., :-1], added, parts[..., -1:]), -1).reshape(len(unknowns), -1)
        return self.within(np.concatenate((rows, unknowns[:, -1:]), 1))

    def inside(self, unknowns: Real) -> Real:
        """Turn rows down until no loop crosses the ray, as on the plants or frequencies of another fit.

        Raises
        ------
        InvalidOption
            A loop of the filter crosses it by itself.
        """
        if crosses_below(self.problem.plants_before[:, self.ascending]).any():
            raise InvalidOption("feedback: the filter's loop is unstable on a plant; measure again", "feedback")
        while not (finite := np.isfinite(self.objective(self.response(unknowns), BARRIER_WEIGHT)[0])).all():
            unknowns[~finite, -1] -= TURNED_DOWN
        return unknowns

    def nearest(self, part: Complex) -> Complex:
        """Return S K of all plants and lines, given that of the plants at level 1, where L is nearest to -1.

        Of a line, it is the place that is nearest at level 1; of each, the level between both ends.
        """
        if len(self.problem.lines):
            worn, taken_off = self.problem.lines.T
            start, away = part[:, worn], part[:, taken_off] - part[:, worn]
            along = _projected(-1 - self.problem.plants_before[worn] - start, away).clip(0, 1)
            part = np.concatenate((part, start + along * away), 1)
        level = _projected(-1 - self.before_all, part)
        nearest: Complex = level.clip(self.levels[:, :1], self.levels[:, 1:]) * part
        return nearest

    def crosses(self, part: Complex) -> NDArray[np.bool_]:
        """Return whether a loop crosses the ray on a plant or on a line between two, [n_starts]."""
        crossed = np.zeros(len(part), bool)
        for end in self.ends:
            loop = self.problem.levels[:, end, None] * part + self.problem.plants_before
            crossed |= crosses_below(loop[..., self.ascending]).any(-1)
            if len(self.problem.lines):
                worn, taken_off = self.problem.lines.T
                level, before = self.problem.levels[taken_off, end, None], self.problem.plants_before[worn]
                ends = (level * part[:, plants] + before for plants in (worn, taken_off))
                crossed |= lines_cross_below(*ends).any((1, 2))
        return crossed

    @staticmethod
    def from_ray(part: Complex, before: Complex) -> Complex:
        """Return how far L = S K + W F is from the real axis below -1, as a complex number."""
        away: Complex = 1 + before + part
        np.maximum(away.real, 0, out=away.real)
        return away

    def objective(self, response: Complex, weight: float) -> tuple[Any, ...]:
        """Compute J with the penalties, infinite where a loop crosses the ray; then band weights and violations."""
        problem = self.problem
        part = response[:, None] * problem.plants
        nearest = self.nearest(part)
        away = self.from_ray(nearest, self.before_all)
        squared = away.real**2 + away.imag**2
        near = np.zeros_like(squared)
        too_near = squared < problem.distance**2
        near[too_near] = np.log(problem.distance / np.sqrt(np.maximum(squared[too_near], _TINY)))
        excess = np.log(np.maximum(np.abs(response), _TINY) / problem.ceiling).clip(0)
        of_scored = response[:, None, : self.n_scored] * problem.scored
        closed = 1 + of_scored + problem.scored_before
        fine = problem.residual / (closed.real**2 + closed.imag**2)
        power = np.add.reduceat(fine, self.first_of_band, axis=-1) + CAP * problem.disturbance
        log_ratio = np.log((power + SILENCE) / (problem.disturbance + SILENCE))
        value, slope = objective(log_ratio, problem.share, problem.profile)
        value = value + weight * ((near**2).sum((1, 2)) + (excess**2).sum(1))
        weights = spread(slope / (power + 1e-12), problem.per_band) * fine
        return np.where(self.crosses(part), np.inf, value), weights, near, excess, nearest

    def normal_equations(
        self, polynomials: tuple[Real, Real, Real], response: Complex, *details: Any
    ) -> tuple[Real, Real]:
        """Compute J^T J and J^T r.

        With d ln K / d theta = phi, every residual changes by Re(c phi) or by c phi. At a frequency, conditions and
        plants share phi, so that their sums are one quadratic form in its real and imaginary part.
        """
        weights, near, excess, nearest = details
        problem, scored = self.problem, slice(self.n_scored)
        of_scored = response[:, None, scored] * problem.scored
        share = of_scored / (1 + of_scored + problem.scored_before)
        gradient = (BARRIER_WEIGHT * excess).astype(complex)
        real_real = BARRIER_WEIGHT * (excess > 0)
        mixed, imag_imag = np.zeros_like(real_real), np.zeros_like(real_real)
        gradient[:, scored] -= (weights * share).sum(1)
        alike = (weights * (share.real**2 + share.imag**2)).sum(1)
        real_real[:, scored] += alike
        imag_imag[:, scored] += alike
        row, plant, place = np.nonzero(near)
        part = nearest[row, plant, place]
        towards = part / self.from_ray(part, self.before_all[plant, place])
        np.add.at(gradient, (row, place), -BARRIER_WEIGHT * near[row, plant, place] * towards)
        np.add.at(real_real, (row, place), BARRIER_WEIGHT * towards.real**2)
        np.add.at(mixed, (row, place), -BARRIER_WEIGHT * towards.real * towards.imag)
        np.add.at(imag_imag, (row, place), BARRIER_WEIGHT * towards.imag**2)
        slopes = self.slopes(polynomials)
        flat = slopes.reshape(*slopes.shape[:2], -1)
        away = np.concatenate((gradient.real, -gradient.imag), -1).astype(np.float32)
        pulled = flat @ away[..., None]
        # The root of the quadratic form.
        first = np.sqrt(real_real + _TINY)
        second = mixed / first
        third = np.sqrt((imag_imag - second**2).clip(0))
        first, second, third = (item[:, None].astype(np.float32) for item in (first, second, third))
        slopes[:, :, 0] *= first
        slopes[:, :, 0] += second * slopes[:, :, 1]
        slopes[:, :, 1] *= third
        return (flat @ flat.mT).astype(np.float64), pulled.astype(np.float64)


def _projected(values: Complex, onto: Complex) -> Real:
    """Return the factors on complex numbers with which they come nearest to others."""
    found: Real = (values.real * onto.real + values.imag * onto.imag) / (onto.real**2 + onto.imag**2 + _TINY)
    return found


def fit_controller(
    problem: LoopProblem,
    n_sections: int,
    rows: Real | None = None,
    *,
    lowest_hz: float = LIMITS_HZ[0],
    effort: int = 1,
) -> tuple[ControllerFit, Real]:
    """Fit a controller.

    Parameters
    ----------
    problem
        Loops and objective.
    n_sections
        Number of sections.
    rows
        Unknowns that an earlier fit of as many sections has found; None: from several starts.
    lowest_hz
        Lowest frequency of poles and zeros.
    effort
        Multiple of starts and last steps.

    Returns
    -------
    tuple[ControllerFit, Real]
        The fit, and its rows of unknowns, the best first.
    """
    fit = ControllerFit(problem, n_sections, lowest_hz)
    if rows is None and n_sections > N_OF_START:
        fewer, rows = fit_controller(problem, N_OF_START, lowest_hz=lowest_hz, effort=effort)
        rows, fit.sign = fit.extended(rows), fewer.sign
    elif rows is None:
        coarse = ControllerFit(problem.halved(), n_sections, lowest_hz)
        started, tried, kept = (effort * n // n_sections for n in (N_STARTED, N_TRIED, N_KEPT))
        rows, value = coarse.starts(start_roots())
        rows = coarse.steps(rows[value.argsort()[:started]], N_FIRST, BARRIER_WEIGHT)
        rows = coarse.steps(rows[:tried], N_SECOND, BARRIER_WEIGHT)[:kept]
        fit.sign = coarse.sign
    return fit, fit.steps(fit.inside(rows), effort * N_LAST, BARRIER_WEIGHT)

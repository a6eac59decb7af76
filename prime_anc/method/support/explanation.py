"""Compare two measured paths with those of ears, and find the mistake that explains a difference.

With the support's mean and covariance C of the traits (`statistics`), a measurement's traits t have the
distance

    c(m) = min over a of (t - mean - m - a_mic u - a_gain g - a_delay d)' C^-1 (...)

from those of a correct measurement with the mistake m: a reversed sign, a leak, another sample rate, or none. u raises
both paths: a microphone's sensitivity does not matter and is always fitted. g raises the secondary path alone and d
delays it; they are fitted if that lowers c by more than a mistake must, as is a delay of the primary path alone. The
explanation with the smallest sum of c and SURPRISE per mistake is the most probable one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.arrays import Complex, Real
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.support.statistics import (
    IS_PHASE,
    N_PRIMARY,
    N_SECONDARY,
    N_TRAITS,
    OTHER_RATE_HZ,
    PRIMARY_EDGES_HZ,
    SECONDARY_EDGES_HZ,
    SupportStatistics,
    onset_samples,
    path_traits,
)

Path = Real | Complex

# -2 ln of the odds of a mistake: one in a thousand.
SURPRISE = 14.0

# 30 measured ears compared with the other persons' have levels within 1.3 dB; a gain declared wrongly by a factor of
# two is 6 dB off.
MIN_LEVEL_DB = 3.5

# The same ears have delays within 0.3 samples.
MIN_DELAY_SAMPLES = 0.6

# Ears on which that limit was set. Beside two listeners' four ears, 12 % of right recordings of others, which hold
# little above 9 kHz, exceed it.
LIMIT_EARS = 28
# Ears as many as which a device's prior counts, and the probability of more than sqrt(SURPRISE) standard deviations.
_PRIOR_EARS, _IMPROBABLE = 3, 9e-5

# The same ears have primary delays, visible only up to 355 Hz, within 6.3 samples.
MIN_PRIMARY_DELAY_SAMPLES = 8.0

# The same ears, correct or with one mistake, have distances up to 143; 200 simulated ducts, rooms, windows, headrests
# and headsets at least 340.
MAX_DISTANCE = 250.0

# Most differences in level, delay, leak and sample rate: a mistake changes one, another earphone of the same kind
# several.
MAX_DIFFERENCES = 1

# Order and cut-off (Hz) of the high-passes that model a leak.
_LEAKS = tuple(product((1, 2), (100.0, 150.0, 200.0, 300.0, 450.0)))

_DELAYS = np.arange(-4.0, 5.0)
REALIGN_BEYOND = 3
# Distance below which delays by more than half a turn of the phases are not tried.
CONVINCING = 60.0

_DB = 20 / math.log(10)
_SURPRISING_SDS = math.sqrt(SURPRISE)

_BAND_HZ = np.sqrt(np.multiply(SECONDARY_EDGES_HZ[1:], SECONDARY_EDGES_HZ[:-1]))
_PRIMARY_BAND_HZ = np.sqrt(np.multiply(PRIMARY_EDGES_HZ[1:], PRIMARY_EDGES_HZ[:-1]))
# The two mistakes and their remedies.
OTHER_RATES = (
    f"the paths look like recordings at {OTHER_RATE_HZ} Hz that were taken for {SAMPLE_RATE_HZ} Hz: state the rate "
    f"that was recorded, and resample to {SAMPLE_RATE_HZ} Hz",
    f"the paths look like recordings at {SAMPLE_RATE_HZ} Hz that were taken for {OTHER_RATE_HZ} Hz: state the rate "
    "that was recorded, and do not resample",
)

_BLOCKS = (N_SECONDARY, N_SECONDARY, N_PRIMARY, N_PRIMARY)


def _blocks(*values: float | Real) -> Real:
    """Assemble a vector of traits from its four parts: secondary's magnitudes and phases, primary's."""
    return np.concatenate([np.broadcast_to(value, n) for value, n in zip(values, _BLOCKS, strict=True)])


_LOUDER = _blocks(1.0, 0.0, 1.0, 0.0)
_GAIN = _blocks(1.0, 0.0, 0.0, 0.0)
LATER = _blocks(0.0, -2 * np.pi * _BAND_HZ / SAMPLE_RATE_HZ, 0.0, 0.0)
_PRIMARY_LATER = _blocks(0.0, 0.0, 0.0, -2 * np.pi * _PRIMARY_BAND_HZ / SAMPLE_RATE_HZ)
_FITTED = ((_LOUDER,), (_LOUDER, _GAIN), (_LOUDER, LATER), (_LOUDER, _GAIN, LATER))
_REVERSED = _blocks(0.0, np.pi, 0.0, 0.0)


def _leak(order: int, cutoff_hz: float) -> Real:
    """Compute the change of the traits by a Butterworth high-pass in the secondary path."""
    s = 1j * _BAND_HZ / cutoff_hz
    response = s / (1 + s) if order == 1 else s**2 / (1 + np.sqrt(2) * s + s**2)
    return _blocks(np.log(np.abs(response)), np.angle(response), 0.0, 0.0)


@dataclass(frozen=True)
class Explanation:
    """The most probable explanation of a measurement."""

    # C of the explanation.
    distance: float
    # C and SURPRISE per mistake.
    score: float
    # Whether the secondary path has the opposite sign.
    is_reversed: bool
    # Order and cut-off (Hz) of a leak.
    leak: tuple[int, float] | None
    # Wrong sample rate, of OTHER_RATES; None if correct.
    other_rate: str | None
    # Secondary path over the support's.
    level_db: float
    # Its standard deviation.
    level_sd_db: float
    # Secondary path after the support's.
    delay_samples: float
    # Its standard deviation.
    delay_sd_samples: float
    # Primary path after the support's.
    primary_delay_samples: float
    # Its standard deviation.
    primary_delay_sd_samples: float

    @property
    def is_level_off(self) -> bool:
        """Return whether the level differs from the support's by a mistake."""
        return abs(self.level_db) > max(MIN_LEVEL_DB, self.level_sd_db * _SURPRISING_SDS)

    @property
    def is_delay_off(self) -> bool:
        """Return whether the delay of the secondary path differs by a mistake."""
        return abs(self.delay_samples) > max(MIN_DELAY_SAMPLES, self.delay_sd_samples * _SURPRISING_SDS)

    @property
    def is_primary_delay_off(self) -> bool:
        """Return whether the delay of the primary path differs by a mistake."""
        return abs(self.primary_delay_samples) > _primary_delay_limit(self.primary_delay_sd_samples)

    @property
    def differences(self) -> tuple[str, ...]:
        """Describe the differences from the support's paths besides the sign."""
        words = {
            f"level ({self.level_db:+.1f} dB)": self.is_level_off,
            f"delay ({later(self.delay_samples, 1)})": self.is_delay_off,
            f"the primary path's delay ({later(self.primary_delay_samples, 0)})": self.is_primary_delay_off,
            f"shape (distance {self.distance:.0f} of at most {MAX_DISTANCE:.0f})": self.distance > MAX_DISTANCE,
            "low frequencies (as behind a high-pass)": self.leak is not None,
            "sample rate": self.is_other_rate,
        }
        return tuple(word for word, differs in words.items() if differs)

    @property
    def is_other_rate(self) -> bool:
        """Return whether a wrong sample rate explains the paths; a wrong level or delay resembles one slightly."""
        is_moved = self.is_level_off or self.is_delay_off or self.is_primary_delay_off or self.leak is not None
        return self.other_rate is not None and (self.other_rate == OTHER_RATES[0] or not is_moved)

    @property
    def is_device(self) -> bool:
        """Return whether the paths are those of the support's device, correct or with one mistake."""
        is_late = self.is_delay_off or self.is_primary_delay_off
        differences = self.is_level_off, is_late, self.leak is not None, self.is_other_rate
        return self.distance <= MAX_DISTANCE and sum(differences) <= MAX_DIFFERENCES

    @property
    def is_right(self) -> bool:
        """Return whether the support has such paths, without any mistake."""
        return self.distance <= MAX_DISTANCE and not self.is_reversed and not self.differences


def later(delay_samples: float, n_decimals: int) -> str:
    """Say by how many samples a path is later or earlier, with n_decimals decimals."""
    return f"{abs(delay_samples):.{n_decimals}f} samples {'later' if delay_samples > 0 else 'earlier'}"


def _primary_delay_limit(sd_samples: float) -> float:
    return max(MIN_PRIMARY_DELAY_SAMPLES, sd_samples * _SURPRISING_SDS)


def _widening(n_ears: int) -> float:
    """Compute the factor on a limit that was set on LIMIT_EARS ears if a device is known from fewer: the quotient of
    their prediction intervals, t sqrt(1 + 1/n) by Student's t with as many degrees of freedom as ears and prior.
    """
    few, many = (_student_t(n + _PRIOR_EARS) * math.sqrt(1 + 1 / n) for n in (n_ears, LIMIT_EARS))
    return max(few / many, 1.0)


def _student_t(n: int) -> float:
    """Compute the quantile of Student's t with n degrees of freedom that _IMPROBABLE exceeds, 1 % low at 5 degrees.

    The expansion (26.7.5) of Abramowitz and Stegun, since the service runs without SciPy.
    """
    z = -NormalDist().inv_cdf(_IMPROBABLE)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / n**power for power, term in enumerate(terms, 1))


class SupportPrior:
    """The support's statistics, prepared for comparisons: about 0.1 ms per pair of paths.

    mean: traits, [28]. changes: traits' changes by the mistakes, with either sign, [change, sign, 28]. roots: c =
    |root' r|^2 of the four fitted combinations, [28, 4 * 28]. estimate: loudness, level and delay, [3, 28];
    primary_delay: from the remainder of the combinations, [4, 28]. level_limit_db, delay_limit_samples,
    primary_delay_limits ([4], per combination): larger values are mistakes.
    """

    def __init__(self, statistics: SupportStatistics) -> None:
        self.statistics = statistics
        self.mean = np.array(statistics.mean)
        precision = np.linalg.inv(statistics.covariance_matrix())
        roots, primary_later = [], []
        for fitted in _FITTED:
            basis = np.stack(fitted, 1)
            estimate = np.linalg.solve(basis.T @ precision @ basis, basis.T @ precision)
            # c = |root' r|^2; eigenvalues below zero are rounding.
            value, vector = np.linalg.eigh(precision - precision @ basis @ estimate)
            roots.append(vector * np.sqrt(np.maximum(value, 0)))
            primary_later.append(roots[-1] @ (roots[-1].T @ _PRIMARY_LATER))
        self.roots = np.concatenate(roots, 1)
        # Per fitted combination: the delay of the primary path from the remainder, and its SD.
        self._primary_delay_sd_samples = [float((item @ _PRIMARY_LATER) ** -0.5) for item in primary_later]
        spread = zip(primary_later, self._primary_delay_sd_samples, strict=True)
        self.primary_delay = np.array([item * sd**2 for item, sd in spread])
        self.primary_delay_limits = np.array(list(map(_primary_delay_limit, self._primary_delay_sd_samples)))
        self.estimate = estimate  # of all quantities that can be fitted
        _, level_sd, self._delay_sd_samples = np.sqrt(np.diag(np.linalg.inv(basis.T @ precision @ basis))).tolist()
        self._delay_sd_samples = max(
            self._delay_sd_samples, MIN_DELAY_SAMPLES / _SURPRISING_SDS * _widening(statistics.n_ears)
        )
        self._level_sd_db = _DB * level_sd
        self.level_limit_db = max(MIN_LEVEL_DB, self._level_sd_db * _SURPRISING_SDS)
        self.delay_limit_samples = max(MIN_DELAY_SAMPLES, self._delay_sd_samples * _SURPRISING_SDS)
        self._leaks: list[tuple[int, float] | None] = [None] * (1 + len(OTHER_RATES)) + [*_LEAKS]
        slower = np.array(statistics.rate_change)  # small enough for its opposite to be the opposite mistake
        changes = np.array([np.zeros(N_TRAITS), slower, -slower, *(_leak(*leak) for leak in _LEAKS)])
        self.changes = np.stack((changes, changes + _REVERSED), 1)  # [change, sign, trait]
        n_mistakes = np.add.outer(np.add.outer(np.arange(len(changes)) > 0, [0, 1]), [[0, 1, 1, 2]])
        self._surprise = SURPRISE * n_mistakes  # [change, sign, 1, fitted]

    def explain(self, primary: Path, secondary: Path) -> Explanation:
        """Find the most probable explanation of two paths.

        Parameters
        ----------
        primary, secondary
            Causal responses, real [n <= 32768], or spectra on the design grid, not all zero.
        """
        deviation, beyond = self._deviation(primary, secondary)
        found = self._explained(deviation, beyond)
        if not found.is_primary_delay_off:
            return found
        later = self._explained(deviation - found.primary_delay_samples * _PRIMARY_LATER, beyond)
        # A leak also turns the phases of what remains.
        if later.leak is not None or later.score + SURPRISE > found.score:
            return replace(found, primary_delay_samples=0.0)
        return replace(later, primary_delay_samples=found.primary_delay_samples)

    def resembles(self, primary: Path, secondary: Path) -> bool:
        """Judge whether the support has such paths, so that what is known of its measurements holds for them.

        Parameters
        ----------
        primary, secondary
            As for `explain`.
        """
        return self.explain(primary, secondary).is_right

    def is_device(self, primary: Path, secondary: Path) -> bool:
        """Judge whether two paths are those of the support's device, right or with one mistake.

        Parameters
        ----------
        primary, secondary
            As for `explain`.
        """
        return self.explain(primary, secondary).is_device

    def _deviation(self, primary: Path, secondary: Path) -> tuple[Real, int]:
        """Compute the traits less the mean, with the secondary path moved by whole samples, and that number."""
        delay = self.statistics.delay_samples
        beyond = _onset(secondary) - delay
        beyond = beyond if abs(beyond) > REALIGN_BEYOND else 0
        deviation = path_traits(primary, secondary, delay + beyond) - self.mean
        # If both signs are reversed, the microphone's is.
        if np.cos(deviation[-N_PRIMARY:]).sum() < 0:
            deviation = deviation + np.pi * IS_PHASE
        return deviation, beyond

    def _explained(self, deviation: Real, beyond: int) -> Explanation:
        """Explain without a delay of the primary path."""
        quick = self._most_probable(deviation, _DELAYS[_DELAYS == 0], beyond)
        if quick.distance < CONVINCING:
            return quick
        return self._most_probable(deviation, _DELAYS, beyond)

    def _are_mistakes(self, level_db: Real, delay: Real) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return whether levels and delays are far enough from the support's to be mistakes."""
        return np.abs(level_db) > self.level_limit_db, np.abs(delay) > self.delay_limit_samples

    def _most_probable(self, deviation: Real, delays: Real, beyond: int) -> Explanation:
        """Find the best of all changes and both signs, with a delay near one of `delays`, which keep phases within a
        turn.
        """
        candidates = deviation - self.changes[:, :, None] - delays[:, None] * LATER  # [change, sign, delay, trait]
        candidates[..., IS_PHASE] -= 2 * np.pi * np.rint(candidates[..., IS_PHASE] / (2 * np.pi))
        whitened = candidates @ self.roots
        distance = np.square(whitened).reshape(*whitened.shape[:-1], len(_FITTED), N_TRAITS).sum(-1)
        score = distance + self._surprise
        fitted = candidates @ self.estimate.T
        is_level, is_delay = self._are_mistakes(_DB * fitted[..., 1], fitted[..., 2] + delays + beyond)
        # A difference too small for a mistake is the ear's: it is not explained by one, nor is a shift without a delay.
        score[..., 1::2][~is_level] = np.inf
        score[..., 2:][~is_delay] = np.inf
        score[:, :, (delays != 0) | (beyond != 0), :2] = np.inf
        place = np.unravel_index(int(score.argmin()), score.shape)
        change, sign, shift, fit = (int(item) for item in place)
        candidate = candidates[change, sign, shift]
        _, level, later = (self.estimate @ candidate).tolist()
        return Explanation(
            distance=float(distance[place]),
            score=float(score[place]),
            is_reversed=bool(sign),
            leak=self._leaks[change],
            other_rate=OTHER_RATES[change - 1] if 0 < change <= len(OTHER_RATES) else None,
            level_db=_DB * level,
            level_sd_db=self._level_sd_db,
            delay_samples=float(later + delays[shift] + beyond),
            delay_sd_samples=self._delay_sd_samples,
            primary_delay_samples=float(self.primary_delay[fit] @ candidate),
            primary_delay_sd_samples=self._primary_delay_sd_samples[fit],
        )


def _onset(secondary: Path) -> int:
    """Compute `onset_samples` of a response, or of a spectrum from every eighth bin."""
    return onset_samples(np.fft.irfft(secondary[::8]) if np.iscomplexobj(secondary) else secondary.real)

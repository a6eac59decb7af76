"""Estimate acoustic paths as the posterior mean of their impulse responses, with its uncertainty.

The estimator is kernel-based regularised identification (Pillonetto and De Nicolao 2010; Chen, Ohlsson and Ljung 2012).
Whitened recordings give a transfer H and the variance v of its error per bin (`measure.transfers`). With a prior
N(0, V) of the taps h, and the lag weight rho of the windows, the estimate minimises

    sum_k |H_k - (F rho h)_k|^2 / v_k + h^T V^-1 h.

V = C D C' + L D' L': D = diag((1 + n / tau)^-4) at lag n, tau from the marginal likelihood; C is convolution with the
minimum-phase response of the path's spectrum in one-third octave bands; below 60 Hz (L) taps decay slowly. A device's
listeners add their mean and principal directions, and give the remainder's spectrum where the recordings do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from prime_anc.measure.estimate import GainTake, PlayedTake, onto_design_grid
from prime_anc.measure.prior import PathDistribution, PathPrior, device_mean, lag_weight
from prime_anc.measure.transfers import Transfer, band_levels, late_power, level_of, transfers
from prime_anc.method.arrays import SMALLEST, Complex, Real, minimum_phase_response, squared_magnitude
from prime_anc.method.bands import WIDE_BANDS, band_membership, centre_hz
from prime_anc.method.conventions import DESIGN_N_FFT, PRIMARY_TAPS, SAMPLE_RATE_HZ, SECONDARY_TAPS

# Taps of the model; the windows show those up to their half, and the others are as expected.
MODEL_TAPS = PRIMARY_TAPS
# Limit on unknown over known power of a band.
MAX_UNCERTAINTY = 1e6
# Decays tau that are tried (samples), by the response's length.
PRIMARY_DECAYS, SECONDARY_DECAYS = (128, 512, 2048, 8192), (32, 128, 512, 2048)
DECAY_POWER = 4.0
# Frequency below which paths may ring longer, and that decay (samples).
LOW_HZ, LOW_DECAY = 60.0, 2048.0
# Conjugate gradients for each decay, and for the best one.
N_FIRST, N_LAST, TOLERANCE = 24, 150, 1e-7
# Least power that is expected in a band, over the mean of the known ones: -60 dB.
LEAST_EXPECTED = 1e-6
# Ranges of bins over which evidence is averaged: 1, 2, 4, ...
N_AVERAGES = 11
# Least weight of a lag in the start of the conjugate gradients.
LEAST_WEIGHT = 0.1


class Posterior(NamedTuple):
    """Posterior of a path."""

    # Impulse response, [n_taps].
    response: Real
    # Expected |error|^2 per bin of the transfer's grid.
    variance: Real


class Estimate(NamedTuple):
    """Paths, and what is unknown of them."""

    # Impulse responses, [8192], [4096] and, with drives, [4096].
    primary: Real
    secondary: Real
    feedback: Real | None
    # Expected squared error over power of both estimates per band, [2, 31].
    noise_share: Real
    # The same with what is later than the responses: unknown over known power.
    uncertainty: Real


def estimate(
    takes: Sequence[GainTake], drives: Sequence[PlayedTake] = (), prior: PathPrior | None = None
) -> Estimate:
    """Estimate all paths with their uncertainty.

    Parameters
    ----------
    takes, drives
        As of `transfers`.
    prior
        Paths of the device's listeners; None: no device.
    """
    measured = transfers(takes, drives)
    of_device = (None, None) if prior is None else (prior.primary, prior.secondary)
    primary = posterior(measured.primary, PRIMARY_DECAYS, of_device[0])
    secondary = posterior(measured.secondary, SECONDARY_DECAYS, of_device[1])
    feedback = measured.feedback and posterior(measured.feedback, SECONDARY_DECAYS).response[:SECONDARY_TAPS]
    membership = band_membership(WIDE_BANDS, DESIGN_N_FFT)

    def in_bands(response: Real) -> Real:
        powers: Real = squared_magnitude(np.fft.rfft(response, DESIGN_N_FFT)) @ membership
        return powers

    known = np.stack((in_bands(primary.response), in_bands(secondary.response[:SECONDARY_TAPS])))
    unknown = np.stack([onto_design_grid(path.variance) for path in (primary, secondary)]) @ membership
    late = np.stack([late_power(item, MODEL_TAPS) for item in (measured.primary, measured.secondary)])
    late[1] += in_bands(secondary.response[SECONDARY_TAPS:])
    noise_share, uncertainty = (np.stack((unknown, unknown + late)) / np.maximum(known, SMALLEST)).clip(
        max=MAX_UNCERTAINTY
    )
    return Estimate(primary.response, secondary.response[:SECONDARY_TAPS], feedback, noise_share, uncertainty)


def posterior(
    measured: Transfer, decays: Sequence[float], distribution: PathDistribution | None = None
) -> Posterior:
    """Compute the posterior of a path, MODEL_TAPS long.

    Parameters
    ----------
    measured
        Its transfer.
    decays
        Candidates for tau, samples.
    distribution
        Paths of the device's listeners; None: no device.
    """
    window = 2 * (len(measured.value) - 1)
    n = min(MODEL_TAPS, window // 2)
    response, expected = np.zeros(MODEL_TAPS), None
    if distribution is not None:
        mean, expected = device_mean(distribution, *measured)
        known, measured = np.fft.irfft(mean)[:MODEL_TAPS], measured._replace(value=measured.value - lagged(mean))
        response[: len(known)] = known
    remainder = _solved(measured, np.sqrt(_outline(measured, expected)), n, decays)
    response[:n] += remainder.response
    return Posterior(response, remainder.variance)


def lagged(spectrum: Complex) -> Complex:
    """Weight a spectrum's lags as windows do."""
    window = 2 * (len(spectrum) - 1)
    found: Complex = np.fft.rfft(np.fft.irfft(spectrum) * lag_weight(window))
    return found


def _solved(measured: Transfer, colour: Real, n_taps: int, decays: Sequence[float]) -> Posterior:
    """Solve for the taps with the most probable decay."""
    window = 2 * (len(measured.value) - 1)
    rho, power = lag_weight(window)[:n_taps], level_of(measured)
    weight, value = power / measured.variance, measured.value / np.sqrt(power)
    matched = (np.fft.irfft(weight * value) * window)[:n_taps]
    lags = np.fft.irfft(weight) * window
    symbol = np.fft.rfft(np.concatenate((lags[:n_taps], [0.0], lags[1 - n_taps :]))).real
    shape = minimum_phase_response(np.log(colour))
    # The start: a Wiener filter per bin, then per lag.
    seen = weight * colour**2
    kept = seen / (seen + 1)
    first = np.fft.irfft(kept * value / shape)[:n_taps] / np.maximum(rho, LEAST_WEIGHT)
    noise = float(np.mean(kept / (seen + 1))) / window
    best, averages = None, _averages(weight)
    for decay in decays:
        prior = _Prior(shape, n_taps, decay, _low_share(measured))
        system = _NormalEquations(symbol, rho, prior, matched)
        unknowns = system.solve(prior.whitened(first, noise), N_FIRST)
        log_determinant, variance = _evidence(averages, rho**2, prior)
        likelihood = system.gained(unknowns) - log_determinant
        if best is None or likelihood > best[0]:
            best = likelihood, system, unknowns, variance
    assert best is not None
    _, system, unknowns, variance = best
    response = system.prior.response(system.solve(unknowns, N_LAST))
    return Posterior(response * np.sqrt(power), variance * power)


class _Prior:
    """The prior of taps of unit power: coloured ones that decay, and at low frequencies others that decay slowly.

    A path rings for some of its periods: at low frequencies longer than the whole.
    """

    def __init__(self, shape: Complex, n_taps: int, decay: float, low_share: float) -> None:
        """Colour taps by shape, a minimum-phase spectrum; low_share is the power of low frequencies over the whole."""
        self.decay, window = decay, 2 * (len(shape) - 1)
        decays = ((1 + np.arange(MODEL_TAPS) / item) ** -DECAY_POWER for item in (decay, LOW_DECAY))
        self.variances = np.stack([item / item.sum() for item in decays])
        self.variances[1] *= low_share
        low = 1 / (1 + (np.fft.rfftfreq(window, 1 / SAMPLE_RATE_HZ) / LOW_HZ) ** 4)
        self._powers = np.stack((squared_magnitude(shape), low))
        shapes = np.stack((shape, minimum_phase_response(0.5 * np.log(low))))
        self._roots, self._shapes = (
            np.sqrt(self.variances[:, :n_taps]),
            np.fft.rfft(np.fft.irfft(shapes)[:, :n_taps], 2 * n_taps),
        )

    def response(self, unknowns: Real) -> Real:
        """Compute taps [n] from independent unknowns of variance one, [2, n]."""
        n = unknowns.shape[-1]
        spectrum = (self._shapes * np.fft.rfft(self._roots * unknowns, 2 * n)).sum(0)
        taps: Real = np.fft.irfft(spectrum)[:n]
        return taps

    def transposed(self, taps: Real) -> Real:
        """Apply the transpose of `response`, [n] -> [2, n]."""
        n = len(taps)
        unknowns: Real = self._roots * np.fft.irfft(self._shapes.conj() * np.fft.rfft(taps, 2 * n))[:, :n]
        return unknowns

    def whitened(self, taps: Real, noise: float) -> Real:
        """Return unknowns of about these taps before their colour, whose noise has a variance, [2, n]."""
        unknowns: Real = np.zeros((2, len(taps)))
        variances = self.variances[:, : len(taps)]
        unknowns[0] = self._roots[0] * taps / (variances[0] + noise)
        rest = self.response(np.stack((taps / self._roots[0], unknowns[1])) - unknowns)
        unknowns[1] = self.transposed(rest)[1] / (variances[1] + noise)
        return unknowns

    def at(self, lag: int) -> Real:
        """Return the power of a tap per bin."""
        power: Real = self.variances[:, lag] @ self._powers
        return power


@dataclass(eq=False)
class _NormalEquations:
    """The equations (I + B' rho T rho B) u = B' rho b of the prior's unknowns u; T is Toeplitz."""

    symbol: Real
    rho: Real
    prior: _Prior
    matched: Real

    def __post_init__(self) -> None:
        self.right = self.prior.transposed(self.rho * self.matched)

    def product(self, unknowns: Real) -> Real:
        """Multiply by the matrix, [2, n]."""
        n = len(self.rho)
        taps = self.rho * self.prior.response(unknowns)
        through = np.fft.irfft(self.symbol * np.fft.rfft(taps, 2 * n), 2 * n)[:n]
        return unknowns + self.prior.transposed(self.rho * through)

    def gained(self, unknowns: Real) -> float:
        """Return by how much unknowns raise the log likelihood, twice."""
        return float(2 * np.vdot(unknowns, self.right) - np.vdot(unknowns, self.product(unknowns)))

    def solve(self, unknowns: Real, most: int) -> Real:
        """Improve unknowns by conjugate gradients."""
        left = self.right - self.product(unknowns)
        step, power = left, float(np.vdot(left, left))
        for _ in range(most):
            if power <= TOLERANCE**2 * float(np.vdot(self.right, self.right)):
                break
            through = self.product(step)
            size = power / float(np.vdot(step, through))
            unknowns, left = unknowns + size * step, left - size * through
            before, power = power, float(np.vdot(left, left))
            step = left + power / before * step
        return unknowns


def _evidence(averages: Sequence[Real], seen: Real, prior: _Prior) -> tuple[float, Real]:
    """Compute the log determinant of the normal matrix and the posterior variance per bin.

    The prior of taps about lag n changes over as many lags, or the decay, so that they inform bins within the
    reciprocal of that, in which the evidence is averaged. seen: squared weight of the lags.
    """
    n_bins = len(averages[0])
    window, seen = 2 * (n_bins - 1), np.pad(seen, (0, MODEL_TAPS - len(seen)))
    edges = np.unique(np.concatenate(([0], np.geomspace(1, MODEL_TAPS, 49).astype(int))))
    log_determinant, variance = 0.0, np.zeros(n_bins)
    for first, end in pairwise(edges.tolist()):
        middle = (first + end) // 2
        reach = max(window / max(middle, prior.decay), 1.0)
        expected = prior.at(middle)
        evidence = window * seen[middle] * expected * averages[min(int(np.log2(reach)), len(averages) - 1)]
        log_determinant += float((end - first) * np.log1p(evidence[1:-1]).mean())
        variance += (end - first) * expected / (1 + evidence)
    return log_determinant, variance


def _averages(weight: Real) -> list[Real]:
    """Return the means of one, two, four, ... neighbouring bins, [n_bins] each."""
    whole, found = np.concatenate((weight, weight[-2:0:-1])), []
    for n in range(N_AVERAGES):
        found.append(whole[: len(weight)])
        whole = (np.roll(whole, 2**n // 2) + np.roll(whole, -(2**n + 1) // 2)) / 2
    return found


def _low_share(measured: Transfer) -> float:
    """Compute the mean power of the known low bands over that of all."""
    level, is_known = band_levels(measured)
    low = np.logical_and(np.array([centre_hz(n) for n in WIDE_BANDS]) < LOW_HZ, is_known)
    return float(level[low].mean() / level[is_known].mean()) if low.any() else 1.0


def _outline(measured: Transfer, expected: Real | None) -> Real:
    """Compute the power that the prior expects per bin, over the mean of the known bands.

    In bands that are not known it is that of the device's listeners, or of the nearest known band, but no more than the
    recordings allow.
    """
    level, is_known = band_levels(measured)
    if not is_known.any():
        return np.ones(len(measured.value))
    membership = band_membership(WIDE_BANDS, 2 * (len(measured.value) - 1))
    n_bins = membership.sum(0)
    if expected is None:
        place = np.arange(len(level))
        of_bands = np.exp(np.interp(place, place[is_known], np.log(level[is_known])))
    else:
        of_bands = expected @ membership / np.maximum(n_bins, 1)
    ratio = np.where(is_known, level, np.minimum(of_bands, level)) / level[is_known].mean()
    hz = np.fft.rfftfreq(2 * (len(measured.value) - 1), 1 / SAMPLE_RATE_HZ)
    centres = np.array([centre_hz(n) for n in WIDE_BANDS])[n_bins > 0]
    logarithm = np.log(ratio[n_bins > 0].clip(min=LEAST_EXPECTED))
    outline: Real = np.exp(np.interp(np.log(np.maximum(hz, 1)), np.log(centres), logarithm))
    return outline

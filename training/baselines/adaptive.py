"""Adaptive methods for comparison: FxLMS, FxNLMS and weighted FxLMS (Section 3.1 of the paper; Kuo & Morgan 1996).

Sample by sample, with L taps w, true paths p and s, and a gradient weighting g that the error and the filtered
reference share, so that the step follows the gradient of |g * e|^2:

    y(n) = w(n) . x_n,   e(n) = (g * p * x)(n) - (g * s * y)(n),   w(n+1) = w(n) + mu(n) e(n) x''_n,
    x'' = g * s * x;   x_n holds x(n) ... x(n - L + 1), x''_n likewise;
    mu = step / (L mean x''^2)   (FxLMS)   or   step / |x''_n|^2   (FxNLMS and weighted FxLMS).

Since g is linear, weighting both signals is filtering both paths: this is plain FxLMS on g * p and g * s. What
the taps cannot alter (x'', g * p * x) comes from fast convolution. What they alter is computed for every sample:
y by a direct sum, and g * s * y by a direct sum over the first block of g * s; the rest of g * s meets only control
samples older than a block, so that one transform per block gives it. Nothing is approximated or delayed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import fftconvolve, oaconvolve, welch
from torch import Tensor

from prime_anc.method.arrays import minimum_phase_fir
from prime_anc.method.bands import NR_BANDS, band_membership, centre_hz, edges_hz, frequencies_hz
from prime_anc.method.conventions import DESIGN_N_FFT, N_TAPS, SAMPLE_RATE_HZ
from prime_anc.method.paths import AcousticPaths, ControlFilter

Array = NDArray[np.float64]

# Random streams of the white noises for adaptation and validation, `default_rng([seed, stream])`; both differ from the
# noise used for scoring.
ADAPTATION_STREAM, VALIDATION_STREAM = 3, 4

BLOCK_SAMPLES = 1024
GUARD_SAMPLES = SAMPLE_RATE_HZ
# Ratio of weighted error to weighted disturbance over a second that counts as divergence: 10 dB worse than no filter.
DIVERGED_POWER_RATIO = 10.0

# Share of a response's energy in the tail that is left out: -120 dB, above float32 rounding of a spectrum.
NEGLIGIBLE_ENERGY = 1e-12

WEIGHTING_TAPS = 2048
WEIGHTING_ORDER = 2
WEIGHTING_FLOOR = 1e-3
BAND_POWER_FLOOR = 1e-6
NORMALISATION_FLOOR = 1e-3
VALIDATION_SAMPLES = 6 * SAMPLE_RATE_HZ
VALIDATION_N_FFT = 8192
VALIDATION_POWER_FLOOR = 1e-12


@dataclass(frozen=True)
class Schedule:
    """Duration and step size of the adaptation."""

    # Dimensionless, mu = step / (n_taps * power); of PANDAR's 30 ears none diverged at 0.05 within 20 s, 18 did at
    # 0.075.
    step: float = 0.025
    # Time between validations.
    interval_s: float = 10.0
    # Longest adaptation.
    cap_s: float = 240.0
    # Consecutive validations without improvement before stopping; they scatter by 0.2 dB.
    patience: int = 3
    # Least improvement; slow modes gain 0.1 dB in 10 s.
    min_gain_db: float = 0.05

    @property
    def n_samples(self) -> int:
        """Return the samples of the longest adaptation."""
        return math.ceil(self.cap_s * SAMPLE_RATE_HZ)


@dataclass(frozen=True)
class FxLms:
    """Filtered-x LMS on white noise, weighted by `band_weighting`; returns the best validated filter.

    All ears adapt to the same noise.
    """

    schedule: Schedule = Schedule()
    n_taps: int = N_TAPS
    # Seed of the white noises.
    seed: int = 0
    # FxNLMS: steps are divided by the energy of the filtered reference in the filter's delay line.
    normalised: bool = False

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Adapt taps [batch, n_taps] on the true paths; InvalidPaths if one is unusable."""
        weighting = band_weighting()
        reference = np.random.default_rng([self.seed, ADAPTATION_STREAM]).standard_normal(self.schedule.n_samples)
        validation_noise = np.random.default_rng([self.seed, VALIDATION_STREAM]).standard_normal(VALIDATION_SAMPLES)
        taps = []
        for primary, secondary in _impulse_responses(paths):
            loop = _Loop(reference, primary, secondary, weighting, self.n_taps, self.normalised)
            validation = _Validation(validation_noise, primary, secondary, self.n_taps)
            taps.append(adapted(loop, validation, self.schedule))
        return ControlFilter(torch.from_numpy(np.stack(taps)).to(paths.primary.real))


@dataclass(frozen=True)
class WeightedFxLms:
    """Filtered-x LMS per noise, weighted so that its one-third-octave bands count equally.

    Normalised like FxNLMS: a burst in a recording has up to twenty times the mean power, and a step size small enough
    for bursts would be too slow for the rest. A filter adapts for 40 s on its noise, repeated as needed, and is
    validated on the same noise.
    """

    schedule: Schedule = Schedule(cap_s=40.0, patience=4)
    n_taps: int = N_TAPS

    def design_for(self, paths: AcousticPaths, signals: Array) -> Tensor:
        """Adapt taps [batch, n_noises, n_taps] on the true paths and the noises [n_noises, n_samples].

        Raises InvalidPaths if a path is unusable.
        """
        taps = [[self._adapted(*pair, noise) for noise in signals] for pair in _impulse_responses(paths)]
        return torch.from_numpy(np.array(taps)).to(paths.primary.real)

    def _adapted(self, primary: Array, secondary: Array, noise: Array) -> Array:
        noise = np.resize(noise, max(noise.size, VALIDATION_SAMPLES))
        weighting = band_weighting(_band_power(noise, primary))
        power = float(np.mean(oaconvolve(noise, fftconvolve(secondary, weighting)) ** 2))
        reference = np.resize(noise, self.schedule.n_samples)
        loop = _Loop(reference, primary, secondary, weighting, self.n_taps, True, power)
        return adapted(loop, _Validation(noise, primary, secondary, self.n_taps), self.schedule)


def band_weighting(band_power: Array | None = None) -> Array:
    """Design the gradient weighting g, a minimum-phase FIR [2048]: a Butterworth band-pass from 44.7 Hz to 5.6 kHz.

    The edges are the outer ones of the 50 Hz and 5 kHz bands. Both slopes are of second order: gentle slopes keep the
    delay short, which bounds the step.

    Parameters
    ----------
    band_power
        Power of the disturbance in the 21 bands between, [21]; its inverse, interpolated over log f, equalises the
        bands' shares of the weighted disturbance.
    """
    frequency_hz = torch.from_numpy(frequencies_hz())
    low, high = edges_hz(NR_BANDS[0])[0], edges_hz(NR_BANDS[-1])[1]
    slopes = (low / frequency_hz) ** (2 * WEIGHTING_ORDER), (frequency_hz / high) ** (2 * WEIGHTING_ORDER)
    log_magnitude = (-(torch.log1p(slopes[0]) + torch.log1p(slopes[1])) / 2).clamp_min(math.log(WEIGHTING_FLOOR))
    if band_power is not None:
        log_centre = np.log([centre_hz(n) for n in NR_BANDS])
        log_inverse = -np.log(np.maximum(band_power, BAND_POWER_FLOOR * band_power.max()))
        log_frequency = np.log(frequency_hz.clamp_min(1).numpy())
        log_magnitude = log_magnitude + torch.from_numpy(np.interp(log_frequency, log_centre, log_inverse)) / 2
    return minimum_phase_fir(log_magnitude, WEIGHTING_TAPS).numpy()


def _band_power(noise: Array, primary: Array) -> Array:
    """Compute the power [21] of the disturbance from `noise`, per scored band."""
    _, psd = welch(noise, nperseg=DESIGN_N_FFT, detrend=False)
    return psd * np.abs(rfft(primary, DESIGN_N_FFT)) ** 2 @ band_membership(NR_BANDS, DESIGN_N_FFT)


def _impulse_responses(paths: AcousticPaths) -> list[tuple[Array, Array]]:
    """Return primary and secondary path per item, float64, without silent tails."""
    spectra = paths.validate().to(torch.float64, "cpu")
    primary, secondary = (torch.fft.irfft(item).numpy() for item in (spectra.primary, spectra.secondary))
    return [(_without_tail(p), _without_tail(s)) for p, s in zip(primary, secondary, strict=True)]


def _without_tail(response: Array) -> Array:
    remaining = np.cumsum(response[::-1] ** 2)[::-1]
    return response[: int(np.count_nonzero(remaining > NEGLIGIBLE_ENERGY * remaining[0]))]


class _Validation:
    """Computes the noise reduction of a fixed filter, mean over the scored bands, after settling."""

    def __init__(self, validation_noise: Array, primary: Array, secondary: Array, n_taps: int) -> None:
        self._noise, self._secondary = validation_noise, secondary
        self._primary = np.pad(primary, (0, max(0, secondary.size + n_taps - 1 - primary.size)))
        self._disturbance_power = self._band_power(self._primary)
        self._floor = VALIDATION_POWER_FLOOR * self._disturbance_power.sum()

    def __call__(self, taps: Array) -> float:
        residual = self._primary.copy()
        residual[: self._secondary.size + taps.size - 1] -= fftconvolve(self._secondary, taps)
        power = self._band_power(residual)
        return float(np.mean(10 * np.log10((self._disturbance_power + self._floor) / (power + self._floor))))

    def _band_power(self, path: Array) -> Array:
        settled = oaconvolve(self._noise, path, mode="valid")
        _, psd = welch(settled, nperseg=VALIDATION_N_FFT, noverlap=3 * VALIDATION_N_FFT // 4, detrend=False)
        return psd @ band_membership(NR_BANDS, VALIDATION_N_FFT)


def adapted(loop: _Loop, validate: _Validation, schedule: Schedule) -> Array:
    """Find the best validated taps [n_taps]; no filter counts as 0 dB.

    After a divergence it resumes from the best filter with half the step and full patience.
    """
    interval, cap = math.ceil(schedule.interval_s * SAMPLE_RATE_HZ), schedule.n_samples
    step, n_done, n_stale = schedule.step, 0, 0
    best, best_db = loop.taps, 0.0
    while n_done < cap and n_stale < schedule.patience:
        n_until = min(n_done + interval, cap)
        while n_done < n_until:
            first, n_done = n_done, min(n_done + GUARD_SAMPLES, n_until)
            if loop.adapt(first, n_done, step):
                step, n_stale = step / 2, 0
                loop.restart(best)
        found_db = validate(loop.taps)
        n_stale = 0 if found_db >= best_db + schedule.min_gain_db else n_stale + 1
        if found_db > best_db:
            best, best_db = loop.taps, found_db
    return best


class _Loop:
    """The adapting filter, the signals of a whole adaptation from rest, and control samples on their way.

    power is the mean square of the filtered reference; None: that of white noise.
    """

    def __init__(
        self,
        reference: Array,
        primary: Array,
        secondary: Array,
        weighting: Array,
        n_taps: int,
        normalised: bool,
        power: float | None = None,
    ) -> None:
        primary, secondary = (fftconvolve(path, weighting) for path in (primary, secondary))
        filtered, self._disturbance = (
            oaconvolve(reference, path)[: reference.size] for path in (secondary, primary)
        )
        silence = np.zeros(n_taps - 1)
        # After the n_taps - 1 zeros before it, and the reference with one more: [n_taps + n], [n_taps - 1 + n].
        self._reference = np.concatenate((silence, reference, [0.0]))
        self._filtered = np.append(silence, filtered)
        self._energy = n_taps * (float(np.sum(secondary**2)) if power is None else power)
        self._normalised = normalised
        self._head = secondary[:BLOCK_SAMPLES][::-1].copy()
        self._n_past = secondary.size - 1
        self._n_fft = next_fast_len(self._n_past, real=True)
        # The weighting alone is longer than a block, so there always is a late part.
        self._late = rfft(secondary[BLOCK_SAMPLES:], self._n_fft)
        self.restart(np.zeros(n_taps))

    @property
    def taps(self) -> Array:
        """Return a copy of the taps, first tap first."""
        return self._reversed[::-1].copy()

    def restart(self, taps: Array) -> None:
        """Resume from `taps` with a silent loudspeaker."""
        self._reversed = taps[::-1].copy()
        self._past = np.zeros(self._n_past)

    def adapt(self, first: int, last: int, step: float) -> bool:
        """Adapt over some samples; return whether the filter diverged."""
        scale = (step, NORMALISATION_FLOOR * self._energy) if self._normalised else (step / self._energy, 0.0)
        # The guard checks for overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            error, disturbance = self._error(first, last, *scale), self._disturbance[first:last]
            return not error @ error <= DIVERGED_POWER_RATIO * (disturbance @ disturbance)

    def _error(self, first: int, last: int, step: float, floor: float) -> Array:
        """Compute the weighted error [n] while the taps adapt."""
        n_taps = self._reversed.size
        control = np.concatenate((self._past, np.zeros(last - first)))
        error = np.empty(last - first)
        for start in range(first, last, BLOCK_SAMPLES):
            stop = min(start + BLOCK_SAMPLES, last)
            begin, end = start - first, stop - first
            late = self._late_part(control[begin : begin + self._n_past], stop - start)
            _adapt_block(
                self._reversed,
                self._head,
                self._reference[start : stop + n_taps],
                self._filtered[start : stop + n_taps - 1],
                self._disturbance[start:stop] - late,
                control[begin + self._n_past - (self._head.size - 1) : end + self._n_past],
                error[begin:end],
                step,
                floor,
                self._normalised,
            )
        self._past = control[last - first :]
        return error

    def _late_part(self, past: Array, n_samples: int) -> Array:
        """Compute the next samples, at most a block, of the response to `past` after the path's first block."""
        # Circular, yet exact: wrapped samples land before the last block.
        response = irfft(rfft(past, self._n_fft) * self._late, self._n_fft)
        first = self._n_past - BLOCK_SAMPLES
        return response[first : first + n_samples]


# Sums may be reordered for vector registers; NaN and infinity keep their meaning for the guard.
_compiled = njit(fastmath={"reassoc", "contract", "nsz"}, nogil=True)


@_compiled
def _dot(first: Array, second: Array) -> float:
    total = 0.0
    for i in range(first.size):
        total += first[i] * second[i]
    return total


@_compiled
def _adapt_block(
    taps: Array,
    head: Array,
    reference: Array,
    filtered: Array,
    known: Array,
    control: Array,
    error: Array,
    step: float,
    floor: float,
    normalised: bool,
) -> None:
    """Adapt over error.size samples. `taps` and `head` are reversed in time, so that all sums run forwards.

    reference, filtered and control begin with the past that their sums need; reference has one more sample, because the
    pass that updates the taps also forms the next control sample. known: error without the part that `head` adds.
    """
    n_taps = taps.size
    control_sample = _dot(taps, reference[:n_taps])
    power = _dot(filtered[: n_taps - 1], filtered[: n_taps - 1])
    for n in range(error.size):
        control[head.size - 1 + n] = control_sample
        error[n] = known[n] - _dot(head, control[n : n + head.size])
        gradient = filtered[n : n + n_taps]
        following = reference[n + 1 : n + 1 + n_taps]
        power += gradient[n_taps - 1] ** 2
        rate = step * error[n] / (power + floor) if normalised else step * error[n]
        power -= gradient[0] ** 2
        control_sample = 0.0
        for i in range(n_taps):
            taps[i] += rate * gradient[i]
            control_sample += taps[i] * following[i]

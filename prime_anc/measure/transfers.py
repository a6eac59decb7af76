"""Measure the transfer functions of paths in whitened recordings, with the variance of their errors.

With the control filter replaced by a known gain g, the error microphone records e_g = (p - g s) * x, and

    P = H_{e0,x},        S = (H_{e0,x} - H_{eg,x}) / g.

A linear predictor of the error microphone's signal whitens both signals, which changes no path and keeps the side lobes
of windows away from quiet frequencies. H is the quotient of cross- and autospectrum of long Hann windows; what x does
not explain is the variance of its error, of which two states with the same probe have a part in common that cancels in
S.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from prime_anc.measure.estimate import GainTake, PlayedTake, onto_design_grid
from prime_anc.measure.prior import lag_weight, smoothed
from prime_anc.method.arrays import SMALLEST, Complex, Real, squared_magnitude
from prime_anc.method.bands import WIDE_BANDS, band_membership
from prime_anc.method.conventions import DESIGN_N_FFT

# Order of the linear predictor, and its regularisation.
ORDER, WHITE_FLOOR = 512, 1e-11
# Longest window, and the windows of a state at most: half a second of computing. Short takes have windows of half their
# length: those of a quarter lose 0.7 to 1.3 dB at 0.3 s, as they hold too little of the paths.
MOST_WINDOW, MOST_WINDOWS = 32_768, 256
# Bins over which the power that x does not explain is averaged.
NOISE_BINS = 65
# Overlapping Hann windows, a quarter apart, per independent one.
PER_INDEPENDENT = 1.925
# Share of the error microphone's power that whitening and windows leave unexplained without noise.
LEAKAGE = 1e-7
# Share of what two states leave unexplained alike that counts as common to both.
COMMON = 0.999
# Lags over which a late response is faded in.
RAMP = 128
# Part of a band's power that has to stand above its noise for the band's level to be known.
KNOWN_SHARE = 0.5


class Transfer(NamedTuple):
    """A transfer function as windows show it, with the variance of its error, [window // 2 + 1]."""

    value: Complex
    variance: Real


class Transfers(NamedTuple):
    """Transfers of the primary, the secondary and, with drives, the feedback path."""

    primary: Transfer
    secondary: Transfer
    feedback: Transfer | None


class _State:
    """Means of spectra over the windows of one state, beside those of the silent state, [window // 2 + 1]."""

    def __init__(self, frames: Sequence[_Sums], n: float) -> None:
        """frames: sums of the state's own windows, and of those that the silent state has, too; n: windows that would
        fill the recordings without overlap.
        """
        own, self.beside = frames
        self.n, self.n_frames, self.power = n, own.n, np.maximum(own.xx.real, SMALLEST)
        self.value, self.heard = own.xe / self.power, own.ee.real

    @property
    def variance(self) -> Real:
        """Compute the variance of the transfer's error."""
        independent = max(self.n_frames / PER_INDEPENDENT, 1.5)
        left = np.maximum(self.heard - squared_magnitude(self.value) * self.power, 0)
        unexplained = smoothed(left, NOISE_BINS) * independent / (independent - 1)
        found: Real = (unexplained + LEAKAGE * self.heard) / (self.n * self.power)
        return np.maximum(found, SMALLEST)

    def covariance(self, silent: _State) -> Real:
        """Compute the real part of the covariance of the error with that of the silent state."""
        pair, one, other = self.beside, silent.value.conj(), self.value
        independent = max(pair.n / PER_INDEPENDENT, 1.5)
        left = pair.ee - other * pair.ex - one * pair.xe + one * other * pair.xx
        level = np.sqrt(self.power * silent.power)
        shared = smoothed((pair.xx.conj() * left).real / level, NOISE_BINS) * independent / (independent - 1)
        found: Real = shared / (level * np.sqrt(self.n * silent.n))
        return found


class _Sums:
    """Mean cross-spectra of the windows' x and e with those of the same or another state."""

    def __init__(self, n_bins: int) -> None:
        self.n = 0
        self.xx, self.xe, self.ex, self.ee = (np.zeros(n_bins, complex) for _ in range(4))

    def add(self, one: tuple[Complex, Complex], other: tuple[Complex, Complex]) -> None:
        """Add a window of both."""
        self.n += 1
        for mean, a, b in ((self.xx, 0, 0), (self.xe, 0, 1), (self.ex, 1, 0), (self.ee, 1, 1)):
            mean += (one[a].conj() * other[b] - mean) / self.n


def transfers(takes: Sequence[GainTake], drives: Sequence[PlayedTake] = ()) -> Transfers:
    """Measure the transfers of all paths.

    Parameters
    ----------
    takes
        Recordings of at least one state with gain 0 and, without drives, one with another gain; float64 [n].
    drives
        Recordings while the loudspeaker alone plays.
    """
    shortest = min([*(len(take.error) for take in takes), *(len(drive.error) for drive in drives)])
    window = min(MOST_WINDOW, 1 << (max(shortest // 2, 1024).bit_length() - 1))
    order = min(ORDER, window // 4)
    whitener = _predictor([take.error for take in takes], order)
    gains = [0.0, *sorted({take.gain for take in takes} - {0.0})]
    of_gains = [[(take.reference, take.error) for take in takes if take.gain == gain] for gain in gains]
    silent, *playing = _states(of_gains, whitener, window)
    primary = Transfer(silent.value, silent.variance)
    feedback, found = None, []
    if drives:
        of_drive = _predictor([drive.error for drive in drives], order)
        returned, played = (
            _states([[(drive.drive, getattr(drive, name)) for drive in drives]], of_drive, window)[0]
            for name in ("reference", "error")
        )
        feedback = Transfer(returned.value, returned.variance)
        found.append(Transfer(played.value, played.variance))
    for gain, state in zip(gains[1:], playing, strict=True):
        own = silent.variance + state.variance
        variance = (own - 2 * COMMON * state.covariance(silent)).clip(min=(1 - COMMON) * own) / gain**2
        value = (silent.value - state.value) / gain
        # With g x as its signal, the loudspeaker is heard at the outer microphone, too: H = P - g (S - P F).
        found.append(Transfer(value if feedback is None else value + silent.value * feedback.value, variance))
    return Transfers(primary, _joined(found), feedback)


def _joined(found: Sequence[Transfer]) -> Transfer:
    """Average transfers by the inverse of their variance; their errors may have all in common."""
    weights = np.stack([1 / item.variance for item in found])
    weights /= weights.sum(0)
    value = (weights * np.stack([item.value for item in found])).sum(0)
    return Transfer(value, (weights * np.sqrt([item.variance for item in found])).sum(0) ** 2)


def _predictor(signals: Sequence[Real], order: int) -> Real:
    """Compute the linear predictor's error filter of signals [n] by Levinson's recursion, [order + 1]."""
    correlation: Real = np.zeros(order + 1)
    for signal in signals:
        n_fft = 1 << (2 * len(signal) - 1).bit_length()
        correlation += np.fft.irfft(squared_magnitude(np.fft.rfft(signal, n_fft)))[: order + 1]
    found: Real = np.zeros(order + 1)
    found[0], error = 1.0, correlation[0] * (1 + WHITE_FLOOR)
    for n in range(1, order + 1):
        reflection = -(found[:n] @ correlation[n:0:-1]) / max(error, SMALLEST)
        found[1 : n + 1] += reflection * found[:n][::-1]
        error *= 1 - reflection**2
    return found


def _states(states: Sequence[Sequence[tuple[Real, Real]]], whitener: Real, window: int) -> list[_State]:
    """Pool the windows of states, each with pairs of signals; the first is the silent one."""
    longest = max(sum(len(error) for _, error in signals) for signals in states)
    hop = max(window // 4, longest // MOST_WINDOWS)
    sums = [(_Sums(window // 2 + 1), _Sums(window // 2 + 1)) for _ in states]
    for frames in zip_longest(*(_frames(signals, whitener, window, hop) for signals in states)):
        for (own, beside), frame in zip(sums, frames, strict=True):
            if frame is not None:
                own.add(frame, frame)
            if frame is not None and frames[0] is not None and frame is not frames[0]:
                beside.add(frames[0], frame)
    lost = len(whitener) - 1
    n_windows = [sum(len(error) - lost for _, error in signals) / window for signals in states]
    return [_State(found, n) for found, n in zip(sums, n_windows, strict=True)]


def _frames(
    signals: Sequence[tuple[Real, Real]], whitener: Real, window: int, hop: int
) -> Iterator[tuple[Complex, Complex]]:
    """Whiten pairs of signals and transform their windows."""
    hann, lost = np.hanning(window + 1)[:-1], len(whitener) - 1
    for pair in signals:
        n_fft = 1 << (len(pair[0]) + lost).bit_length()
        response = np.fft.rfft(whitener, n_fft)
        x, e = (
            np.fft.irfft(np.fft.rfft(item, n_fft) * response, n_fft)[lost : len(item)].astype(np.float32)
            for item in pair
        )
        for n in range(0, len(x) - window + 1, hop):
            yield np.fft.rfft(hann * x[n : n + window]), np.fft.rfft(hann * e[n : n + window])


def band_levels(measured: Transfer) -> tuple[Real, Real]:
    """Compute the mean power of a path per band, [31], and whether it stands above its noise; if not, a bound on it."""
    membership = band_membership(WIDE_BANDS, 2 * (len(measured.value) - 1))
    n_bins = np.maximum(membership.sum(0), 1)
    power, noise = (item @ membership / n_bins for item in (squared_magnitude(measured.value), measured.variance))
    above, error = power - noise, np.sqrt(2 / n_bins) * noise
    is_known = above > np.maximum(KNOWN_SHARE * noise, 3 * error)
    return np.where(is_known, above, np.maximum(above, 0) + 2 * error), is_known


def level_of(measured: Transfer) -> float:
    """Compute the mean power of a path over the bands that stand above their noise, or a bound on it."""
    level, is_known = band_levels(measured)
    if is_known.any():
        return float(level[is_known].mean())
    return max(float(level[level > 0].min(initial=np.inf)), SMALLEST)


def late_power(measured: Transfer, n_taps: int) -> Real:
    """Compute the power of lags that a response of n_taps does not hold and the windows do, per band [31].

    It is what exceeds the noise of these lags by two standard errors.
    """
    window = 2 * (len(measured.value) - 1)
    lags = slice(n_taps, window * 3 // 8)
    if lags.stop <= n_taps + RAMP:
        return np.zeros(len(WIDE_BANDS))
    membership, kept = band_membership(WIDE_BANDS, DESIGN_N_FFT), 1 / (1 + measured.variance / level_of(measured))
    # Bins of which nothing is known, and edges, would leak into the others.
    rising, falling = np.hanning(2 * RAMP)[:RAMP], np.hanning(2 * (lags.stop - max(n_taps, window // 4)))
    taper = np.ones(lags.stop - lags.start)
    taper[:RAMP] = rising
    taper[-len(falling) // 2 :] = falling[len(falling) // 2 :]
    taper /= lag_weight(window)[lags]
    power, noise = (
        item @ membership
        for item in (
            squared_magnitude(np.fft.rfft(taper * np.fft.irfft(kept * measured.value)[lags], DESIGN_N_FFT)),
            onto_design_grid(kept**2 * measured.variance) * np.sum(taper**2) / window,
        )
    )
    # Neighbouring bins of so short a part are alike.
    independent = np.maximum(membership.sum(0) * len(taper) / DESIGN_N_FFT, 1)
    found: Real = np.maximum(power - noise - 2 * noise * np.sqrt(2 / independent), 0)
    return found

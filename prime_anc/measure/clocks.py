"""Find and undo the drift of two clocks: a delay of one signal after another that grows in proportion to time.

With clocks d apart, the cross-spectrum of windows at time t is C(t) = |X|^2 H exp(-j omega d t). Its phase from window
to window gives a first d, at ever longer distances a finer one. Segments of the recording are then compared with the
mean of all others: the maximum of the inverse transform of

    w C_g conj(sum_{k /= g} C_k) / (N sum |X|^2)

is the delay of segment g (N: power that x does not explain; w: coherence). Drift is the slope of a straight line
through the delays; what is beside the line are lost samples or a clock that wanders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.estimate import GainTake, PlayedTake
from prime_anc.measure.prior import smoothed
from prime_anc.method.arrays import SMALLEST, Complex, Real, squared_magnitude

# Samples per window, windows at most and least, and segments: 8 windows are 0.4 s.
WINDOW, MOST_WINDOWS, LEAST_WINDOWS, N_SEGMENTS = 4096, 128, 8, 16
# Bins over which powers are averaged.
NOISE_BINS = 65
# Largest drift that is looked for: sound devices are up to 1000 ppm apart.
MOST_DRIFT = 2e-3
# Steps per sample in the search for a delay, and its range between distant windows, whose drift is nearly known.
FINENESS, NEAR_SAMPLES = 4, 3
# A delay between windows counts if it raises their product by this factor.
CLEARLY = 1.05
# Share of a segment's spectrum that is in phase at its delay, and its power over the mean segment's, for the delay to
# be known, and the share of segments for the drift to be. Right recordings of noise have 0.68 and 0.13 at the least;
# half of a sweep's segments lie below 0.1, as each frequency sounds but once.
MIN_IN_PHASE, MIN_POWER, LEAST_KNOWN = 0.5, 0.1, 0.75
# Least drift that is named, and how many standard errors it must exceed: in 2100 right recordings up to 3.4.
LEAST_PPM, N_ERRORS = 3.0, 6.0
# Scatter of the delays beside a straight line that no clock explains, in samples, and over that of noise.
MAX_WANDER_SAMPLES, MAX_WANDER = 0.2, 5.0
# Share of a power that windows leave unexplained without noise.
LEAKAGE = 1e-6
# Corrections, each of what the one before left.
N_ROUNDS = 3
# Terms of the Taylor series: half a sample away it is exact within 1e-6.
N_TERMS = 13


class Drift(NamedTuple):
    """Drift of a signal's clock against another's; positive: faster."""

    ppm: float = 0.0
    # RMS of the delay beside a straight line, in samples; 0 if noise explains it.
    wander_samples: float = 0.0
    # Names of both signals.
    where: str = ""


NO_DRIFT = Drift()


def one_clock(
    takes: Sequence[GainTake], drives: Sequence[PlayedTake]
) -> tuple[list[GainTake], list[PlayedTake], Drift]:
    """Bring each take onto the clock of its outer microphone, and each drive's onto that of what was played.

    Returns
    -------
    list[GainTake], list[PlayedTake]
        The takes, resampled and cut where their clocks drifted steadily.
    Drift
        The largest drift, or wander if there is one.
    """
    found = [NO_DRIFT]

    def same(take: str, names: tuple[str, str], reference: Real, signal: Real) -> Real:
        on_clock, drift = without_drift(reference, signal)
        found.append(drift._replace(where=f"{take}, {names[1]} against {names[0]}"))
        return on_clock

    one = []
    for n, take in enumerate(takes):
        error = same(take.name or f"take {n}", ("x", "e"), take.reference, take.error)
        one.append(replace(take, reference=take.reference[: len(error)], error=error))
    played = []
    for n, drive in enumerate(drives):
        name = drive.name or f"drive {n}"
        x, e = (
            same(name, ("drive", channel), drive.drive, signal)
            for channel, signal in (("x", drive.reference), ("e", drive.error))
        )
        last = min(len(x), len(e))
        played.append(replace(drive, drive=drive.drive[:last], reference=x[:last], error=e[:last]))
    return one, played, max(found, key=lambda drift: (drift.wander_samples, abs(drift.ppm)))


def without_drift(reference: Real, signal: Real) -> tuple[Real, Drift]:
    """Resample a signal [n] onto the clock of its reference [n], if these drift steadily.

    Returns
    -------
    Real
        Signal [m], m <= n; the one given if the clocks do not drift, or not steadily.
    Drift
        What was found.
    """
    ppm, wander_samples, same = 0.0, 0.0, signal
    for _ in range(N_ROUNDS):
        if (left := _drift(reference, same)) is None:
            break
        left_ppm, error_ppm, wander_samples = left
        if not abs(left_ppm) > N_ERRORS * error_ppm:
            break
        ppm += left_ppm
        same = _resampled(signal, ppm)
    if wander_samples:
        return signal, Drift(ppm, wander_samples)
    return (same, Drift(ppm)) if abs(ppm) > LEAST_PPM else (signal, NO_DRIFT)


def _drift(reference: Real, signal: Real) -> tuple[float, float, float] | None:
    """Compute the drift and its standard error in ppm, and the wander; None if the recordings do not show them."""
    n = min(len(reference), len(signal))
    hop = max(WINDOW // 2, (n - WINDOW) // (MOST_WINDOWS - 1))
    starts = np.arange(0, n - WINDOW + 1, hop)
    if len(starts) < LEAST_WINDOWS:
        return None
    x, e = (_windows(item, starts) for item in (reference, signal))
    cross, power, heard = x.conj() * e, squared_magnitude(x), squared_magnitude(e)
    omega, drift = 2 * np.pi * np.arange(WINDOW // 2 + 1) / WINDOW, 0.0
    products, apart = (power * heard).sum(0), 1
    while apart <= len(starts) // 2:
        alike = np.einsum("tf,tf->f", cross[:-apart].conj(), cross[apart:]) / products
        known = np.maximum(smoothed(squared_magnitude(alike), NOISE_BINS) - 3 / (len(starts) - apart), 0)
        turned = known * alike * np.exp(1j * omega * drift * apart * hop)
        far = min(MOST_DRIFT * hop * apart, WINDOW // 2 - 1)
        delay, height, at_zero = _delay(turned, NEAR_SAMPLES if drift else far)
        if height > CLEARLY * at_zero:
            drift += delay / (apart * hop)
        apart *= 4
    times = starts - starts.mean()
    if drift:
        cross = cross * np.exp(1j * np.outer(times * drift, omega))
    return _of_segments(cross, power, heard, times, drift)


def _of_segments(
    cross: Complex, power: Real, heard: Real, times: Real, drift: float
) -> tuple[float, float, float] | None:
    """Compute the figures of `_drift` from spectra [n_windows, n_bins] without a first drift."""
    n = len(times)
    n_segments = min(N_SEGMENTS, n // 2)
    edges = np.arange(n_segments) * n // n_segments
    of_segments, powers = np.add.reduceat(cross, edges), np.add.reduceat(power, edges)
    whole, total, errors = of_segments.sum(0), power.sum(0), heard.sum(0)
    explained = squared_magnitude(whole) / total
    noise = smoothed(np.maximum(errors - explained, LEAKAGE * errors), NOISE_BINS) / (n - 1)
    coherence = smoothed(explained * total, NOISE_BINS) / smoothed(errors * total, NOISE_BINS)
    weight = np.maximum(coherence - 3 / n, 0) / noise
    delays, is_known = np.zeros(n_segments), np.zeros(n_segments, bool)
    least = MIN_POWER * (weight * explained).sum() / n_segments
    for place, segment in enumerate(of_segments):
        spectrum = weight * segment * (whole - segment).conj() / total
        delays[place], height, _ = _delay(spectrum, WINDOW // 2 - 1)
        is_known[place] = height > max(MIN_IN_PHASE * np.abs(spectrum).sum(), least)
    if is_known.mean() < LEAST_KNOWN:
        return None
    omega = 2 * np.pi * np.arange(WINDOW // 2 + 1) / WINDOW
    information = is_known * (powers * (total - powers) / total**2 @ (weight * omega**2 * explained))
    places = np.add.reduceat(times, edges) / np.diff([*edges, n])
    share = information / information.sum()
    places = places - share @ places
    spread = share @ places**2
    slope = share @ (places * delays) / spread
    beside = delays - share @ delays - slope * places
    scatter = share @ beside**2
    times_noise = scatter * information.sum() / (is_known.sum() - 2)
    error = np.sqrt(max(times_noise, 1) / information.sum() / spread)
    wander = np.sqrt(scatter) if scatter > MAX_WANDER_SAMPLES**2 and times_noise > MAX_WANDER**2 else 0.0
    return float(1e6 * (drift + slope)), float(1e6 * error), float(wander)


def _windows(signal: Real, starts: NDArray[np.integer]) -> Complex:
    """Transform the Hann windows of a signal at its RMS, [n_windows, n_bins]."""
    frames = np.lib.stride_tricks.sliding_window_view(signal, WINDOW)[starts]
    return np.fft.rfft((np.hanning(WINDOW + 1)[:-1] / np.sqrt(np.mean(frames**2)) * frames).astype(np.float32))


def _delay(spectrum: Complex, most: float) -> tuple[float, float, float]:
    """Find the delay up to `most` samples at which a cross-spectrum is most in phase; also the sums there and at 0."""
    reach = int(FINENESS * most)
    whole = np.fft.irfft(spectrum, FINENESS * WINDOW) * (FINENESS * WINDOW / 2)
    near = np.concatenate((whole[-reach:], whole[: reach + 1]))
    place = min(max(int(near.argmax()), 1), 2 * reach - 1)
    before, height, after = near[place - 1 : place + 2]
    beside = np.clip((after - before) / (2 * max(2 * height - before - after, SMALLEST)), -0.5, 0.5)
    return (place - reach + beside) / FINENESS, height, near[reach]


def _resampled(signal: Real, ppm: float) -> Real:
    """Read a signal [n] at times that are ppm longer apart: a Taylor series about the nearest samples."""
    n, pace = len(signal), 1 + 1e-6 * ppm
    at = np.arange(int((n - 1) / max(pace, 1)) + 1) * pace
    nearest = np.rint(at).astype(int)
    n_fft = 1 << (n - 1).bit_length()
    spectrum, factor = np.fft.rfft(signal, n_fft), 1.0
    slope, found = 2j * np.pi * np.fft.rfftfreq(n_fft), np.zeros(len(at))
    for n_term in range(1, N_TERMS + 1):
        found += factor * np.fft.irfft(spectrum, n_fft)[nearest]
        spectrum, factor = spectrum * slope, factor * (at - nearest) / n_term
    return found

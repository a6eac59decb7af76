"""Estimate acoustic paths from recordings of two probe states (eqs. 1-2), in NumPy.

With the control filter replaced by a known gain g, the error microphone records e_g = (p - g s) * x. So

    P = H_{e0,x},        S = (H_{e0,x} - H_{eg,x}) / g,

where H_{e,x} is the Hann-windowed cross-spectrum of x and e, pooled over recordings and window positions and divided by
the equally pooled autospectrum of x, regularised. The paper's experiments use these paths; `/calibrate` judges
recordings by these spectra, and estimates paths by `prime_anc.measure.posterior`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from prime_anc.measure.prior import lag_weight
from prime_anc.method.arrays import SMALLEST, Complex, Real, squared_magnitude
from prime_anc.method.bands import WIDE_BANDS, edges_hz
from prime_anc.method.conventions import N_BINS, SAMPLE_RATE_HZ
from prime_anc.method.errors import InvalidOption, InvalidPaths

# Regularisation of the pooled reference autospectrum, over its maximum.
REGULARISATION = 1e-6

# Fall of the reference's level within two one-third octaves that ends what the probe excites: converters and lossy
# coders fall by 45 to 60 dB, recorded noise below such an edge by up to 15.
EDGE_DB = 30.0

# Quantile of a band's bins that stands for its level: a tone does not raise it, and bands that hold an edge fall.
_EDGE_QUANTILE = 0.1

# Lower bands have few bins.
_FIRST_EDGE_BAND = 26


@dataclass(frozen=True, eq=False)
class GainTake:
    """One recording in one probe state.

    Each take has a reference, because an earphone cannot record two states at once.
    """

    # Gain g; 0 with a silent loudspeaker.
    gain: float
    # X, real [..., n].
    reference: Real
    # E, real [..., n].
    error: Real
    # For messages; its place if empty.
    name: str = ""


@dataclass(frozen=True, eq=False)
class PlayedTake:
    """One recording while only the loudspeaker plays: it yields the secondary and the feedback path directly."""

    # Loudspeaker signal, real [..., n].
    drive: Real
    # X = f * drive, real [..., n].
    reference: Real
    # E = s * drive, real [..., n].
    error: Real
    # For messages; its place if empty.
    name: str = ""


@dataclass(frozen=True, eq=False)
class PathEstimate:
    """Estimated paths."""

    # Causal impulse response, [..., taps].
    primary: Real
    # Causal impulse response, [..., taps].
    secondary: Real
    # Magnitude-squared coherence of x and e_0, [..., 16385], interpolated linearly onto the design grid; zero above the
    # probe's sharp edge (`n_excited_bands`).
    coherence: Real
    # The secondary estimate at lags without a response (`noise_lags`).
    secondary_noise: Real


@dataclass(frozen=True, eq=False)
class ProbeState:
    """Spectra of one probe state, pooled over its takes and windows, [..., window // 2 + 1]."""

    gain: float
    # H_{e,x}.
    transfer: Complex
    # Magnitude-squared coherence of x and e; biased upwards for few windows, 1 for a single one.
    coherence: Real
    # Sum of X* E over the windows.
    cross: Complex
    # Sum of |X|^2.
    reference_power: Real
    # Sum of |E|^2.
    error_power: Real
    # Number of windows.
    n_frames: int
    # Sum of |E|^2 that transfers of single takes explain, and that of all together does not, less what noise adds to
    # it; zero of a single take.
    disagreement: Real


def estimate_paths(
    takes: Sequence[GainTake], *, primary_taps: int = 8192, secondary_taps: int = 2048, **windows: Any
) -> PathEstimate:
    """Estimate both paths from takes of at least one state with gain 0 and one without (eqs. 1-2).

    Several non-zero gains are averaged after division by the gain. `windows` and errors are those of `probe_states`.
    """
    states = probe_states(takes, **windows)
    return paths_of_states(states, primary_taps=primary_taps, secondary_taps=secondary_taps)


def probe_states(
    takes: Sequence[GainTake],
    *,
    window: int = 8192,
    n_offsets: int = 6,
    first_sample: int = 8192,
    last_sample: int = 4 * SAMPLE_RATE_HZ,
    regularisation: float = REGULARISATION,
    drives: Sequence[PlayedTake] = (),
) -> tuple[ProbeState, ...]:
    """Pool the spectra of each state: gain 0 first, then ascending, then that of the drives.

    Parameters
    ----------
    window
        Samples of the Hann window.
    n_offsets
        Number of windows, starting equally spaced in [first_sample, last_sample - window].
    regularisation
        Regularisation of the pooled autospectrum over its maximum.
    drives
        They may replace takes with a gain. Their state is that of a gain of one: P - S, with the P of the silent state.

    Raises
    ------
    InvalidPaths
        Takes are too short or not finite.
    InvalidOption
        A state is missing.
    """
    offsets = _offsets(takes, window, n_offsets, first_sample, last_sample, has_drives=bool(drives))
    gains = [0.0, *sorted({take.gain for take in takes} - {0.0})]
    states = [_pooled([t for t in takes if t.gain == gain], offsets, window, regularisation) for gain in gains]
    if drives:
        returned, played = drive_states(drives, offsets, window, regularisation)
        states[1:] = [_without_return(state, states[0], returned.transfer) for state in states[1:]]
        states.append(_driven(states[0], played))
    return tuple(states)


def drive_states(
    drives: Sequence[PlayedTake], offsets: Sequence[int], window: int, regularisation: float = REGULARISATION
) -> tuple[ProbeState, ProbeState]:
    """Pool the spectra of the loudspeaker's paths: to the outer and to the error microphone."""

    def pooled(signals: Sequence[Real]) -> ProbeState:
        takes = [GainTake(1.0, drive.drive, signal) for drive, signal in zip(drives, signals, strict=True)]
        return _pooled(takes, offsets, window, regularisation)

    return pooled([drive.reference for drive in drives]), pooled([drive.error for drive in drives])


def paths_of_states(
    states: Sequence[ProbeState], *, primary_taps: int = 8192, secondary_taps: int = 2048
) -> PathEstimate:
    """Compute causal responses of both paths from `probe_states`."""
    coherence = onto_design_grid(states[0].coherence)
    coherence[..., first_silent_bin(states[0].reference_power) :] = 0
    transfer = secondary_transfer(states)
    return PathEstimate(
        primary=_causal_response(states[0].transfer, primary_taps),
        secondary=_causal_response(transfer, secondary_taps),
        coherence=coherence,
        secondary_noise=noise_lags(np.fft.irfft(transfer)),
    )


def secondary_transfer(states: Sequence[ProbeState]) -> Complex:
    """Average S over the states with a gain, on the window's grid, [..., window // 2 + 1] (eq. 2)."""
    silent, *driven = states
    found: Complex = np.mean([(silent.transfer - state.transfer) / state.gain for state in driven], axis=0)
    return found


def n_excited_bands(reference_power: Real) -> int:
    """Count the bands from 20 Hz up to a sharp upper edge of the probe: 0 to 31.

    Parameters
    ----------
    reference_power
        Sum of |X|^2 over windows, [..., window // 2 + 1]; pooled over the leading axes.
    """
    power = reference_power.reshape(-1, reference_power.shape[-1]).sum(0)
    frequency_hz = np.linspace(0, SAMPLE_RATE_HZ / 2, len(power))
    bands = [n for n in WIDE_BANDS if n >= _FIRST_EDGE_BAND]
    edges = np.searchsorted(frequency_hz, [edges_hz(bands[0])[0], *(edges_hz(n)[1] for n in bands)])
    quantiles = [np.quantile(power[low:high], _EDGE_QUANTILE) for low, high in pairwise(edges)]
    level_db = 10 * np.log10(np.maximum(quantiles, SMALLEST))
    for place in range(1, len(bands)):
        if level_db[max(place - 2, 0) : place].max() - level_db[place:].max() >= EDGE_DB:
            return bands[place] - WIDE_BANDS[0]
    return len(WIDE_BANDS)


def first_silent_bin(reference_power: Real) -> int:
    """Return the first bin of the design grid above what the probe excites."""
    n = n_excited_bands(reference_power)
    if n == len(WIDE_BANDS):
        return N_BINS
    return int(np.ceil(edges_hz(WIDE_BANDS[n])[0] / (SAMPLE_RATE_HZ / 2) * (N_BINS - 1)))


def onto_design_grid(spectrum: Real) -> Real:
    """Interpolate real [..., bins] linearly over frequency onto the design grid's 16385 bins."""
    position = np.arange(N_BINS) * ((spectrum.shape[-1] - 1) / (N_BINS - 1))
    lower = np.minimum(position.astype(np.intp), spectrum.shape[-1] - 2)
    fraction = position - lower
    dense: Real = (1 - fraction) * spectrum[..., lower] + fraction * spectrum[..., lower + 1]
    return dense


def _offsets(
    takes: Sequence[GainTake], window: int, n_offsets: int, first: int, last: int, *, has_drives: bool = False
) -> list[int]:
    """Check the takes and return the first samples of the windows."""
    gains = sorted({take.gain for take in takes})
    if 0 not in gains or (len(gains) < 2 and not has_drives):
        raise InvalidOption(
            f"takes: their gains are {gains}; record at least one take with gain 0 and one with another gain",
            field="takes",
        )
    for number, take in enumerate(takes):
        for name, signal in (("reference", take.reference), ("error", take.error)):
            if signal.shape[-1] < last:
                raise InvalidPaths(
                    f"take {number}, {name}: it has {signal.shape[-1]} samples; record at least {last}",
                    field="takes",
                )
            if not np.isfinite(signal).all():
                raise InvalidPaths(
                    f"take {number}, {name}: it holds NaN or infinity; send finite samples", field="takes"
                )
    if not 0 <= first <= last - window:
        raise InvalidOption(f"window: {window} samples are too many; use at most {last - first}", field="window")
    return window_starts(window, n_offsets, first, last)


def window_starts(window: int, n_windows: int, first_sample: int, last_sample: int) -> list[int]:
    """Return the first samples of `n_windows` equally spaced windows."""
    return [round(value) for value in np.linspace(first_sample, last_sample - window, n_windows).tolist()]


def _pooled(takes: Sequence[GainTake], offsets: Sequence[int], window: int, regularisation: float) -> ProbeState:
    """Pool one state's takes, all of the same gain."""
    hann = np.hanning(window + 1)[:-1]
    # Sums over the windows, scalars that the first window's arrays broadcast.
    cross: Complex = np.zeros((), complex)
    power: Real = np.zeros(())
    error_power: Real = np.zeros(())
    explained: Real = np.zeros(())
    for take in takes:
        cross_before, power_before = cross, power
        for offset in offsets:
            frame = slice(offset, offset + window)
            reference = np.fft.rfft(hann * take.reference[..., frame])
            error = np.fft.rfft(hann * take.error[..., frame])
            cross = cross + reference.conj() * error
            power = power + squared_magnitude(reference)
            error_power = error_power + squared_magnitude(error)
        explained = explained + squared_magnitude(cross - cross_before) / np.maximum(power - power_before, SMALLEST)
    n_frames, n_takes = len(takes) * len(offsets), len(takes)
    by_noise = np.maximum(error_power - explained, 0) * ((n_takes - 1) / max(n_frames - n_takes, 1))
    disagreement = explained - squared_magnitude(cross) / np.maximum(power, SMALLEST) - by_noise
    return ProbeState(
        gain=takes[0].gain,
        transfer=cross / np.maximum(power + regularisation * power.max(-1, keepdims=True), SMALLEST),
        coherence=(squared_magnitude(cross) / np.maximum(power * error_power, SMALLEST)).clip(0, 1),
        cross=cross,
        reference_power=power,
        error_power=error_power,
        n_frames=n_frames,
        disagreement=disagreement,
    )


def _driven(silent: ProbeState, pooled: ProbeState) -> ProbeState:
    """Derive the state of a gain of one from the path to the error microphone."""
    cross = silent.cross / np.maximum(silent.reference_power, SMALLEST) * pooled.reference_power - pooled.cross
    explained = squared_magnitude(cross) / np.maximum(pooled.reference_power, SMALLEST)
    return replace(
        pooled,
        transfer=silent.transfer - pooled.transfer,
        cross=cross,
        error_power=explained + unexplained_power(pooled),
    )


def _without_return(state: ProbeState, silent: ProbeState, feedback: Complex) -> ProbeState:
    """Take from a state with a gain what the outer microphone hears of the loudspeaker: H = P - g (S - P F)."""
    heard = state.gain * silent.transfer * feedback
    cross = state.cross - heard * state.reference_power
    explained = squared_magnitude(cross) / np.maximum(state.reference_power, SMALLEST)
    error_power = explained + unexplained_power(state)
    return replace(state, transfer=state.transfer - heard, cross=cross, error_power=error_power)


def response_of_blocks(blocks: Iterable[tuple[Real, Real]], *, n_taps: int) -> Real:
    """Estimate a path from recordings of any length, of which one block is in memory at a time.

    Parameters
    ----------
    blocks
        Reference and error signal, real [n]; blocks shorter than a window are left out.
    n_taps
        Length of the response.

    Returns
    -------
    Real
        Causal impulse response, [n_taps]; zero without a block.
    """
    window = 8192
    cross: Complex = np.zeros(window // 2 + 1, complex)
    power: Real = np.zeros(window // 2 + 1)
    for reference, error in blocks:
        offsets = range(0, len(reference) - window + 1, window // 2)
        if offsets:
            pooled = _pooled([GainTake(0.0, reference, error)], offsets, window, REGULARISATION)
            cross, power = cross + pooled.cross, power + pooled.reference_power
    response = _causal_response(cross / np.maximum(power + REGULARISATION * power.max(), SMALLEST), n_taps)
    n = min(n_taps, window // 2)  # what is later is mostly noise
    response[:n] /= lag_weight(window)[:n]
    return response


def convolved(x: Real, response: Real) -> Real:
    """Convolve, and keep as many samples as x has."""
    n = 1 << int(len(x) + len(response) - 1).bit_length()
    return np.fft.irfft(np.fft.rfft(x, n) * np.fft.rfft(response, n), n)[: len(x)]


def unexplained_power(state: ProbeState) -> Real:
    """Compute the error's power that the reference does not explain, summed over the windows."""
    explained = squared_magnitude(state.cross) / np.maximum(state.reference_power, SMALLEST)
    unexplained: Real = np.maximum(state.error_power - explained, 0)
    return unexplained


def _causal_response(transfer: Complex, n_taps: int) -> Real:
    """Return samples 0 to n_taps - 1 of the inverse transform, zero-padded for shorter windows."""
    whole = np.fft.irfft(transfer)[..., :n_taps]
    response = np.zeros((*whole.shape[:-1], n_taps))
    response[..., : whole.shape[-1]] = whole
    return response


def noise_lags(whole: Real) -> Real:
    """Return the lags of a window's response, real [..., window], that hold only noise.

    They run from half of the window to seven eighths: later than an ear rings, earlier than what precedes sample 0.
    """
    window = whole.shape[-1]
    return whole[..., window // 2 : window * 7 // 8]

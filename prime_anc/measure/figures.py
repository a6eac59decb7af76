"""Figures by which a calibration is judged, from the spectra of its states.

They are plain spectra, which no prior has smoothed. Bands are the 23 from 50 Hz to 8 kHz unless stated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.estimate import (
    REGULARISATION,
    GainTake,
    PathEstimate,
    PlayedTake,
    ProbeState,
    drive_states,
    n_excited_bands,
    noise_lags,
    onto_design_grid,
    secondary_transfer,
    unexplained_power,
)
from prime_anc.measure.posterior import PRIMARY_TAPS
from prime_anc.measure.prior import lag_weight
from prime_anc.method.arrays import SMALLEST, Complex, Real, squared_magnitude
from prime_anc.method.bands import AMP_BANDS, WIDE_BANDS, band_membership, columns
from prime_anc.method.conventions import COHERENCE_FLOOR, DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.support.statistics import delay_samples

# Samples per window of the spectra that show faults, and the shortest that the verdict trusts.
WINDOW = 8192
# Windows above which pairs of them are long enough for a tail.
MIN_LONG_WINDOWS = 4
# Level of what is not there.
NO_TAIL_DB = -120.0
# Bands from 400 Hz: below, ears themselves ring as long.
TAIL_BANDS = tuple(n for n in AMP_BANDS if n >= 26)
# Bands that show a changed gain, from 100 Hz: below, both paths ring with the converters' high-passes.
GAIN_BANDS = tuple(n for n in WIDE_BANDS if n >= 20)
# Lags over which a tail is faded in and out.
RAMP = 128
# Least tail over noise (6 dB); less is noise.
TAIL_OVER_NOISE = 4.0
# A response is early until this share of its energy, and at least for so many samples (`Figures.early_db`): in the
# first few, what the loudspeaker of an earphone adds may cancel the noise.
EARLY_SHARE, EARLY_SAMPLES = 0.01, 12
# Lags where the primary path of earphones still rings and the secondary does not.
_LATE = slice(WINDOW // 4, WINDOW * 7 // 8)
# Least coherence of that sound in two states: ears with white noise have 0.98 at 30 dB of SNR; where a loudspeaker's
# sound outlasts the noise's, what they share by chance resembles a gain.
MIN_LATE_COHERENCE = 0.6
# Mean over the bands of that sound's correlation in two states, below which a microphone is inverted. 165 ears, rooms,
# ducts, headphones and others stay above -0.22 with gains up to 1, above -0.3 with 3. Inverted, at 0.35, 98 % of ears,
# ducts and rooms fall below, and two thirds of headsets, in which hardly anything sounds after 43 ms.
OPPOSITE_LATE = -0.4
# Standard error of a median of n values over their median absolute deviation, times the root of n; and the number of
# standard errors that are subtracted from `distortion_db`.
MEDIAN_ERROR, N_ERRORS = 1.2533 * 1.4826, 2.0
# Least squared coherence of two states' references, median over frequency, for one to repeat the other; and the windows
# that are compared at most.
REPEATS, MAX_REPEATED = 0.8, 256


@dataclass(frozen=True, eq=False)
class Figures:
    """Figures of a calibration's states; all arrays float64."""

    # Coherence of x and e in the silent state per band, [23].
    coherence: Real
    # -10 log10(1 - coherence) per band, [23].
    noise_reduction_ceiling_db: Real
    # SNR of the measured secondary path per band, [23].
    secondary_snr_db: Real
    # Delay of the primary less that of the secondary path.
    lead_samples: float
    # Lag of the secondary path's maximum from 200 Hz to 8 kHz; negative: before it is played.
    secondary_peak_samples: int
    # Energy of the secondary or feedback path from `tail_samples` on over that before, median from 400 Hz to 8 kHz;
    # -120 if below the noise.
    tail_db: float
    # Gain (1 for drives) and level of the secondary path over that of all, for several states with a gain.
    state_levels_db: list[tuple[float, float]]
    # Whether two of these secondary paths have opposite signs.
    has_opposite_signs: bool
    # Least change of the primary path's late lags against the silent state, as from a changed microphone gain.
    gain_change_db: float
    # Whether those lags have the opposite sign, as from an inverted microphone.
    is_inverted: bool
    # Energy before zero: of the path from x to e, and of that from e to x, in the state where the former has most.
    acausal_shares: tuple[float, float]
    # The same of drive and e; zero without drives.
    drive_acausal_shares: tuple[float, float]
    # By how much a feedback path that is louder than the secondary path precedes it (maxima from 200 Hz to 8 kHz).
    feedback_lead_samples: int
    # Least energy of a state with a gain over that of the silent one, in the lags in which the latter is early.
    early_db: float
    # Power that x does not explain beyond that of the silent state, over the loudspeaker's: median less two standard
    # errors.
    distortion_db: float
    # What the transfers of single takes explain of e, and that of all takes of a gain does not, over the power of e:
    # median over the bands, of the gain with the most; -120 of single takes, or below the noise.
    disagreement_db: float
    # Change of x with the loudspeaker's sound; -120 if unknown.
    returned_db: float
    # Samples per window.
    window: int
    # Windows pooled in the state with fewest.
    n_frames: int
    # Whether the probe excites a band, [23]: none above a sharp edge of x. Others say nothing about the measurement.
    is_excited: NDArray[np.bool_]

    @property
    def tail_samples(self) -> int:
        """Return the lag from which `tail_db` is measured."""
        return self.window // 4


def figures_of(
    takes: Sequence[GainTake],
    drives: Sequence[PlayedTake],
    states: Sequence[ProbeState],
    measured: PathEstimate,
    starts: Sequence[int],
) -> Figures:
    """Compute the figures of takes and drives.

    Parameters
    ----------
    takes, drives
        Signals in float64.
    states
        Their states, that of the drives last.
    measured
        Paths of these states.
    starts
        First samples of the states' windows.
    """
    of_takes, window = states[: -1 if drives else None], 2 * (states[0].transfer.shape[-1] - 1)
    excited = WIDE_BANDS[: n_excited_bands(states[0].reference_power)]
    transfer = secondary_transfer(states)
    tail_db, drive_shares, lead_samples = _tail_db(np.fft.irfft(transfer), excited), (0.0, 0.0), 0
    if drives:
        of_drives_db, drive_shares, lead_samples = _of_drives(drives, starts, window, excited)
        tail_db = max(tail_db, of_drives_db)
    unexplained = _unexplained_share(states, measured)[columns(AMP_BANDS)]
    repeats, returned = _repetition(takes, states[1].gain, starts[:: -(-len(starts) // MAX_REPEATED)], window)
    gain_change_db, is_inverted = _late_change(of_takes, window, excited, repeats=repeats)
    return Figures(
        coherence=1 / (1 + unexplained),
        noise_reduction_ceiling_db=_level_db(1 + 1 / np.maximum(unexplained, 1e-12)),
        secondary_snr_db=_secondary_snr_db(measured),
        lead_samples=_lead_samples(measured),
        secondary_peak_samples=_peak_samples(transfer),
        tail_db=tail_db,
        state_levels_db=_state_levels_db(states),
        has_opposite_signs=_have_opposite_signs(states),
        gain_change_db=gain_change_db,
        is_inverted=is_inverted,
        acausal_shares=max(map(_acausal_shares, of_takes)),
        drive_acausal_shares=drive_shares,
        feedback_lead_samples=lead_samples,
        early_db=_early_db(of_takes),
        distortion_db=_distortion_db(states, excited),
        disagreement_db=max(_disagreement_db(state, excited) for state in of_takes),
        returned_db=max(float(_level_db(returned)), NO_TAIL_DB) if repeats else NO_TAIL_DB,
        window=window,
        n_frames=min(state.n_frames for state in states),
        is_excited=np.isin(AMP_BANDS, excited),
    )


def _repetition(takes: Sequence[GainTake], gain: float, starts: Sequence[int], window: int) -> tuple[bool, float]:
    """Judge whether the references of the takes with a gain repeat those of the silent state.

    Also return the mean power by which they change with the loudspeaker's sound, over their own.
    """
    silent, playing = ([take for take in takes if take.gain == item] for item in (0.0, gain))
    hann = np.hanning(window + 1)[:-1]
    power, of_playing, cross = (
        np.zeros(window // 2 + 1),
        np.zeros(window // 2 + 1),
        np.zeros(window // 2 + 1, complex),
    )
    n = 0
    for one, other in zip(silent, playing, strict=False):  # what has no counterpart is not compared
        for first in starts:
            x, y = (np.fft.rfft(hann * take.reference[first : first + window]) for take in (one, other))
            power, of_playing = power + squared_magnitude(x), of_playing + squared_magnitude(y)
            cross, n = cross + x.conj() * y, n + 1
    coherence = squared_magnitude(cross) / np.maximum(power * of_playing, SMALLEST)
    if n < 2 or np.median(coherence) < REPEATS:
        return False, 0.0
    # A small change by g F adds Re g F to the log of the magnitude, and noise its scatter.
    heard = coherence > REPEATS
    level = np.log(np.abs(cross[heard]) / np.maximum(power[heard], SMALLEST))
    by_noise = np.mean(1 / coherence[heard] - 1) / (2 * n)
    return True, max(2 * (float(np.var(level)) - float(by_noise)), 0.0)


def _of_drives(
    drives: Sequence[PlayedTake], starts: Sequence[int], window: int, excited: tuple[int, ...]
) -> tuple[float, tuple[float, float], int]:
    """Compute `tail_db` of the feedback path, `drive_acausal_shares` and `feedback_lead_samples`."""
    returned, played = drive_states(drives, starts, window)
    lead_samples = 0
    if squared_magnitude(returned.transfer).sum() > squared_magnitude(played.transfer).sum():
        lead_samples = _peak_samples(played.transfer) - _peak_samples(returned.transfer)
    # Late sound shows in windows that are four times as long as the path that is kept.
    is_long = len(starts) > MIN_LONG_WINDOWS
    longer = drive_states(drives, starts[:-2], 2 * window)[0] if is_long else returned
    return _tail_db(np.fft.irfft(longer.transfer), excited), _acausal_shares(played), lead_samples


def _level_db(power_ratio: Real | float) -> Real:
    level: Real = 10 * np.log10(np.maximum(power_ratio, SMALLEST))
    return level


def _lead_samples(measured: PathEstimate) -> float:
    """Compute `Figures.lead_samples`."""
    padded = np.pad(measured.secondary, (0, PRIMARY_TAPS - len(measured.secondary)))
    primary_delay, secondary_delay = delay_samples(np.stack((measured.primary, padded)))
    return float(primary_delay - secondary_delay)


def _secondary_snr_db(measured: PathEstimate) -> Real:
    """Compute the power of the estimate over that of as many lags of noise, per band [23]."""
    secondary, noise = measured.secondary, measured.secondary_noise
    membership = band_membership(AMP_BANDS, DESIGN_N_FFT)
    power, floor = (
        squared_magnitude(np.fft.rfft(item, n=DESIGN_N_FFT)) @ membership for item in (secondary, noise)
    )
    floor = floor * (secondary.shape[-1] / noise.shape[-1])
    return _level_db(power / np.maximum(floor, 1e-12 * power.max()))


def _unexplained_share(states: Sequence[ProbeState], estimate: PathEstimate) -> Real:
    """Compute unexplained over explained power at the error microphone under the probes' spectrum, per band [31]."""
    membership = band_membership(WIDE_BANDS, DESIGN_N_FFT)
    primary = np.fft.rfft(estimate.primary, n=DESIGN_N_FFT)
    explained = onto_design_grid(states[0].reference_power) * squared_magnitude(primary)
    known = estimate.coherence.clip(COHERENCE_FLOOR, 1)
    share: Real = ((1 - known) / known * explained) @ membership / np.maximum(explained @ membership, SMALLEST)
    return share


def _tail_db(whole: Real, excited: tuple[int, ...]) -> float:
    """Compute `Figures.tail_db` of a response whose lags have the weight of the windows, [window]."""
    if len(whole) < WINDOW:
        return NO_TAIL_DB
    membership = band_membership(tuple(n for n in TAIL_BANDS if n in excited), DESIGN_N_FFT)
    noise, ramp, n_early = noise_lags(whole), np.hanning(2 * RAMP), len(whole) // 4
    # Later lags are mostly noise.
    late = slice(n_early - RAMP, len(whole) * 7 // 16)
    # Tapered, or low frequencies, where ears ring, leak into the other bands.
    taper = np.concatenate((ramp[:RAMP], np.ones(late.stop - late.start - 2 * RAMP), ramp[RAMP:]))
    of_late, of_noise = taper / lag_weight(len(whole))[late], np.hanning(len(noise))
    tail, floor, power = (
        squared_magnitude(np.fft.rfft(item, n=DESIGN_N_FFT)) @ membership
        for item in (of_late * whole[late], of_noise * noise, whole[:n_early])
    )
    excess = np.maximum(tail - TAIL_OVER_NOISE * np.sum(of_late**2) / np.sum(of_noise**2) * floor, 0)
    return float(np.maximum(np.median(_level_db(excess / np.maximum(power, SMALLEST))), NO_TAIL_DB))


def _state_levels_db(states: Sequence[ProbeState]) -> list[tuple[float, float]]:
    """Compute `Figures.state_levels_db` by least squares over the bins from 100 Hz to 4 kHz."""
    if len(states) < 3:
        return []
    frequency = np.linspace(0, SAMPLE_RATE_HZ / 2, states[0].transfer.shape[-1])
    inside = (frequency >= 100) & (frequency <= 4000)
    whole = secondary_transfer(states)[inside]
    energy = np.maximum(np.sum(squared_magnitude(whole)), SMALLEST)
    levels = [(state.gain, secondary_transfer((states[0], state))[inside]) for state in states[1:]]
    return [(gain, float(2 * _level_db(np.abs(np.vdot(whole, item)) / energy))) for gain, item in levels]


def _acausal_shares(state: ProbeState) -> tuple[float, float]:
    """Compute `Figures.acausal_shares`."""

    def share(cross: Complex, power: Real) -> float:
        response = np.fft.irfft(cross / np.maximum(power + REGULARISATION * power.max(), SMALLEST))
        energy = np.square(response)
        return float(energy[len(energy) // 2 :].sum() / max(energy.sum(), SMALLEST))

    return share(state.cross, state.reference_power), share(state.cross.conj(), state.error_power)


def _early_db(states: Sequence[ProbeState]) -> float:
    """Compute `Figures.early_db`."""
    responses = [np.fft.irfft(state.transfer) for state in states]
    silent, *played = [np.cumsum(np.square(item[: len(item) // 2])) for item in responses]
    last = max(int(np.searchsorted(silent, EARLY_SHARE * silent[-1])), EARLY_SAMPLES)
    return float(_level_db(min([1.0, *(item[last] / max(silent[last], SMALLEST) for item in played)])))


def _peak_samples(transfer: Complex) -> int:
    """Compute `Figures.secondary_peak_samples`."""
    frequency_hz = np.linspace(0, SAMPLE_RATE_HZ / 2, transfer.shape[-1])
    response = np.fft.irfft(transfer * ((frequency_hz >= 200) & (frequency_hz <= 8000)))
    lag = int(np.abs(response).argmax())
    return lag if lag < len(response) // 2 else lag - len(response)


def _distortion_db(states: Sequence[ProbeState], excited: tuple[int, ...]) -> float:
    """Compute `Figures.distortion_db` for the loudest state.

    Unexplained power of the silent state is noise, which is the same in the other state, or the primary path's tail,
    which scales with x. The larger of both is subtracted.
    """
    silent, *played = states
    membership = band_membership(tuple(n for n in AMP_BANDS if n in excited), 2 * (silent.transfer.shape[-1] - 1))
    before, silent_power = unexplained_power(silent) / silent.n_frames, silent.reference_power / silent.n_frames
    levels = []
    for item in played:
        power, left = item.reference_power / item.n_frames, unexplained_power(item) / item.n_frames
        expected = np.maximum(before, before / np.maximum(silent_power, SMALLEST) * power)
        sound = squared_magnitude(item.gain * secondary_transfer((silent, item))) * power
        excess = (left - expected) @ membership / np.maximum(sound @ membership, SMALLEST)
        median = np.median(excess)
        error = MEDIAN_ERROR * np.median(np.abs(excess - median)) / np.sqrt(len(excess))
        levels.append(float(_level_db(median - N_ERRORS * error)))
    return max(levels)


def _disagreement_db(state: ProbeState, excited: tuple[int, ...]) -> float:
    """Compute `Figures.disagreement_db` for one state."""
    membership = band_membership(tuple(n for n in AMP_BANDS if n in excited), 2 * (state.transfer.shape[-1] - 1))
    share = state.disagreement @ membership / np.maximum(state.error_power @ membership, SMALLEST)
    return float(_level_db(np.median(share).clip(1e-12)))


def _have_opposite_signs(states: Sequence[ProbeState]) -> bool:
    """Return whether secondary paths of two states have opposite signs."""
    found = [secondary_transfer((states[0], state)) for state in states[1:]]
    norms = [np.linalg.norm(item) for item in found]
    first, size = found[0], norms[0]
    return any(np.vdot(first, item).real < -0.5 * size * norm for item, norm in zip(found, norms, strict=True))


def _late_change(
    states: Sequence[ProbeState], window: int, excited: tuple[int, ...], *, repeats: bool
) -> tuple[float, bool]:
    """Compute `gain_change_db` and `is_inverted` of `Figures`.

    Noise lowers one of two quotients of the late lags and raises the other.

    What else differs, such as leaks of probes that do not repeat or a secondary path that rings as long, correlates by
    chance, the more the fewer bands dominate. A gain changes all bands alike, so only what exceeds the standard error
    over the bands counts.
    """
    if window < WINDOW:
        return 0.0, False
    bands, taper, n_errors = excited, np.ones(_LATE.stop - _LATE.start), 1.0
    if repeats:
        # Tapered, or what converters' high-passes leave at the lowest frequencies leaks into all bands. The leaks of
        # other probes are larger, and fewer samples would not tell a gain from them.
        bands, taper, n_errors = tuple(n for n in GAIN_BANDS if n in excited), np.hanning(len(taper)), 1.5
    membership = band_membership(bands, len(taper))
    silent, *played = (np.fft.rfft(taper * np.fft.irfft(state.transfer)[_LATE]) for state in states)
    alone = squared_magnitude(silent) @ membership
    least, is_inverted = [0.0], False
    for item in played:
        common, other = (silent.conj() * item).real @ membership, squared_magnitude(item) @ membership
        correlation = np.mean(
            common / np.maximum(np.sqrt(alone * other), SMALLEST)
        )  # of all bands, not the loudest
        is_inverted |= bool(correlation < OPPOSITE_LATE)
        shared = common.sum()
        if shared > 0 and shared**2 > MIN_LATE_COHERENCE * alone.sum() * other.sum():
            quotients = [with_error_db(common, alone), with_error_db(other, common)]
            low, high = (
                pick(db + way * n_errors * error for db, error in quotients) for pick, way in ((min, -1), (max, 1))
            )
            least.append(float(max(low, 0) + min(high, 0)))
    return max(least, key=abs), is_inverted


def with_error_db(numerator: Real, denominator: Real) -> tuple[float, float]:
    """Compute the level of a quotient of sums over bands, and its standard error by the jackknife.

    The error is infinite where one band makes the whole denominator.
    """
    level_db = float(_level_db((numerator.sum() / max(denominator.sum(), SMALLEST)) ** 2))
    others = denominator.sum() - denominator
    if others.min() <= 0:
        return level_db, np.inf
    levels = _level_db(np.square(((numerator.sum() - numerator) / others).clip(0)))
    return level_db, float(levels.std() * np.sqrt(len(levels) - 1))

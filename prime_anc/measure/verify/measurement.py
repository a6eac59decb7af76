"""Measure what a running filter does, and how the paths differ from those for which it was designed.

With the filter W running, e = (P' - S' W) * x, where P' and S' are the paths as they are now. The transfer from x to e
is estimated in both states, so that

    D = H_off - H_on = S' W

is the loudspeaker's part, which is compared with the designed part Y = S W. Y passes the same windows, as x filtered by
s * w, so that the bias is the same in both. A secondary path that differs by a gain g and a delay tau, D = g Y exp(-j
omega tau), is found by weighted least squares; a negative gain is a reversed polarity. The bands of D / Y distinguish a
leak, which removes the loudspeaker's low frequencies, from another seating.

With a feedback path F the outer microphone also records the loudspeaker, x = m (1 + W F) for outside sound m: then Y =
(S - P F) W, and levels are those of e relative to x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.figures import with_error_db
from prime_anc.measure.signals import clipped_share
from prime_anc.measure.verify.blocks import (
    FRAMES_PER_BLOCK,
    INDEPENDENT,
    WINDOW,
    Block,
    StateTake,
    by_state,
    smoothed,
    state_of,
)
from prime_anc.method.arrays import Complex, Real
from prime_anc.method.bands import AMP_BANDS, NR_BANDS, band_membership, nominal_hz
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.methods import spectrum
from prime_anc.method.types import Complex64, Float32

# Range of the fit: below, the seal changes the loudspeaker's level; above, it plays little.
FIT_HZ = (100.0, 6000.0)
MAX_DELAY_SAMPLES = 64
# Steps per sample in the search for the delay.
FINENESS = 16
# Power of D that no gain and delay explain, over the explained power: keeps loud bins from dominating.
MODEL_ERROR = 0.01
NOT_RUNNING_GAIN = 0.1
# Variances of H_on that its power exceeds by chance in one of a thousand bands.
N_VARIANCES = 5.0
# Mean cosine of the sum of the phases of H_off and of the given primary path, above which H_off is its inverse, so that
# x is the error microphone; that of their difference is below it. On 15 measured ears, with any of their paths given,
# these are 0.5 to 1 and below -0.1; with the right channels the other way round.
INVERSE_COSINE = 0.3
# Power over that of H_off, mean over the bands, below which errors of the fit hide that level.
LEAST_LEFT = 1e-3
# Rise of a few bins, 6 Hz apart, above their neighbourhood without the filter; other faults reach 12 with the same
# noise in both states, 17 with two recordings.
HOWL_DB = 20.0
# Rise of up to HOWL_BANDS bands, one of which has this share of the power of e; more bands mean a wrong filter.
HOWL_BAND_DB, HOWL_BANDS, HOWL_SHARE = 10.0, 3, 0.1
# Number of neighbouring bins in a median.
NEIGHBOURS = 65


@dataclass(frozen=True, eq=False)
class Verification:
    """Measured behaviour of a running filter."""

    # Per band from 50 Hz to 8 kHz, float64 [23].
    noise_reduction_db: NDArray[np.float64]
    # Likewise, of what the outer microphone hears.
    heard_reduction_db: NDArray[np.float64]
    # Mean over 21 of these bands.
    mean_noise_reduction_db: float
    # As in a prediction.
    amplification_db: float
    # Half-width of the 80 % interval of the mean; None if a state has one block.
    interval_db: float | None
    # Gain of the secondary path over the designed one.
    gain_db: float
    # Delay of the secondary path after the designed one.
    delay_samples: float
    # Whether its polarity is reversed.
    is_inverted: bool
    # Whether the loudspeaker plays the filter's output.
    is_running: bool
    # D / Y per band, without the delay, complex [23].
    band_ratio: NDArray[np.complex128]
    # Whether Y is louder than the noise, per band, [23].
    is_heard: NDArray[np.bool_]
    # Share of D's power that gain and delay do not explain, mean of the fitted bands.
    unexplained_share: float
    # Likewise, their median, which a leak leaves low.
    typical_share: float
    # Share of H_off's power that the given primary path does not explain.
    primary_share: float
    # Power over that of H_off, per band [23]: of D beyond gain and delay, and of H_off beyond the given primary path.
    played_rest: NDArray[np.float64]
    primary_rest: NDArray[np.float64]
    # Least level drop of e with the filter on beyond H_off less the loudspeaker's part, at most 0.
    error_gain_db: float
    # Coherence of x and e without the filter, median of the bands.
    coherence: float
    # Whether x and e are exchanged.
    is_exchanged: bool
    # As in a calibration, without e with the filter on, which uses few values of 16 bits.
    clipped_share: float
    # Blocks of the state with fewer.
    n_blocks: int
    # Rise of a howling tone or band, 0 without one.
    howl_db: float
    # Its frequency.
    howl_hz: float


def verify(
    recordings: Sequence[StateTake],
    taps: Float32 | Complex64,
    primary: Float32 | Complex64,
    secondary: Float32 | Complex64,
    feedback: Float32 | Complex64 | None = None,
) -> Verification:
    """Measure what the filter (e = d - s * w * x) does and how the paths differ from those given.

    Parameters
    ----------
    recordings
        Takes with the filter off and on.
    taps
        The filter, as taps or response on the design grid.
    primary, secondary
        Paths for which it was designed, as responses or spectra on the design grid.
    feedback
        Path from loudspeaker to outer microphone, if any.

    Raises
    ------
    InvalidOption
        A state is missing, or a recording is too short or silent.
    """
    silent, running = by_state(recordings)
    response = spectrum(taps)
    fed_back = np.zeros_like(response) if feedback is None else spectrum(feedback)
    played = np.fft.irfft(response * (spectrum(secondary) - spectrum(primary) * fed_back))
    off, on = state_of(silent, np.fft.irfft(spectrum(primary))), state_of(running, played)
    difference, noise = off.transfer - on.transfer, off.noise + on.noise
    fits = [_fit(off.transfer - block.transfer, block.designed, noise) for block in on.blocks]
    gain, delay = (float(np.median(values)) for values in zip(*fits, strict=True))
    band_ratio, played_rest, shares = _by_bands(difference, on.designed, noise, gain, delay)
    _, primary_rest, primary_shares = _by_bands(off.transfer, off.designed, off.noise, 1.0, 0.0)
    membership = band_membership(AMP_BANDS, WINDOW)
    level = np.abs(off.transfer) ** 2 @ membership + 1e-300
    left = off.transfer - gain * on.designed * _turned(on.designed, delay)
    loop = gain * (response * fed_back)[:: DESIGN_N_FFT // WINDOW] * _turned(difference, delay)
    reduction, interval_db = _reduction(off.blocks, on.blocks, loop)
    heard = np.maximum(_coherence(on.transfer, on.noise, N_VARIANCES / len(on.blocks)), 1e-6)
    return Verification(
        noise_reduction_db=reduction,
        heard_reduction_db=reduction - 10 * np.log10(heard),
        mean_noise_reduction_db=float(reduction[: len(NR_BANDS)].mean()),
        amplification_db=float(np.maximum(-reduction, 0).mean()),
        interval_db=interval_db,
        gain_db=20 * float(np.log10(max(abs(gain), 1e-6))),
        delay_samples=delay,
        is_inverted=gain < 0,
        is_running=abs(gain) >= NOT_RUNNING_GAIN,
        band_ratio=band_ratio,
        is_heard=np.abs(on.designed) ** 2 @ membership > noise @ membership,
        unexplained_share=float(np.mean(shares)),
        typical_share=float(np.median(shares)),
        primary_share=float(np.mean(primary_shares)),
        played_rest=played_rest / level,
        primary_rest=primary_rest / level,
        error_gain_db=_error_gain_db(off.transfer, left, on.transfer),
        coherence=float(np.median(_coherence(off.transfer, off.noise))),
        is_exchanged=_is_exchanged(off.transfer, off.designed),
        clipped_share=_clipped_share(recordings),
        n_blocks=min(len(off.blocks), len(on.blocks)),
        **_howl(off.blocks, on.blocks, reduction),
    )


def _clipped_share(recordings: Sequence[StateTake]) -> float:
    return max(
        max(clipped_share(getattr(one, name)), one.clipped_share.get(name, 0.0))
        for one in recordings
        for name in (("x",) if one.is_on else ("x", "e"))
    )


def _reduction(
    off: Sequence[Block], on: Sequence[Block], loop: Complex
) -> tuple[NDArray[np.float64], float | None]:
    """Compute the noise reduction per band, and the half-width of the interval of its mean.

    Outside sound is x without what returns from the loudspeaker through the loop W F.
    """
    levels_off = np.array([_level_db(item, np.ones(len(loop))) for item in off])
    levels_on = np.array([_level_db(item, np.abs(1 + loop) ** 2) for item in on])
    means = (item[:, : len(NR_BANDS)].mean(1) for item in (levels_off, levels_on))
    return np.median(levels_off, 0) - np.median(levels_on, 0), interval_of_medians(*means)


def _level_db(block: Block, outside: Real) -> Real:
    """Level of e over x per band; outside is the power of outside sound over that of x, [bins]."""
    membership = band_membership(AMP_BANDS, WINDOW)
    power, error_power = block.powers
    level: Real = 10 * np.log10((error_power @ membership) / ((power * outside) @ membership) + 1e-30)
    return level


def interval_of_medians(off: Real, on: Real) -> float | None:
    """Return the half-width of the eight-in-ten interval of the difference between two samples' medians.

    One value says nothing of its spread: None.
    """
    if min(len(off), len(on)) < 2:
        return None
    return 1.2816 * float(np.hypot(_median_error(off), _median_error(on)))


def _median_error(values: Real) -> float:
    """Estimate the standard error of a median from the median absolute deviation."""
    spread = 1.4826 * float(np.median(np.abs(values - np.median(values))))
    return 1.2533 * spread / np.sqrt(len(values))


def _howl(off: Sequence[Block], on: Sequence[Block], reduction: NDArray[np.float64]) -> dict[str, float]:
    """Find a howling tone or band: `howl_db` and `howl_hz`.

    A tone is found even if x records it too and the noise level differs between the states.
    """
    (x_off, e_off), (x_on, e_on) = (np.mean([block.powers for block in blocks], 0) for blocks in (off, on))
    hz = np.arange(len(x_off)) * (SAMPLE_RATE_HZ / WINDOW)
    inside = (hz >= nominal_hz(AMP_BANDS[0])) & (hz <= nominal_hz(AMP_BANDS[-1]))
    level = np.median(x_on[inside] / x_off[inside])
    before, after = (10 * np.log10(smoothed(item, 3) + 1e-300) for item in (level * e_off, e_on))
    risen = after - before
    alone = np.min([risen, risen - _neighbours(risen), after - _neighbours(before)], 0) * inside
    if alone.max() > HOWL_DB:
        return {"howl_db": float(alone.max()), "howl_hz": float(hz[np.argmax(alone)])}
    loudest = int(np.argmin(reduction))
    error_power = e_on @ band_membership(AMP_BANDS, WINDOW)
    if (
        1 <= np.sum(reduction < -HOWL_BAND_DB) <= HOWL_BANDS
        and error_power[loudest] > HOWL_SHARE * error_power.sum()
    ):
        return {"howl_db": float(-reduction[loudest]), "howl_hz": nominal_hz(AMP_BANDS[loudest])}
    return {"howl_db": 0.0, "howl_hz": 0.0}


def _neighbours(values: Real) -> Real:
    """Median over the neighbouring bins."""
    padded = np.pad(values, NEIGHBOURS // 2, mode="edge")
    median: Real = np.median(np.lib.stride_tricks.sliding_window_view(padded, NEIGHBOURS), -1)
    return median


def _fit(difference: Complex, designed: Complex, noise: Real) -> tuple[float, float]:
    """Fit gain, negative for a reversed polarity, and delay (samples) of D relative to Y."""
    weight = _weight(designed, noise)
    match = weight * difference * designed.conj()
    energy = np.sum(weight * np.abs(designed) ** 2)
    correlation = np.fft.irfft(match, WINDOW * FINENESS) * WINDOW * FINENESS / 2
    reach = MAX_DELAY_SAMPLES * FINENESS
    # D conj(Y) has the phase -omega tau: its inverse transform peaks at tau.
    near = np.concatenate((correlation[-reach:], correlation[: reach + 1]))
    best = int(np.argmax(np.abs(near)))
    shift = 0.0
    if 0 < best < len(near) - 1:
        before, here, after = near[best - 1 : best + 2]
        curvature = before - 2 * here + after
        shift = 0.5 * float((before - after) / curvature) if curvature else 0.0
    delay = (best - reach + shift) / FINENESS
    omega = 2 * np.pi / WINDOW * np.arange(len(match))
    gain = float(np.sum((match * np.exp(1j * omega * delay)).real) / max(energy, 1e-300))
    return gain, delay


def _weight(designed: Complex, noise: Real) -> Real:
    """Weight per bin: inverse power of the error, within the band of the fit."""
    frequency = np.arange(len(designed)) * (SAMPLE_RATE_HZ / WINDOW)
    inside = (frequency >= FIT_HZ[0]) & (frequency <= FIT_HZ[1])
    error = noise + MODEL_ERROR * np.abs(designed) ** 2
    weight: Real = inside / np.maximum(error, 1e-300)
    return weight


def _by_bands(
    difference: Complex, designed: Complex, noise: Real, gain: float, delay: float
) -> tuple[NDArray[np.complex128], Real, Real]:
    """Compute per band D / Y, and D's power beyond gain, delay and noise; its share in the fitted bands."""
    membership = band_membership(AMP_BANDS, WINDOW)
    power = np.abs(designed) ** 2 @ membership + 1e-300
    band_ratio = (difference * designed.conj() * _turned(designed, delay).conj()) @ membership / power
    rest = (np.abs(difference - gain * designed * _turned(designed, delay)) ** 2 - noise) @ membership
    inside = [n - AMP_BANDS[0] for n in AMP_BANDS if FIT_HZ[0] <= nominal_hz(n) <= FIT_HZ[1] / 1.5]
    return band_ratio, rest, np.clip(rest / (gain**2 * power + 1e-300), 0, 1)[inside]


def _turned(designed: Complex, delay: float) -> Complex:
    return np.exp(-2j * np.pi / WINDOW * delay * np.arange(len(designed)))


def _error_gain_db(off: Complex, left: Complex, on: Complex) -> float:
    """Compute `Verification.error_gain_db`; left is `off` less the loudspeaker's part.

    Errors lower the quotient <left, on> / <left, left> and raise <on, on> / <left, on>, so that a gain of one lies
    between them. A leak raises both.
    """
    membership = band_membership(NR_BANDS, WINDOW)
    level = np.abs(off) ** 2 @ membership + 1e-300
    alone, common, other = (
        product @ membership / level for product in (np.abs(left) ** 2, (left.conj() * on).real, np.abs(on) ** 2)
    )
    if common.sum() <= 0 or alone.mean() < LEAST_LEFT:
        return 0.0
    highest = max(sum(with_error_db(*item)) for item in ((common, alone), (other, common)))
    return float(min(highest, 0.0))


def _coherence(transfer: Complex, noise: Real, n_variances: float = 0.0) -> Real:
    """Coherence of x and e per band, [23]; noise is the variance of a block's transfer, of which n are subtracted."""
    membership = band_membership(AMP_BANDS, WINDOW)
    variance = noise @ membership
    explained = np.maximum(np.abs(transfer) ** 2 @ membership - n_variances * variance, 0)
    coherence: Real = explained / np.maximum(explained + INDEPENDENT * FRAMES_PER_BLOCK * variance, 1e-300)
    return coherence


def _is_exchanged(off: Complex, expected: Complex) -> bool:
    """Return whether H_off is the inverse of the expected transfer, by its phases, and not that transfer."""
    hz = np.arange(len(off)) * (SAMPLE_RATE_HZ / WINDOW)
    fitted = (hz >= FIT_HZ[0]) & (hz <= FIT_HZ[1])
    phase, expected_phase = (np.angle(item[fitted]) for item in (off, expected))
    return bool(np.cos(phase + expected_phase).mean() > INVERSE_COSINE > np.cos(phase - expected_phase).mean())

"""Measure a running filter from recordings with it off and on, and diagnose deviations from its prediction.

With the filter W running, e = (P' - S' W) * x, where P' and S' are the paths as they are now. The transfer from x to e
is estimated in both states, so that

    D = H_off - H_on = S' W

is the loudspeaker's part, which is compared with the designed part Y = S W. Y passes the same windows, as x filtered by
s * w, so that the bias is the same in both. A secondary path that differs by a gain g and a delay tau, D = g Y exp(-j
omega tau), is found by weighted least squares; a negative gain is a reversed polarity. The bands of D / Y distinguish a
leak, which removes the loudspeaker's low frequencies, from another seating.

With a feedback path F the outer microphone also records the loudspeaker, x = m (1 + W F) for outside sound m: then Y =
(S - P F) W, and levels are those of e relative to x.

Because the wearer may move, recordings are cut into blocks, and figures are medians over them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.calibration import clipped_share, with_error_db
from prime_anc.measure.checks import MAX_CLIPPED_SHARE
from prime_anc.measure.estimate import convolved
from prime_anc.method.arrays import Complex, Real
from prime_anc.method.bands import AMP_BANDS, NR_BANDS, band_membership, nominal_hz
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.errors import InvalidOption, check_interruption
from prime_anc.method.methods import spectrum
from prime_anc.method.types import Complex64, Float32, Prediction

WINDOW = 8192
HOP = WINDOW // 4
# Before this sample the paths still respond to sound from before the recording.
FIRST_SAMPLE = 4096
MIN_SAMPLES = FIRST_SAMPLE + 4 * WINDOW
# 0.8 s: long enough for the lowest band, short beside a movement.
FRAMES_PER_BLOCK = 16

# Share of windows a quarter apart that are independent.
INDEPENDENT = 0.4

# Range of the fit: below, the seal changes the loudspeaker's level; above, it plays little.
FIT_HZ = (100.0, 6000.0)
MAX_DELAY_SAMPLES = 64
# Steps per sample in the search for the delay.
FINENESS = 16
# Power of D that no gain and delay explain, over the explained power: keeps loud bins from dominating.
MODEL_ERROR = 0.01

LEVEL_OFF_DB = 0.4
DELAY_OFF_SAMPLES = 0.25
NOT_RUNNING_GAIN = 0.1
# Power of D over that of H_off, median over the bands, above which another filter plays.
SILENT_SHARE = 0.1
# Loudspeaker's level from 50 to 160 Hz relative to 500 Hz to 2 kHz that indicates a leak.
LEAK_DB = -2.0
LEAK_BANDS, MIDDLE_BANDS = range(17, 23), range(27, 34)
# Power of D, or of H_off, that the given paths leave unexplained, mean over the bands: -11 dB.
REFIT_SHARE = 0.08
# Noise reduction of what the outer microphone hears, below the prediction in a band by more than this while the
# loudspeaker's part leaves more than this share of the noise: another filter. Of 450 right filters on 30 measured ears
# none is behind by more than 2.4 dB (of 90 from bare paths none leaves that share); a high-pass at 20 Hz
# is found on 29 of 30. Likewise of what a trim would reach: right filters leave no such share.
OTHER_DB, OTHER_SHARE = 5.0, 0.01
# With the earphone moved, the primary path differs too: the loudspeaker's part by less than this times as much.
MOVED_RATIO = 20.0
# Variances of H_on that its power exceeds by chance in one of a thousand bands.
N_VARIANCES = 5.0
# Coherence of x and e without the filter, median over the bands, below which no diagnosis is possible; noise of two
# sources reaches 0.15.
UNRELATED = 0.3
# Mean cosine of the sum of the phases of H_off and of the given primary path, above which H_off is its inverse, so that
# x is the error microphone; that of their difference is below it. On 15 measured ears, with any of their paths given,
# these are 0.5 to 1 and below -0.1; with the right channels the other way round.
INVERSE_COSINE = 0.3
# Noise reduction below the prediction by more than this and the interval is reported.
WORSE_DB = 2.0
# Noise reduction above what the paths allow by more than this and the interval is implausible: noise in the estimated
# paths lowers what they allow.
BETTER_DB = 6.0
# Level change of e with the filter on that indicates a changed microphone gain. 60 correct verifications of five ears
# stay above -0.1; with e 6 dB lower and the same noise in both states all are below.
ERROR_GAIN_DB = -0.5
# Power over that of H_off, mean over the bands, below which errors of the fit hide that level.
LEAST_LEFT = 1e-3
# Largest plausible noise reduction, whatever the paths: measured ears reach 30 dB.
MOST_DB = 60.0
# Changes of the secondary path for which a trimmed filter is no better than the original.
NEAR_GAIN_DB, NEAR_DELAY_SAMPLES = 0.6, 0.4
# Rise of a few bins, 6 Hz apart, above their neighbourhood without the filter; other faults reach 12 with the same
# noise in both states, 17 with two recordings.
HOWL_DB = 20.0
# Rise of up to HOWL_BANDS bands, one of which has this share of the power of e; more bands mean a wrong filter.
HOWL_BAND_DB, HOWL_BANDS, HOWL_SHARE = 10.0, 3, 0.1
# By how much such a band may be louder than the filter makes it.
EXPECTED_LOUDER_DB = 3.0
# Number of neighbouring bins in a median.
NEIGHBOURS = 65
# Difference of the largest |W| of a prediction and of the filter: below 1e-3 dB if they belong together.
FOREIGN_GAIN_DB = 0.3
# RMS over the bands of a prediction less that from the paths as sent: up to 6.2 dB if the design had a coherence that
# is missing here (240 designs), 8 in the median for another person.
FOREIGN_BANDS_DB = 7.0

# Codes that a trim cannot correct: measure again.
BEYOND_A_TRIM = {
    *("howling", "not_running", "leak", "refit", "other_filter", "unrelated", "clipping", "implausible_reduction"),
    *("exchanged_channels", "less_than_predicted"),
}
# Codes of a filter that does what it should.
RIGHT = {"as_predicted", "less_than_predicted"}

# Codes of a diagnosis and their meanings.
CODES = {
    "as_predicted": "The filter does what was predicted.",
    "less_than_predicted": "Filter and paths are as they were, but sound that the outer microphone does not hear, as "
    "noise, round-off or clipping, leaves over 2 dB less reduction than predicted.",
    "level_off": "The loudspeaker plays louder or quieter than when it was measured.",
    "delay_off": "The loudspeaker's sound arrives later or earlier than when it was measured.",
    "polarity_off": "The loudspeaker's polarity is reversed.",
    "leak": "The loudspeaker's low frequencies are missing: the earphone leaks.",
    "refit": "The primary path differs: the earphone sits differently, or the sound comes from elsewhere.",
    "other_filter": "What the loudspeaker plays is not this filter's output, as with another filter, rate or a "
    "high-pass beside it.",
    "not_running": "The loudspeaker plays nothing of the filter's output.",
    "howling": "A narrow band is much louder with the filter on.",
    "controller_unknown": "The recordings do not show what the controller does, as with another filter.",
    "controller_off": "The controller beside the filter adds nothing.",
    "controller_inverted": "The controller's polarity is reversed.",
    "controller_level_off": "The controller is louder or quieter than designed.",
    "near_howling": "The controller's loop has nearly no margin left.",
    "exchanged_channels": "What was sent as x is the error microphone, and as e the outer one.",
    "unrelated": "Without the filter the error microphone hears little of what the outer one hears.",
    "clipping": "Too many samples of x, or of e without the filter, stand at their largest or smallest value.",
    "implausible_reduction": "Far more is measured than these paths allow: something changed between the takes.",
    "foreign_prediction": "The prediction that was sent is not that of this filter.",
}


@dataclass(frozen=True, eq=False)
class StateTake:
    """One recording of both microphones at 48 kHz."""

    # Whether the filter runs.
    is_on: bool
    # Reference, real [n].
    x: Real
    # Error, real [n].
    e: Real
    # Clipped shares before resampling, by signal.
    clipped_share: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Deviation:
    """One entry of a diagnosis."""

    # One of CODES.
    code: str
    # Text with numbers and advice.
    detail: str
    # Amount: dB (`level_off`, `leak`, `howling`), samples (`delay_off`) or dB of noise reduction; None if there is
    # none.
    by: float | None = None


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
    off, on = _by_state(recordings)
    response = spectrum(taps)
    feedback_spectrum = np.zeros_like(response) if feedback is None else spectrum(feedback)
    played = np.fft.irfft(response * (spectrum(secondary) - spectrum(primary) * feedback_spectrum))
    disturbance = np.fft.irfft(spectrum(primary))
    blocks_off = [block for item in off for block in _blocks(item, disturbance)]
    blocks_on = [block for item in on for block in _blocks(item, played)]

    transfer_off = _median([item.transfer for item in blocks_off])
    transfer_on = _median([item.transfer for item in blocks_on])
    difference = transfer_off - transfer_on
    noise_off, noise_on = (_median([item.unexplained for item in blocks]) for blocks in (blocks_off, blocks_on))
    expected_off, designed = (_median([item.designed for item in blocks]) for blocks in (blocks_off, blocks_on))
    noise = noise_off + noise_on
    fits = [_fit(transfer_off - item.transfer, item.designed, noise) for item in blocks_on]
    gain, delay = (float(np.median(values)) for values in zip(*fits, strict=True))
    band_ratio, played_rest, shares = _by_bands(difference, designed, noise, gain, delay)
    _, primary_rest, primary_shares = _by_bands(transfer_off, expected_off, noise_off, 1.0, 0.0)
    membership = band_membership(AMP_BANDS, WINDOW)
    level = np.abs(transfer_off) ** 2 @ membership + 1e-300
    left = transfer_off - gain * designed * _turned(designed, delay)
    loop = gain * (response * feedback_spectrum)[:: DESIGN_N_FFT // WINDOW] * _turned(difference, delay)
    reduction, interval_db = _reduction(blocks_off, blocks_on, loop)
    heard = np.maximum(_coherence(transfer_on, noise_on, N_VARIANCES / len(blocks_on)), 1e-6)
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
        is_heard=np.abs(designed) ** 2 @ membership > noise @ membership,
        unexplained_share=float(np.mean(shares)),
        typical_share=float(np.median(shares)),
        primary_share=float(np.mean(primary_shares)),
        played_rest=played_rest / level,
        primary_rest=primary_rest / level,
        error_gain_db=_error_gain_db(transfer_off, left, transfer_on),
        coherence=float(np.median(_coherence(transfer_off, noise_off))),
        is_exchanged=_is_exchanged(transfer_off, expected_off),
        clipped_share=_clipped_share(recordings),
        n_blocks=min(len(blocks_off), len(blocks_on)),
        **_howl(blocks_off, blocks_on, reduction),
    )


def _by_state(recordings: Sequence[StateTake]) -> tuple[list[StateTake], list[StateTake]]:
    """Return the recordings with the filter off and on."""
    off, on = ([recording for recording in recordings if recording.is_on is is_on] for is_on in (False, True))
    for name, state in (("off", off), ("on", on)):
        if not state:
            raise InvalidOption(f"takes: none has the state {name}; record one", "takes")
    return off, on


def _clipped_share(recordings: Sequence[StateTake]) -> float:
    return max(
        max(clipped_share(getattr(one, name)), one.clipped_share.get(name, 0.0))
        for one in recordings
        for name in (("x",) if one.is_on else ("x", "e"))
    )


class Transfers(NamedTuple):
    """Transfers from x, per window bin, of signals that pass the same windows."""

    # To e with the filter off, and how much smaller it is with the filter on.
    off: Complex
    difference: Complex
    # To what the filter plays, and to e through another response, with the filter on.
    played: Complex
    returned: Complex
    # Noise power of the difference.
    noise: Real


def transfers(recordings: Sequence[StateTake], primary: Real, played: Real, returned: Real) -> Transfers:
    """Estimate transfers; responses are real [n].

    What `primary` explains is compared in the same windows of the same take: leakage is that of the rest alone.
    """
    off: list[_Block] = []
    on: list[_Block] = []
    further: list[_Block] = []
    for item in recordings:
        blocks = on if item.is_on else off
        blocks += _blocks(item, primary)
        if item.is_on:
            e = np.asarray(item.e, np.float64)
            further += _blocks(replace(item, e=convolved(e, returned)), played)
    known = [block.transfer - block.designed for block in off]
    left = [block.designed - block.transfer for block in on]
    return Transfers(
        _median([block.transfer for block in off]),
        _median(known) + _median(left),
        _median([block.designed for block in further]),
        _median([block.transfer for block in further]),
        _median([block.unexplained for block in off]) + _median([block.unexplained for block in on]),
    )


def foreign_prediction(
    expected: Prediction, bands_db: Real, max_gain_db: float | None, *, is_exported: bool = False
) -> Deviation | None:
    """Detect a prediction of another filter.

    Parameters
    ----------
    expected
        Prediction of this filter on the paths that were sent.
    bands_db
        Bands of the prediction that was sent, [23].
    max_gain_db
        Largest |W| of that prediction, if known.
    is_exported
        Whether that is the largest at any frequency, which may lie above the one on the design grid.

    Returns
    -------
    Deviation | None
        A deviation; None if both predictions agree.
    """
    apart_db = float(np.sqrt(np.mean((bands_db - expected.noise_reduction_db) ** 2)))
    excess_db = 0.0 if max_gain_db is None else max_gain_db - expected.max_gain_db
    if (0.0 if is_exported and excess_db > 0 else abs(excess_db)) > FOREIGN_GAIN_DB:
        text = f"`prediction` has a largest |W| of {max_gain_db:.1f} dB, this filter {expected.max_gain_db:.1f} dB"
    elif apart_db > FOREIGN_BANDS_DB:
        text = f"the bands of `prediction` are {apart_db:.0f} dB away from those of this filter on these paths"
    else:
        return None
    return Deviation("foreign_prediction", f"{text}: send that of this filter and ear, or none")


def diagnose(
    found: Verification,
    predicted_mean_db: float,
    possible_db: float = np.inf,
    bands_db: Real | float = -np.inf,
    *,
    promised_db: Real | float = -np.inf,
    best_db: float = -np.inf,
    is_trimmed: bool = True,
) -> list[Deviation]:
    """List the deviations, the gravest first; only one of RIGHT if there are none.

    Parameters
    ----------
    found
        Measurement.
    predicted_mean_db
        Predicted noise reduction.
    possible_db
        Noise reduction on the error-free paths as they are now (`path_now`).
    bands_db
        Noise reduction to expect of the loudspeaker as it is now, per band [23].
    promised_db
        Noise reduction on the paths as sent, to which a trim leads back, per band [23].
    best_db
        Noise reduction of the best filter on the same paths; needed if `is_better`.
    is_trimmed
        Whether a trim answers a filter to load, as for taps; of what a chip runs it answers the changes alone.
    """
    if (fault := _fault(found)) is not None:
        return [fault]
    behind_db = found.mean_noise_reduction_db - predicted_mean_db
    is_behind = behind_db < -(WORSE_DB + (found.interval_db or 0))
    trimmed_db = found.gain_db - 10 * np.log10(np.maximum(found.played_rest, 1e-9))
    other = _other(found, bands_db - found.heard_reduction_db, is_behind)
    # Smooth filters of two people differ by little more than a gain and a delay.
    other = other or _other(found, promised_db - trimmed_db, is_behind=False)
    deviations = _changes(found, behind_db, is_trimmed) if other is None else [other]
    if (too_good := _too_good(found, possible_db, best_db, is_changed=bool(deviations))) is not None:
        return [too_good]
    if deviations:
        return deviations
    if found.howl_db and not _is_expected(found, bands_db):
        return [_howling(found)]
    text = f"measured {found.mean_noise_reduction_db:.1f} dB, predicted {predicted_mean_db:.1f} dB"
    if not is_behind:
        return [Deviation("as_predicted", text, behind_db)]
    text += (
        ": filter and paths are as they were, so what remains is sound that the outer microphone does not hear: "
    )
    text += "look for noise of the microphones or beside them, round-off of the filter, and an output that clips"
    return [Deviation("less_than_predicted", text, behind_db)]


def _fault(found: Verification) -> Deviation | None:
    """Return what leaves nothing to say about the paths."""
    if found.coherence < UNRELATED:
        text = f"with the filter off x and e have a coherence of {found.coherence:.2f}: look for a dead microphone "
        text += "or a wrong channel, play noise, no sweep, and louder, and record again"
        return Deviation("unrelated", text + _exchanged(found))
    if found.is_exchanged:
        text = "x lags e by the primary path: send the outer microphone as x and the error microphone as e"
        return Deviation("exchanged_channels", text)
    if found.howl_db > HOWL_DB:
        return _howling(found)
    if not found.is_running and np.median(found.played_rest) < SILENT_SHARE:
        text = "the error microphone hears nothing of the filter's output: check that it runs, and its channels"
        return Deviation("not_running", text)
    if found.clipped_share > MAX_CLIPPED_SHARE:
        text = f"{100 * found.clipped_share:.3g} % of the samples of a recording stand at its largest or smallest "
        return Deviation("clipping", text + "value: lower the level or the microphone's gain and record again")
    return None


def _exchanged(found: Verification) -> str:
    return "; or the takes `off` and `on` are exchanged" if found.mean_noise_reduction_db < 0 else ""


def _is_expected(found: Verification, bands_db: Real | float) -> bool:
    """Return whether the filter itself makes the band louder that might howl."""
    centres_hz = np.array([nominal_hz(band) for band in AMP_BANDS])
    band = int(np.argmin(np.abs(np.log(centres_hz / found.howl_hz))))
    expected_db = np.broadcast_to(bands_db, len(AMP_BANDS))[band]
    return bool(np.isfinite(expected_db) and found.howl_db < EXPECTED_LOUDER_DB - expected_db)


def _howling(found: Verification) -> Deviation:
    text = f"e is {found.howl_db:.0f} dB louder at {found.howl_hz:.0f} Hz with the filter on: switch it off; if it "
    text += "howls, a controller may run with the opposite sign or too loud; without one design with `feedback` or "
    text += "improve the seal; if another sound was heard, record again"
    return Deviation("howling", text, found.howl_db)


def _other(found: Verification, behind_db: Real, is_behind: bool) -> Deviation | None:
    """Find what x explains of the noise that remains, besides a gain, a delay and a leak; behind_db is per band."""
    if _leak_db(found) or found.primary_share > REFIT_SHARE:
        return None
    rest = np.maximum(found.played_rest, found.primary_rest)
    is_off = ((behind_db > OTHER_DB) & (rest > OTHER_SHARE))[: len(NR_BANDS)]
    worst = int(np.argmax(is_off * np.abs(found.band_ratio[: len(NR_BANDS)] - 1)))
    moved = MOVED_RATIO * max(found.primary_share, found.primary_rest[worst])
    if found.unexplained_share > max(REFIT_SHARE, MOVED_RATIO * found.primary_share):
        text = (
            f"gain and delay leave {100 * found.unexplained_share:.0f} % of what the loudspeaker plays unexplained"
        )
    elif is_off.any() and found.played_rest[worst] > moved:
        ratio = found.band_ratio[worst]
        text = f"at {nominal_hz(NR_BANDS[worst]):g} Hz the loudspeaker plays this filter's output with "
        text += f"{20 * np.log10(abs(ratio) + 1e-6):+z.1f} dB and {np.angle(ratio, deg=True):+z.0f} degrees"
    else:
        return _refit(float(-behind_db[worst])) if is_off.any() and is_behind else None
    return _another(text)


def _another(reason: str) -> Deviation:
    text = f"what runs is not this filter: {reason}. Check file, form and rate and load it again; look for a "
    return Deviation("other_filter", text + "high-pass beside it; else reseat and calibrate again")


def _leak_db(found: Verification) -> float:
    """Return how much quieter low frequencies are than middle ones with a leak, 0 without.

    Bands in which the filter is quieter than the noise, as one of few sections often is, show no level.
    """
    bands_db = np.where(found.is_heard, 20 * np.log10(np.abs(found.band_ratio) + 1e-6), np.nan)
    low, middle = (bands_db[np.array(bands) - AMP_BANDS[0]] for bands in (LEAK_BANDS, MIDDLE_BANDS))
    if np.isnan(low).all() or np.isnan(middle).all():
        return 0.0
    leak_db = float(np.nanmedian(low) - np.nanmedian(middle))
    return leak_db if leak_db < LEAK_DB and found.typical_share <= REFIT_SHARE else 0.0


def _refit(behind_db: float) -> Deviation:
    text = "the paths are others than those measured before: check that these are of this ear and that x is "
    return Deviation(
        "refit", text + "the outer microphone, and calibrate again as the earphone sits now", behind_db
    )


def _changes(found: Verification, behind_db: float, is_trimmed: bool) -> list[Deviation]:
    """List how the paths differ from those that were sent."""
    leak_db = _leak_db(found)
    is_elsewhere = found.primary_share > REFIT_SHARE or (found.unexplained_share > REFIT_SHARE and not leak_db)
    if leak_db or is_elsewhere:
        remedy = ""
    elif is_trimmed:
        remedy = ": load the trimmed filter"
    else:
        remedy = ": change the filter's gain, delay and sign by those of the trim, or calibrate as it is worn now "
        remedy += "and export again"
    changes = []
    if found.is_inverted:
        text = f"the loudspeaker plays with the opposite sign{remedy}, or send the other `sign`"
        changes.append(Deviation("polarity_off", text + _exchanged(found)))
    if leak_db:
        text = (
            f"50 to 160 Hz are {-leak_db:.1f} dB quieter than 500 Hz to 2 kHz: reseat, then measure again; if it "
        )
        changes.append(Deviation("leak", text + "stays, look for a high-pass beside the filter", leak_db))
    if abs(found.gain_db) > LEVEL_OFF_DB:
        more = "louder" if found.gain_db > 0 else "quieter"
        text = f"the secondary path is {abs(found.gain_db):.2f} dB {more} than measured{remedy}"
        changes.append(Deviation("level_off", text, found.gain_db))
    if abs(found.delay_samples) > DELAY_OFF_SAMPLES:
        late = f"{abs(found.delay_samples):.2f} samples {'later' if found.delay_samples > 0 else 'earlier'}"
        text = f"the loudspeaker is heard {late} (of 48 kHz) than measured{remedy}"
        changes.append(Deviation("delay_off", text, found.delay_samples))
    if is_elsewhere:
        changes.append(_refit(behind_db))
    return changes


def is_better(found: Verification, possible_db: float) -> bool:
    """Return whether more noise reduction is measured than a filter that reaches possible_db can bring."""
    return found.mean_noise_reduction_db > possible_db + (found.interval_db or 0) + BETTER_DB


def _too_good(found: Verification, possible_db: float, best_db: float, *, is_changed: bool) -> Deviation | None:
    """Detect more noise reduction than the loudspeaker, the filter or the paths allow."""
    if found.error_gain_db < ERROR_GAIN_DB and not is_changed:
        text = f"e is at least {-found.error_gain_db:.1f} dB quieter with the filter on than the loudspeaker's "
        text += "part of it explains: check that no microphone's gain changed between the takes, and record again"
        return Deviation("implausible_reduction", text, -found.error_gain_db)
    is_known = found.primary_share <= REFIT_SHARE and (_is_as_sent(found) or found.unexplained_share <= REFIT_SHARE)
    if not is_better(found, possible_db) or not (is_known or found.mean_noise_reduction_db > MOST_DB):
        return None
    allowed_db = max(possible_db, best_db)
    text = f"{found.mean_noise_reduction_db:.1f} dB are measured where "
    if is_better(found, allowed_db):
        text += f"these paths allow {allowed_db:.1f} dB: "
        text += "check that no gain and no channel changed between the takes, and record again"
        return Deviation("implausible_reduction", text, found.mean_noise_reduction_db - allowed_db)
    return _another(f"{text}it can reach {possible_db:.1f} dB")


def shifted_filter(taps: Float32 | Complex64, found: Verification) -> Float32 | Complex64:
    """Undo the gain, delay and polarity of the secondary path in a filter, taps or response on the design grid.

    Taps that would precede the first input sample are lost.
    """
    gain = 10 ** (-found.gain_db / 20) * (-1 if found.is_inverted else 1)
    omega = 2 * np.pi / DESIGN_N_FFT * np.arange(DESIGN_N_FFT // 2 + 1)
    turned = gain * spectrum(taps) * np.exp(1j * omega * found.delay_samples)
    if np.iscomplexobj(taps):
        return turned.astype(np.complex64)
    return np.fft.irfft(turned)[: len(taps)].astype(np.float32)


def path_now(path: Float32 | Complex64, found: Verification) -> Float32 | Complex64:
    """Return a path from the loudspeaker as it is now.

    It is unchanged for changes below those that a trim improves, and if nothing of the filter is heard.
    """
    return path if _is_as_sent(found) or not found.is_running else path_found(path, found)


def _is_as_sent(found: Verification) -> bool:
    distance = max(abs(found.gain_db) / NEAR_GAIN_DB, abs(found.delay_samples) / NEAR_DELAY_SAMPLES)
    return distance < 1 and not found.is_inverted


def path_found(path: Float32 | Complex64, found: Verification) -> Complex64:
    """Apply the gain, delay and polarity that were found to a path from the loudspeaker, on the design grid."""
    return changed_path(path, found.gain_db, found.delay_samples, found.is_inverted)


def changed_path(
    path: Float32 | Complex64, gain_db: float, delay_samples: float, is_inverted: bool = False
) -> Complex64:
    """Change a path by a gain, a delay and a polarity.

    Parameters
    ----------
    path : ndarray
        Impulse response, or spectrum on the design grid.
    gain_db, delay_samples : float
        Gain in dB and delay in samples at 48 kHz, fractions included.
    is_inverted : bool
        Whether the polarity is reversed.

    Returns
    -------
    ndarray
        Spectrum on the design grid, complex64 [16385].
    """
    response = spectrum(path)
    gain = 10 ** (gain_db / 20) * (-1 if is_inverted else 1)
    omega = np.pi * np.arange(len(response)) / (len(response) - 1)
    return (gain * response * np.exp(-1j * omega * delay_samples)).astype(np.complex64)


@dataclass(frozen=True, eq=False)
class _Block:
    """Transfers and powers of one block, per window bin."""

    # Transfer from x to e.
    transfer: Complex
    # Transfer from x to p * x or s * w * x in the same windows.
    designed: Complex
    # Power of e that x does not explain over that of x, for the mean of this block.
    unexplained: Real
    # Powers of x and e.
    powers: tuple[Real, Real]


def _blocks(recording: StateTake, response: Real) -> list[_Block]:
    check_interruption()
    x, e = (np.asarray(item, np.float64) for item in (recording.x, recording.e))
    if len(x) < MIN_SAMPLES or len(x) != len(e):
        raise InvalidOption(f"takes: {len(x)} and {len(e)} samples; record at least {MIN_SAMPLES} of both", "takes")
    if not (x.any() and e.any()):
        raise InvalidOption("takes: a recording of x or e is silent; check the channels", "takes")
    spectra = [_frames(item) for item in (x, e, convolved(x, response))]
    n_frames = len(spectra[0])
    n_blocks = max(1, n_frames // FRAMES_PER_BLOCK)
    return [_block(*(item[part] for item in spectra)) for part in np.array_split(np.arange(n_frames), n_blocks)]


def _frames(signal: Real) -> Complex:
    starts = np.arange(FIRST_SAMPLE, len(signal) - WINDOW + 1, HOP)
    windows = np.lib.stride_tricks.sliding_window_view(signal, WINDOW)[starts]
    return np.fft.rfft(windows * np.hanning(WINDOW))


def _block(x: Complex, e: Complex, y: Complex) -> _Block:
    power = np.sum(np.abs(x) ** 2, 0) + 1e-12 * np.sum(np.abs(x) ** 2) / x.shape[-1] + 1e-300
    transfer = np.sum(x.conj() * e, 0) / power
    n_free = max(INDEPENDENT * len(x), 1.0)
    unexplained = np.sum(np.abs(e - transfer * x) ** 2, 0) / power / n_free
    error_power = np.sum(np.abs(e) ** 2, 0)
    designed = np.sum(x.conj() * y, 0) / power
    return _Block(transfer, designed, _smoothed(unexplained), (power / len(x), error_power / len(x)))


def _reduction(
    off: Sequence[_Block], on: Sequence[_Block], loop: Complex
) -> tuple[NDArray[np.float64], float | None]:
    """Compute the noise reduction per band, and the half-width of the interval of its mean.

    Outside sound is x without what returns from the loudspeaker through the loop W F.
    """
    levels_off = np.array([_level_db(item, np.ones(len(loop))) for item in off])
    levels_on = np.array([_level_db(item, np.abs(1 + loop) ** 2) for item in on])
    means = (item[:, : len(NR_BANDS)].mean(1) for item in (levels_off, levels_on))
    return np.median(levels_off, 0) - np.median(levels_on, 0), interval_of_medians(*means)


def _level_db(block: _Block, outside: Real) -> Real:
    """Level of e over x per band; outside is the power of outside sound over that of x, [bins]."""
    membership = band_membership(AMP_BANDS, WINDOW)
    power, error_power = block.powers
    level: Real = 10 * np.log10((error_power @ membership) / ((power * outside) @ membership) + 1e-30)
    return level


def _howl(off: Sequence[_Block], on: Sequence[_Block], reduction: NDArray[np.float64]) -> dict[str, float]:
    """Find a howling tone or band: `howl_db` and `howl_hz`.

    A tone is found even if x records it too and the noise level differs between the states.
    """
    (x_off, e_off), (x_on, e_on) = (np.mean([block.powers for block in blocks], 0) for blocks in (off, on))
    hz = np.arange(len(x_off)) * (SAMPLE_RATE_HZ / WINDOW)
    inside = (hz >= nominal_hz(AMP_BANDS[0])) & (hz <= nominal_hz(AMP_BANDS[-1]))
    level = np.median(x_on[inside] / x_off[inside])
    before, after = (10 * np.log10(_smoothed(item, 3) + 1e-300) for item in (level * e_off, e_on))
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
    found: Real = explained / np.maximum(explained + INDEPENDENT * FRAMES_PER_BLOCK * variance, 1e-300)
    return found


def _is_exchanged(off: Complex, expected: Complex) -> bool:
    """Return whether H_off is the inverse of the expected transfer, by its phases, and not that transfer."""
    hz = np.arange(len(off)) * (SAMPLE_RATE_HZ / WINDOW)
    fitted = (hz >= FIT_HZ[0]) & (hz <= FIT_HZ[1])
    found, given = (np.angle(item[fitted]) for item in (off, expected))
    return bool(np.cos(found + given).mean() > INVERSE_COSINE > np.cos(found - given).mean())


def _turned(designed: Complex, delay: float) -> Complex:
    return np.exp(-2j * np.pi / WINDOW * delay * np.arange(len(designed)))


def _median(values: Sequence[Any]) -> Any:
    """Median over blocks; for complex numbers, of both parts."""
    stacked = np.stack(values)
    if np.iscomplexobj(stacked):
        return np.median(stacked.real, 0) + 1j * np.median(stacked.imag, 0)
    return np.median(stacked, 0)


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


def _smoothed(power: Real, n_bins: int = 19) -> Real:
    """Average over an odd number of bins."""
    padded = np.pad(power, n_bins // 2, mode="edge")
    smooth: Real = np.convolve(padded, np.full(n_bins, 1 / n_bins), "valid")
    return smooth

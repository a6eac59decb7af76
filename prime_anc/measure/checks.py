"""Judge whether a calibration can be trusted, and give the reasons if not.

Recordings are judged by their figures, paths by those of a model's support listeners (`prime_anc.method.support`). The
limits were set on 30 measured ears with simulated calibrations: all pass, and every fault is found in all of them
(tests/measure/test_checks.py). Measured values stand above the limits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.calibration import Calibration
from prime_anc.measure.figures import WINDOW
from prime_anc.method.bands import NR_BANDS, columns, nominal_hz
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.support.explanation import Explanation, SupportPrior
from prime_anc.method.support.findings import PLAUSIBILITY, Finding, find_implausible

# Codes and their meanings.
REASONS = {
    "exchanged_channels": "The error microphone is heard before the outer one, or before a drive: channels look "
    "exchanged.",
    "exchanged_takes": "Sound that comes first in takes with gain 0 is missing in others: they look exchanged.",
    "clipping": "Too many samples of a signal stand at its largest or smallest value.",
    "silent_take": "The probe is silent in more than half of a take.",
    "low_snr": "Noise in the estimated paths costs more than 5.5 dB of noise reduction.",
    "late_secondary": "The loudspeaker is heard too late for a causal filter to cancel the noise.",
    "early_secondary": "The loudspeaker is heard at once or before it plays: the recordings are not in step.",
    "truncated_tail": "A path is cut off: the takes are too short for a whole window, or the loudspeaker rings on "
    "after the path's end.",
    "few_windows": "Too few windows were pooled for the coherence to mean anything.",
    "inconsistent_gains": "Takes with different gains show secondary paths whose levels differ by more than 1 dB, "
    "or whose signs are opposite.",
    "microphone_gain": "The primary path's late sound differs between takes with gain 0 and others by more than "
    "0.7 dB, or in sign: a microphone's gain was changed, or it was inverted.",
    "takes_differ": "Takes of the same gain show different paths: the earphone or the source of the noise was moved.",
    "clock_drift": "The clocks of a take's signals drift apart: steadily, which is corrected and no reason, or not, as "
    "where samples were lost.",
    "hum": "Tones are in both microphones that did not reach the error microphone through the ear.",
    "distortion": "The loudspeaker's sound holds more than a gain of x: it is driven too loud.",
    "unmeasured_feedback": "The loudspeaker is heard at the outer microphone, and no drive shows how loudly: a "
    "filter may howl.",
    **PLAUSIBILITY,
}

# Share of samples at the extremes. Ears recorded in 16 bits reach 0.6e-4 at -40 dBFS and 4.4e-4 at -60; clipped at 5
# sigma 18e-4 and more, at 4 sigma 78e-4.
MAX_CLIPPED_SHARE = 5e-4

MAX_SILENT_SHARE = 0.5

# 30 measured ears with the same noise in both states reach 0.2 dB.
MAX_GAIN_CHANGE_DB = 0.7

# Of ears, ducts and rooms the estimated cost (`noise_cost_db`) is within 1 dB of what their filters lose: 0.5 to 1.4 dB
# at 30 dB of SNR, 1.5 to 4.1 at 20, 3.4 to 9 at 10.
MAX_NOISE_COST_DB = 5.5

# Above this cost mild mistakes are not checked; a leak, which itself raises the cost, stays below.
MAX_TRAIT_NOISE_COST_DB = 2.5

# Share of a band's power that remains after a filter without noise: -25 dB.
LEFT_WITHOUT_NOISE = 0.003

# Median coherence of the bands below which x and e have no common source; at 10 dB of SNR it is above 0.8.
UNRELATED = 0.5

# Samples by which a louder feedback path may precede the secondary path.
MAX_FEEDBACK_LEAD = 2

# Change of x from take to take by the loudspeaker's sound. At -30 dB and a gain of 0.35 the feedback path is at -21 dB.
MAX_RETURNED_DB = -30.0

# Ears have a lead of -3 to 1 samples. Delaying the loudspeaker by 2, 4, 8 samples costs WMMSE 1.4, 4.6, 9.7 dB.
MIN_LEAD_SAMPLES = -4.0

# Ears lie at -75 dB and below; a tail of 60 ms that is 20 dB below the response at -50 and above.
MAX_TAIL_DB = -60.0

# A loop whose feedback path lacks a tail of -15 dB keeps 5 dB of the 8 dB of gain margin that are promised.
MAX_LOOP_TAIL_DB = -20.0

# Likewise where the device is unknown: rooms ring on, at -11 dB and below, for which predictions hold within 2 dB, and
# what the windows leave unexplained reaches that of a distortion of -8 dB.
MAX_OTHER_TAIL_DB, MAX_OTHER_DISTORTION_DB = -10.0, -5.0

# Largest level difference between the secondary paths of different gains.
MAX_STATE_LEVEL_DB = 1.0

# The coherence of n windows of unrelated noise is 1 / n.
MIN_FRAMES = 6

# Median SNR over the bands below which delay, phase and level of the secondary path are those of noise.
MIN_TRAIT_SNR_DB = 10.0

# Least acausal share of the primary path's energy, and its ratio to that with exchanged channels: in 270 measurements
# of ears up to 0.02 in the right order, above 0.1 and 45 times as much in the other.
MIN_ACAUSAL_SHARE, ACAUSAL_RATIO = 0.05, 5.0

# The loudspeaker adds sound. Of 30 ears and 48 directions of a dummy head, with gains of 0.1 to 3 or with single
# recordings at 20 dB SNR, it takes away up to 4 dB of the first, of 400 other devices none. Where these exchange takes,
# with gains of 0.2, 0.35 and 0.7, 94, 98 and 100 % lack more than 12.
MIN_EARLY_DB = -12.0

# 270 correct measurements with 30 to 50 dB of SNR stay below -36; a loudspeaker that saturates (tanh) at twice its RMS
# reaches -23 with noise, at its RMS -22 with a sweep.
MAX_DISTORTION_DB = -32.0

# Two takes in one seating stay below -29 at 10 dB of SNR, below -37 at 20. Two seatings reach -17 to -5, 28 pairs of
# persons -22 to -8, directions 15 degrees apart -33 to -21, 90 degrees -20 to -16; a filter for both leaves as much.
MAX_DISAGREEMENT_DB = -18.0

_OF_RECORDINGS = {
    "clipping",
    "takes_differ",
    "silent_take",
    "low_snr",
    "few_windows",
    "microphone_gain",
    "clock_drift",
    "hum",
    "distortion",
}
_ROBUST = {"implausible_polarity", "implausible_level", "implausible_paths"}

OTHER_DEVICE = "other_device"

_OPPOSITE_SIGNS = (
    "takes show secondary paths of opposite signs: check the sign of each declared gain, the wires of the "
    "loudspeaker, and that a drive is what it plays, after any inversion of the chain (see `sign`)"
)
_EXCHANGED = (
    "the channels look exchanged: e is heard before x; give the outer microphone's signal as x and the error "
    "microphone's as e (first and second channel of a file)"
)

_EXCHANGED_IN_DRIVE = (
    "the channels of a drive look exchanged: e is heard before the loudspeaker plays; give what it plays, the outer "
    "microphone and the error microphone in that order"
)

_FEEDBACK_FIRST = (
    "the loudspeaker is louder at the outer microphone than at the error microphone, and earlier: the channels of a "
    "drive look exchanged; give what it plays, the outer microphone and the error microphone in that order"
)

_ONE_CLOCK = "record both microphones with one interface, which also plays the drive"

_EXCHANGED_TAKES = (
    "sound that comes first in e with gain 0 is missing in takes with a gain, as if the loudspeaker played in the "
    "former alone: exchange both, or give each take the gain with which it was recorded"
)


@dataclass(frozen=True)
class Verdict:
    """Verdict on a calibration."""

    # Reasons against the calibration, in the order of REASONS.
    reasons: tuple[Finding, ...]
    # Codes that could not be judged, with the cause.
    not_judged: tuple[Finding, ...]
    # Noise reduction that noise in the estimate costs.
    noise_cost_db: float
    # Comparison of the paths with the support; None if not compared.
    explanation: Explanation | None

    @property
    def passed(self) -> bool:
        """Return whether there is no reason against the calibration."""
        return not self.reasons


def judge(calibration: Calibration, support: SupportPrior | None) -> Verdict:
    """Check a calibration for all REASONS; compare its paths with a device's only with a support of that device.

    Parameters
    ----------
    calibration
        Paths and figures of one ear.
    support
        Prior of the model's support listeners.

    Returns
    -------
    Verdict
        Reasons against the calibration, and what could not be judged.
    """
    cost_db = noise_cost_db(calibration)
    if calibration.has_opposite_signs:
        return _alone({"inconsistent_gains": _OPPOSITE_SIGNS}, "opposite signs cancel", cost_db)
    reasons: dict[str, str] = {}
    not_judged: dict[str, str] = {}
    is_known = support is not None and any(
        support.is_device(estimate.primary, estimate.secondary)
        for estimate in (calibration.measured, calibration.estimate)
    )
    _judge_recordings(calibration, cost_db, reasons)
    if calibration.feedback is None and calibration.returned_db > MAX_RETURNED_DB:
        not_judged["unmeasured_feedback"] = (
            f"x changes by {calibration.returned_db:.0f} dB while the loudspeaker plays: record a drive, too, or a "
            "filter may howl"
        )
    drift = calibration.clock_drift
    if drift.ppm and not drift.wander_samples:
        not_judged["clock_drift"] = (
            f"{drift.where}: the clocks drift by {drift.ppm:+.3g} ppm (positive: the former is faster), which "
            f"resampling corrected; {_ONE_CLOCK}"
        )
    also = {code: reasons[code] for code in ("clipping", "silent_take") if code in reasons}
    if drift.wander_samples:
        wandering = (
            f"{drift.where}: the delay wanders, {drift.wander_samples:.2g} samples (RMS) beside a steady drift, which "
            "resampling cannot correct: samples were lost or inserted, a clock wanders, or the earphone was moved; "
            f"{_ONE_CLOCK}, end other programs, keep still and record again"
        )
        return _alone({"clock_drift": wandering} | also, "the clocks drift", cost_db)
    of_channels = (calibration.acausal_shares, _EXCHANGED), (calibration.drive_acausal_shares, _EXCHANGED_IN_DRIVE)
    for (share, other_share), detail in of_channels:
        if share > max(MIN_ACAUSAL_SHARE, ACAUSAL_RATIO * other_share):
            return _alone({"exchanged_channels": detail} | also, "the channels look exchanged", cost_db)
    if calibration.feedback_lead_samples > MAX_FEEDBACK_LEAD:
        return _alone({"exchanged_channels": _FEEDBACK_FIRST} | also, "the channels look exchanged", cost_db)
    if calibration.early_db < MIN_EARLY_DB:
        return _alone({"exchanged_takes": _EXCHANGED_TAKES} | also, "the takes look exchanged", cost_db)
    explanation = None
    if np.median(calibration.secondary_snr_db[calibration.is_excited]) < MIN_TRAIT_SNR_DB:
        noisy = f"the secondary path must stand {MIN_TRAIT_SNR_DB:g} dB above its noise to be judged"
        not_judged |= dict.fromkeys(REASONS.keys() - _OF_RECORDINGS, noisy)
    else:
        _judge_responses(calibration, is_known, reasons, not_judged)
        explanation = _judge_plausibility(calibration, support, cost_db, reasons, not_judged)
    return Verdict(_in_order(reasons), _in_order(not_judged), cost_db, explanation)


def _alone(found: dict[str, str], cause: str, cost_db: float) -> Verdict:
    """Return the verdict for a mistake that hides all others."""
    hidden = dict.fromkeys(REASONS.keys() - found.keys(), f"{cause}: see {next(iter(found))}")
    return Verdict(_in_order(found), _in_order(hidden), cost_db, None)


def noise_cost_db(calibration: Calibration) -> float:
    """Compute the noise reduction that noise in the paths costs: mean of 10 log10((r + v) / (r + r v)) over the 21
    bands, of which those above the probe's sharp edge are left out, as nothing is known there.

    v is the expected squared error over path power, of both paths together; r is LEFT_WITHOUT_NOISE.
    """
    return float(_band_cost_db(calibration)[calibration.is_excited[: len(NR_BANDS)]].mean())


def _band_cost_db(calibration: Calibration) -> NDArray[np.floating]:
    share = calibration.noise_share[:, columns(NR_BANDS)].sum(0)
    cost: NDArray[np.floating] = 10 * np.log10((LEFT_WITHOUT_NOISE + share) / (LEFT_WITHOUT_NOISE * (1 + share)))
    return cost


def _in_order(found: dict[str, str]) -> tuple[Finding, ...]:
    return tuple(Finding(code, found[code]) for code in REASONS if code in found)


def _judge_recordings(calibration: Calibration, cost_db: float, reasons: dict[str, str]) -> None:
    if calibration.clipped_share > MAX_CLIPPED_SHARE:
        reasons["clipping"] = (
            f"{calibration.clipped_in}: {100 * calibration.clipped_share:.3g} % of the samples stand at its "
            f"largest or smallest value, more than {100 * MAX_CLIPPED_SHARE:g} %: lower the level or the "
            "microphone's gain and record again"
        )
    if calibration.silent_share > MAX_SILENT_SHARE:
        reasons["silent_take"] = (
            f"{calibration.silent_in}: {100 * calibration.silent_share:.0f} % of it are silent beside the rest: "
            "play the probe throughout and cut the recording to it"
        )
    change_db = calibration.gain_change_db
    if calibration.is_inverted or abs(change_db) > MAX_GAIN_CHANGE_DB:
        found = f"is {abs(change_db):.1f} dB {'higher' if change_db > 0 else 'lower'}"
        reasons["microphone_gain"] = (
            f"with the loudspeaker playing, e over x {'has the opposite sign' if calibration.is_inverted else found} "
            "after 43 ms, where only the noise from outside still sounds: record all takes with the same signs and "
            "gains of both microphones, in one seating"
        )
    if calibration.disagreement_db > MAX_DISAGREEMENT_DB:
        reasons["takes_differ"] = (
            f"takes of the same gain show paths that differ by {calibration.disagreement_db:.0f} dB: the earphone or "
            "the source of the noise was moved between them; record all takes in one seating, and calibrate each "
            "seating on its own"
        )
    if calibration.hum_hz:
        tones = ", ".join(f"{hz:.0f}" for hz in calibration.hum_hz[:8])
        reasons["hum"] = (
            f"x and e hold tones at {tones} Hz that did not pass through the ear: they come from the mains or the "
            "cables; use another supply or a battery, balanced cables or one ground, and record again"
        )
    if calibration.distortion_db > MAX_DISTORTION_DB and "clipping" not in reasons:  # clipping distorts too
        reasons["distortion"] = (
            "with the loudspeaker playing e holds sound that x does not explain, "
            f"{-calibration.distortion_db:.0f} dB below the loudspeaker's: it is overdriven, or another "
            "noise came in; "
            "lower the gain or the level and record again"
        )
    if cost_db > MAX_NOISE_COST_DB:
        excited = calibration.is_excited
        worst = np.argsort(np.where(excited[: len(NR_BANDS)], _band_cost_db(calibration), 0))[:-4:-1]
        where = ", ".join(f"{nominal_hz(NR_BANDS[band]):g}" for band in sorted(worst))
        has_little = np.median(calibration.coherence[excited]) < UNRELATED
        unrelated = "x and e have little in common: look for a dead microphone or a wrong channel; "
        reasons["low_snr"] = (
            f"noise in the estimated paths costs {cost_db:.1f} dB of noise reduction, more than "
            f"{MAX_NOISE_COST_DB:g} dB, most of it at {where} Hz: "
            f"{unrelated if has_little else ''}play the probes louder, record for longer, raise the gain, and use "
            "the same noise in both states"
        )
    if calibration.n_frames < MIN_FRAMES:
        reasons["few_windows"] = (
            f"one state has {calibration.n_frames} windows, fewer than {MIN_FRAMES}: "
            "record for longer or more often"
        )


def _judge_responses(
    calibration: Calibration, is_known: bool, reasons: dict[str, str], not_judged: dict[str, str]
) -> None:
    """Judge timing, tail and gains, with the limits of ears only if the paths are those of the support's device."""
    most_db = MAX_OTHER_TAIL_DB if calibration.feedback is None else MAX_LOOP_TAIL_DB
    _judge_tail(calibration, reasons, not_judged, MAX_TAIL_DB if is_known else most_db)
    if not is_known and calibration.distortion_db <= MAX_OTHER_DISTORTION_DB:
        reasons.pop("distortion", None)
    _judge_gains(calibration, reasons)
    if calibration.secondary_peak_samples <= 0:
        reasons["early_secondary"] = (
            f"the secondary path is largest {-calibration.secondary_peak_samples} samples before the loudspeaker "
            "plays, though sound needs time: start x and e (and a drive) with the same sample, and cut neither"
        )
    if calibration.lead_samples < MIN_LEAD_SAMPLES:
        reasons["late_secondary"] = (
            f"the secondary path is {-calibration.lead_samples:g} samples later than the primary, more than "
            f"{-MIN_LEAD_SAMPLES:g}: shorten the latency between x and the loudspeaker"
        )


def _judge_plausibility(
    calibration: Calibration,
    support: SupportPrior | None,
    cost_db: float,
    reasons: dict[str, str],
    not_judged: dict[str, str],
) -> Explanation | None:
    """Compare the paths with the support's.

    The measured ones first: where noise dominates, a prior or a denoised path looks more plausible than the takes are.
    The estimated ones if that finds anything: where a probe was silent, the measured ones are arbitrary.
    """
    paths = calibration.measured.primary, calibration.measured.secondary
    if implausible := find_implausible(support, *paths):
        paths = calibration.estimate.primary, calibration.estimate.secondary
        implausible = find_implausible(support, *paths)
    found = {finding.code: finding.detail for finding in implausible}
    if cost_db > MAX_TRAIT_NOISE_COST_DB and OTHER_DEVICE not in found:  # noise hides small errors
        if support is not None:
            not_judged |= dict.fromkeys(PLAUSIBILITY.keys() - _ROBUST, "noise hides it: see low_snr")
        found = {code: found[code] for code in _ROBUST & found.keys()}
    if OTHER_DEVICE in found:
        excited = calibration.is_excited
        coherence, snr_db = (
            np.median(item[excited]) for item in (calibration.coherence, calibration.secondary_snr_db)
        )
        measured = (
            f"measured with a coherence of {coherence:.3f} and an SNR of {snr_db:.0f} dB (medians over bands), "
        )
        not_judged[OTHER_DEVICE] = f"{measured}but {found.pop(OTHER_DEVICE)}"
    reasons |= found
    return None if support is None else support.explain(*paths)


def _judge_tail(
    calibration: Calibration, reasons: dict[str, str], not_judged: dict[str, str], most_db: float
) -> None:
    if calibration.window < WINDOW:
        reasons["truncated_tail"] = (
            f"the takes hold windows of {calibration.window} samples only, {WINDOW} are needed: record for longer"
        )
    elif "clipping" in reasons:  # distortion by clipping follows the signal, unlike noise, and resembles a tail
        not_judged["truncated_tail"] = "clipping cannot be distinguished from a tail"
    elif calibration.tail_db > most_db:
        late_ms = 1e3 * calibration.tail_samples / SAMPLE_RATE_HZ
        reasons["truncated_tail"] = (
            f"a path from the loudspeaker holds {calibration.tail_db:.1f} dB of its energy after {late_ms:.0f} ms (a "
            f"feedback path: twice that), more than {most_db:g} dB (median of the bands from 400 Hz to 8 kHz): look "
            "for reflections and for a loudspeaker that rings, and touch neither the earphone nor a gain "
            "between two takes"
        )


def _judge_gains(calibration: Calibration, reasons: dict[str, str]) -> None:
    levels = sorted(calibration.state_levels_db, key=lambda state_level_db: state_level_db[1])
    if levels and levels[-1][1] - levels[0][1] > MAX_STATE_LEVEL_DB:
        (quiet, low_db), (loud, high_db) = levels[0], levels[-1]
        reasons["inconsistent_gains"] = (
            f"the takes with gain {loud:g} show a secondary path {high_db - low_db:.1f} dB louder than those with "
            f"gain {quiet:g} (a drive counts as gain 1): one of the gains is not the one that was played, or "
            "something changed between the takes; correct it, or record again"
        )

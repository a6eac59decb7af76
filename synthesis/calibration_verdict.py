"""Whether a calibration can be trusted, and if not, why.

Every limit was set on 30 measured ears with simulated calibrations: all of them pass, and each fault, put into each
of them, is found (tests/synthesis/test_calibration_verdict.py). The measured values stand beside each limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from synthesis.calibration import WINDOW, Calibration
from synthesis.octave_bands import AMP_BANDS, nominal_hz
from synthesis.support_statistics import SupportStatistics, polarity, secondary_traits

REASONS = {
    "clipping": "Too many samples of a signal stand at its largest or smallest value.",
    "low_snr": "The estimate of the secondary path is too noisy in a band.",
    "late_secondary": "The loudspeaker is heard too late for a causal filter to cancel the noise.",
    "wrong_polarity": "The secondary path's phase is opposite to that of the model's support listeners.",
    "leak": "The secondary path's low frequencies lie far below those of the model's support listeners.",
    "truncated_tail": "A path is cut off: the takes are too short for a whole window, or the secondary path still "
    "rings at its end.",
    "few_windows": "Too few windows were pooled for the coherence to mean anything.",
}
"""Every code and what it means."""

MAX_CLIPPED_SHARE = 5e-4
"""Ears recorded in 16 bits reach 0.6e-4 at -40 dBFS and 4.4e-4 at -60; clipped at 5 sigma 18e-4 and more, at 4
sigma 78e-4, which leaves the secondary path 19 dB above noise in the worst band."""

MIN_SECONDARY_SNR_DB = 25.0
"""An ear's worst band lies at 30.5 to 31.5 dB; with white noise 20 dB below the error signal, at 15.7 to 22."""

MIN_LEAD_SAMPLES = -4.0
"""Ears have a lead of -3 to 1 samples. Delaying the loudspeaker by 2, 4, 8 samples costs WMMSE 1.4, 4.6, 9.7 dB."""

MAX_DELAY_SAMPLES = 2.0
"""Beyond the support's mean, where that is known: all 30 ears have the same delay to the sample."""

MIN_LOW_LEVEL_DB = -15.0
"""Against the support's mean: the loosest fit lies at -10 dB, an earphone in the hand, closed, at -9 to -11.5, and
open at -25."""

MAX_TAIL_DB = -45.0
"""Ears lie at -56 dB and below with eight probes, at -50 with one; a window of 2048 samples leaves -32."""

MIN_TAIL_OVER_NOISE_DB = 6.0
"""Less than that is noise, not a tail."""

MIN_FRAMES = 6
"""The coherence of n windows of unrelated noise is 1 / n."""

MIN_TRAIT_SNR_DB = 10.0
"""Median over the bands: below, the secondary path's delay, phase and level are those of noise."""

_DEVIATIONS = 5.0


@dataclass(frozen=True)
class Finding:
    """A reason against a calibration, or why it could not be judged. code: of REASONS. detail: what to do."""

    code: str
    detail: str


@dataclass(frozen=True)
class Verdict:
    """reasons: what speaks against the calibration, in the order of REASONS. not_judged: what could not be judged.

    polarity: part of the secondary's phase along the support's, -1 to 1; low_level_db: of the secondary, against
    the support's mean. None without the statistics.
    """

    reasons: tuple[Finding, ...]
    not_judged: tuple[Finding, ...]
    polarity: float | None
    low_level_db: float | None

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.reasons


def judge(calibration: Calibration, statistics: SupportStatistics | None) -> Verdict:
    """Check a calibration for all of REASONS; polarity and leak only with the statistics of a model's support."""
    reasons: dict[str, str] = {}
    not_judged: dict[str, str] = {}
    _judge_recordings(calibration, reasons)
    along = low_level = None
    if np.median(calibration.secondary_snr_db) < MIN_TRAIT_SNR_DB:
        noisy = f"the secondary path must stand {MIN_TRAIT_SNR_DB:g} dB above its noise to be judged"
        not_judged |= dict.fromkeys(("late_secondary", "wrong_polarity", "leak", "truncated_tail"), noisy)
    else:
        _judge_tail(calibration, reasons, not_judged)
        if statistics is None:
            unknown = "the model was published without statistics of its support to compare with"
            not_judged |= dict.fromkeys(("wrong_polarity", "leak"), unknown)
        else:
            along, low_level = _judge_against_support(calibration, statistics, reasons, not_judged)
        if "late_secondary" not in reasons and calibration.lead_samples < MIN_LEAD_SAMPLES:
            reasons["late_secondary"] = (
                f"the secondary path is {-calibration.lead_samples:g} samples later than the primary, more than "
                f"{-MIN_LEAD_SAMPLES:g}: shorten the latency between x and the loudspeaker"
            )
    return Verdict(_in_order(reasons), _in_order(not_judged), along, low_level)


def _in_order(found: dict[str, str]) -> tuple[Finding, ...]:
    return tuple(Finding(code, found[code]) for code in REASONS if code in found)


def _judge_recordings(calibration: Calibration, reasons: dict[str, str]) -> None:
    if calibration.clipped_share > MAX_CLIPPED_SHARE:
        reasons["clipping"] = (
            f"{calibration.clipped_in}: {100 * calibration.clipped_share:.3g} % of the samples stand at its "
            f"largest or smallest value, more than {100 * MAX_CLIPPED_SHARE:g} %: lower the level or the "
            "microphone's gain and record again"
        )
    noisy = [
        (float(snr_db), f"{nominal_hz(n):g}")
        for n, snr_db in zip(AMP_BANDS, calibration.secondary_snr_db, strict=True)
        if snr_db < MIN_SECONDARY_SNR_DB
    ]
    if noisy:
        worst_db, worst_hz = min(noisy)
        reasons["low_snr"] = (
            f"the secondary path is {worst_db:.1f} dB above its estimate's noise at {worst_hz} Hz, less than "
            f"{MIN_SECONDARY_SNR_DB:g} dB: play the probes louder or record for longer; "
            f"too low at {', '.join(hz for _, hz in noisy)} Hz"
        )
    if calibration.n_frames < MIN_FRAMES:
        reasons["few_windows"] = (
            f"one state has {calibration.n_frames} windows, fewer than {MIN_FRAMES}: "
            "record for longer or more often"
        )


def _judge_tail(calibration: Calibration, reasons: dict[str, str], not_judged: dict[str, str]) -> None:
    if calibration.window < WINDOW:
        reasons["truncated_tail"] = (
            f"the takes hold windows of {calibration.window} samples only, {WINDOW} are needed: record for longer"
        )
    elif "clipping" in reasons:  # whose distortion follows the signal, unlike noise, and looks like a tail
        not_judged["truncated_tail"] = "clipping cannot be told from a tail"
    elif calibration.tail_db > MAX_TAIL_DB and calibration.tail_over_noise_db > MIN_TAIL_OVER_NOISE_DB:
        reasons["truncated_tail"] = (
            f"the last eighth of the secondary path holds {calibration.tail_db:.1f} dB of its energy, more than "
            f"{MAX_TAIL_DB:g} dB: look for reflections, or for a loudspeaker that rings"
        )


def _judge_against_support(
    calibration: Calibration,
    statistics: SupportStatistics,
    reasons: dict[str, str],
    not_judged: dict[str, str],
) -> tuple[float, float]:
    """Delay, low level and polarity; the last two are returned."""
    secondary = calibration.measured.secondary[None]
    traits = secondary_traits(secondary)
    delay = float(traits.delay_samples[0])
    low_level = float(traits.low_level_db[0]) - statistics.low_level_db.mean
    later = delay - statistics.delay_samples.mean
    along = float(polarity(secondary_traits(secondary, later).direction, statistics.phase_rad)[0])
    limit = max(MAX_DELAY_SAMPLES, _DEVIATIONS * statistics.delay_samples.sd)
    if later > limit:
        reasons["late_secondary"] = (
            f"the secondary path is {later:g} samples later than the support's, more than {limit:g}: "
            "check the latency between x and the loudspeaker"
        )
    if low_level < MIN_LOW_LEVEL_DB:
        reasons["leak"] = (
            f"the low frequencies are {-low_level:.1f} dB below the support's, more than "
            f"{-MIN_LOW_LEVEL_DB:g} dB: seat the earphone again"
        )
        # What a leak leaves of the low frequencies has another phase and would be taken for a reversed sign.
        not_judged["wrong_polarity"] = "a leak leaves too little of the low frequencies that show it"
    elif along < 0:
        reasons["wrong_polarity"] = (
            f"{along:.2f} of the secondary path lies along the support's phase instead of about "
            f"{statistics.polarity.mean:.2f}: the sign of the loudspeaker, of e or of the gain is reversed"
        )
    return along, low_level

"""Diagnose deviations of a running filter from its prediction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prime_anc.measure.checks import MAX_CLIPPED_SHARE
from prime_anc.measure.verify.measurement import HOWL_DB, Verification
from prime_anc.measure.verify.trim import is_as_sent
from prime_anc.method.arrays import Real
from prime_anc.method.bands import AMP_BANDS, NR_BANDS, nominal_hz
from prime_anc.method.types import Prediction

LEVEL_OFF_DB = 0.4
DELAY_OFF_SAMPLES = 0.25
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
# Coherence of x and e without the filter, median over the bands, below which no diagnosis is possible; noise of two
# sources reaches 0.15.
UNRELATED = 0.3
# Noise reduction below the prediction by more than this and the interval is reported.
WORSE_DB = 2.0
# Noise reduction above what the paths allow by more than this and the interval is implausible: noise in the estimated
# paths lowers what they allow.
BETTER_DB = 6.0
# Level change of e with the filter on that indicates a changed microphone gain. 60 correct verifications of five ears
# stay above -0.1; with e 6 dB lower and the same noise in both states all are below.
ERROR_GAIN_DB = -0.5
# Largest plausible noise reduction, whatever the paths: measured ears reach 30 dB.
MOST_DB = 60.0
# By how much such a band may be louder than the filter makes it.
EXPECTED_LOUDER_DB = 3.0
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


@dataclass(frozen=True)
class Deviation:
    """One entry of a diagnosis."""

    code: str
    # Text with numbers and advice.
    detail: str
    # Amount: dB (`level_off`, `leak`, `howling`), samples (`delay_off`) or dB of noise reduction; None if there is
    # none.
    by: float | None = None


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
    measured: Verification,
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
    measured
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
    if (fault := _fault(measured)) is not None:
        return [fault]
    behind_db = measured.mean_noise_reduction_db - predicted_mean_db
    is_behind = behind_db < -(WORSE_DB + (measured.interval_db or 0))
    trimmed_db = measured.gain_db - 10 * np.log10(np.maximum(measured.played_rest, 1e-9))
    other = _other(measured, bands_db - measured.heard_reduction_db, is_behind)
    # Smooth filters of two people differ by little more than a gain and a delay.
    other = other or _other(measured, promised_db - trimmed_db, is_behind=False)
    deviations = _changes(measured, behind_db, is_trimmed) if other is None else [other]
    if (too_good := _too_good(measured, possible_db, best_db, is_changed=bool(deviations))) is not None:
        return [too_good]
    if deviations:
        return deviations
    if measured.howl_db and not _is_expected(measured, bands_db):
        return [_howling(measured)]
    text = f"measured {measured.mean_noise_reduction_db:.1f} dB, predicted {predicted_mean_db:.1f} dB"
    if not is_behind:
        return [Deviation("as_predicted", text, behind_db)]
    text += (
        ": filter and paths are as they were, so what remains is sound that the outer microphone does not hear: "
    )
    text += "look for noise of the microphones or beside them, round-off of the filter, and an output that clips"
    return [Deviation("less_than_predicted", text, behind_db)]


def _fault(measured: Verification) -> Deviation | None:
    """Return what leaves nothing to say about the paths."""
    if measured.coherence < UNRELATED:
        text = (
            f"with the filter off x and e have a coherence of {measured.coherence:.2f}: look for a dead microphone "
        )
        text += "or a wrong channel, play noise, no sweep, and louder, and record again"
        return Deviation("unrelated", text + _exchanged(measured))
    if measured.is_exchanged:
        text = "x lags e by the primary path: send the outer microphone as x and the error microphone as e"
        return Deviation("exchanged_channels", text)
    if measured.howl_db > HOWL_DB:
        return _howling(measured)
    if not measured.is_running and np.median(measured.played_rest) < SILENT_SHARE:
        text = "the error microphone hears nothing of the filter's output: check that it runs, and its channels"
        return Deviation("not_running", text)
    if measured.clipped_share > MAX_CLIPPED_SHARE:
        text = (
            f"{100 * measured.clipped_share:.3g} % of the samples of a recording stand at its largest or smallest "
        )
        return Deviation("clipping", text + "value: lower the level or the microphone's gain and record again")
    return None


def _exchanged(measured: Verification) -> str:
    return "; or the takes `off` and `on` are exchanged" if measured.mean_noise_reduction_db < 0 else ""


def _is_expected(measured: Verification, bands_db: Real | float) -> bool:
    """Return whether the filter itself makes the band louder that might howl."""
    centres_hz = np.array([nominal_hz(band) for band in AMP_BANDS])
    band = int(np.argmin(np.abs(np.log(centres_hz / measured.howl_hz))))
    expected_db = np.broadcast_to(bands_db, len(AMP_BANDS))[band]
    return bool(np.isfinite(expected_db) and measured.howl_db < EXPECTED_LOUDER_DB - expected_db)


def _howling(measured: Verification) -> Deviation:
    text = f"e is {measured.howl_db:.0f} dB louder at {measured.howl_hz:.0f} Hz with the filter on: switch it off; "
    text += (
        "if it howls, a controller may run with the opposite sign or too loud; without one design with `feedback` "
    )
    text += "or improve the seal; if another sound was heard, record again"
    return Deviation("howling", text, measured.howl_db)


def _other(measured: Verification, behind_db: Real, is_behind: bool) -> Deviation | None:
    """Find what x explains of the noise that remains, besides a gain, a delay and a leak; behind_db is per band."""
    if _leak_db(measured) or measured.primary_share > REFIT_SHARE:
        return None
    rest = np.maximum(measured.played_rest, measured.primary_rest)
    is_off = ((behind_db > OTHER_DB) & (rest > OTHER_SHARE))[: len(NR_BANDS)]
    worst = int(np.argmax(is_off * np.abs(measured.band_ratio[: len(NR_BANDS)] - 1)))
    moved = MOVED_RATIO * max(measured.primary_share, measured.primary_rest[worst])
    if measured.unexplained_share > max(REFIT_SHARE, MOVED_RATIO * measured.primary_share):
        share = f"{100 * measured.unexplained_share:.0f} %"
        text = f"gain and delay leave {share} of what the loudspeaker plays unexplained"
    elif is_off.any() and measured.played_rest[worst] > moved:
        ratio = measured.band_ratio[worst]
        text = f"at {nominal_hz(NR_BANDS[worst]):g} Hz the loudspeaker plays this filter's output with "
        text += f"{20 * np.log10(abs(ratio) + 1e-6):+z.1f} dB and {np.angle(ratio, deg=True):+z.0f} degrees"
    else:
        return _refit(float(-behind_db[worst])) if is_off.any() and is_behind else None
    return _another(text)


def _another(reason: str) -> Deviation:
    text = f"what runs is not this filter: {reason}. Check file, form and rate and load it again; look for a "
    return Deviation("other_filter", text + "high-pass beside it; else reseat and calibrate again")


def _leak_db(measured: Verification) -> float:
    """Return how much quieter low frequencies are than middle ones with a leak, 0 without.

    Bands in which the filter is quieter than the noise, as one of few sections often is, show no level.
    """
    bands_db = np.where(measured.is_heard, 20 * np.log10(np.abs(measured.band_ratio) + 1e-6), np.nan)
    low, middle = (bands_db[np.array(bands) - AMP_BANDS[0]] for bands in (LEAK_BANDS, MIDDLE_BANDS))
    if np.isnan(low).all() or np.isnan(middle).all():
        return 0.0
    leak_db = float(np.nanmedian(low) - np.nanmedian(middle))
    return leak_db if leak_db < LEAK_DB and measured.typical_share <= REFIT_SHARE else 0.0


def _refit(behind_db: float) -> Deviation:
    text = "the paths are others than those measured before: check that these are of this ear and that x is "
    return Deviation(
        "refit", text + "the outer microphone, and calibrate again as the earphone sits now", behind_db
    )


def _changes(measured: Verification, behind_db: float, is_trimmed: bool) -> list[Deviation]:
    """List how the paths differ from those that were sent."""
    leak_db = _leak_db(measured)
    is_elsewhere = measured.primary_share > REFIT_SHARE or (
        measured.unexplained_share > REFIT_SHARE and not leak_db
    )
    if leak_db or is_elsewhere:
        remedy = ""
    elif is_trimmed:
        remedy = ": load the trimmed filter"
    else:
        remedy = ": change the filter's gain, delay and sign by those of the trim, or calibrate as it is worn now "
        remedy += "and export again"
    changes = []
    if measured.is_inverted:
        text = f"the loudspeaker plays with the opposite sign{remedy}, or send the other `sign`"
        changes.append(Deviation("polarity_off", text + _exchanged(measured)))
    if leak_db:
        text = (
            f"50 to 160 Hz are {-leak_db:.1f} dB quieter than 500 Hz to 2 kHz: reseat, then measure again; if it "
        )
        changes.append(Deviation("leak", text + "stays, look for a high-pass beside the filter", leak_db))
    if abs(measured.gain_db) > LEVEL_OFF_DB:
        more = "louder" if measured.gain_db > 0 else "quieter"
        text = f"the secondary path is {abs(measured.gain_db):.2f} dB {more} than measured{remedy}"
        changes.append(Deviation("level_off", text, measured.gain_db))
    if abs(measured.delay_samples) > DELAY_OFF_SAMPLES:
        late = f"{abs(measured.delay_samples):.2f} samples {'later' if measured.delay_samples > 0 else 'earlier'}"
        text = f"the loudspeaker is heard {late} (of 48 kHz) than measured{remedy}"
        changes.append(Deviation("delay_off", text, measured.delay_samples))
    if is_elsewhere:
        changes.append(_refit(behind_db))
    return changes


def is_better(measured: Verification, possible_db: float) -> bool:
    """Return whether more noise reduction is measured than a filter that reaches possible_db can bring."""
    return measured.mean_noise_reduction_db > possible_db + (measured.interval_db or 0) + BETTER_DB


def _too_good(measured: Verification, possible_db: float, best_db: float, *, is_changed: bool) -> Deviation | None:
    """Detect more noise reduction than the loudspeaker, the filter or the paths allow."""
    if measured.error_gain_db < ERROR_GAIN_DB and not is_changed:
        text = f"e is at least {-measured.error_gain_db:.1f} dB quieter with the filter on than the loudspeaker's "
        text += "part of it explains: check that no microphone's gain changed between the takes, and record again"
        return Deviation("implausible_reduction", text, -measured.error_gain_db)
    is_known = measured.primary_share <= REFIT_SHARE and (
        is_as_sent(measured) or measured.unexplained_share <= REFIT_SHARE
    )
    if not is_better(measured, possible_db) or not (is_known or measured.mean_noise_reduction_db > MOST_DB):
        return None
    allowed_db = max(possible_db, best_db)
    text = f"{measured.mean_noise_reduction_db:.1f} dB are measured where "
    if is_better(measured, allowed_db):
        text += f"these paths allow {allowed_db:.1f} dB: "
        text += "check that no gain and no channel changed between the takes, and record again"
        return Deviation("implausible_reduction", text, measured.mean_noise_reduction_db - allowed_db)
    return _another(f"{text}it can reach {possible_db:.1f} dB")

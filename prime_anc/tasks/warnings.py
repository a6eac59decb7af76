"""Warnings: known limitations of an otherwise valid answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from prime_anc.answers import Warning_
from prime_anc.hardware.fixed_point import parse_format
from prime_anc.hardware.hybrid import HybridDesign
from prime_anc.method.bands import AMP_BANDS, NR_BANDS, WIDE_BANDS, band_membership, columns, nominal_hz
from prime_anc.method.conventions import DESIGN_N_FFT, N_BINS, SAMPLE_RATE_HZ
from prime_anc.method.predict import HIGH_BANDS, LOW_BANDS, POWER_FLOOR
from prime_anc.method.support.findings import PLAUSIBILITY, Finding
from prime_anc.method.types import Loop, Path, Prediction, Problem, Replaced

# Meanings of the codes.
WARNINGS = {
    "generator_replaced": "The generator's filter was not finite, or its noise reduction was clearly lower than "
    "that of the Wiener filter for the same paths, which is the answer (method `wmmse`, or `fir_wiener` with a "
    "latency).",
    "prediction_from_model": "No coherence was sent, nor `exact` or `snr_db`: paths like those of the model's support "
    "listeners are predicted with their average uncertainty, all others with what the ends of their responses show.",
    "low_coherence": "What this measurement leaves uncertain takes more than 1 dB from the predicted mean noise "
    "reduction (1.5 dB where a coherence alone says so), which is below 20 dB; or the mean coherence is below 0.5, or "
    "more than half of the bands are unknown.",
    "implausible_coherence": "The coherence is 1 at nearly all frequencies, as that of a single window is, or the "
    "uncertainty is 0: it does not describe the measurement, and the prediction is too high.",
    "resampled_grid": "A spectrum was resampled to the design grid of 32768 points.",
    "ceiling_binds": "max_gain_db binds: it costs more than 0.2 dB of predicted noise reduction, compared with a "
    "Wiener filter or with the default ceiling, or where the loudspeaker is too quiet for that, with one that is as "
    "much higher.",
    "unstable_loop": "The loop of filter and `feedback`, or of a controller, is unstable: it howls, and the "
    "prediction does not hold.",
    "margins_bind": "The margins of the loop through `feedback` cost more than 0.2 dB of predicted noise "
    "reduction.",
    "controller_amplifies": "With filter and controller a band from 20 Hz to 20 kHz is predicted to become louder by "
    "more than 1 dB.",
    "plant_unknown": "How wearing changes the secondary path was neither measured nor lent by the model: the "
    "controller's margins hold for this seating alone, with 6 dB of level to spare.",
    "amplification": "A band from 50 Hz to 8 kHz is predicted to become louder by more than 1 dB.",
    "outer_band_louder": "A band from 20 to 40 Hz is predicted to become louder by more than 3 dB, or one from 10 to "
    "20 kHz by more than 1 dB.",
    "little_noise_reduction": "The predicted mean noise reduction is below 3 dB.",
    "negated_filter": "The evaluated filter amplifies, and its negative would reduce the noise.",
    "unlike_filter": "The realised filter is predicted to be more than 3 dB better than the one that was exported, "
    "which was not designed for these paths.",
    "unlike_target": "The controller's rate or number format is not the target's: a chip that runs both needs another.",
    **PLAUSIBILITY,
}

# What an answer says of a code, with the numbers of the finding.
_DETAILS = {
    "generator_replaced": "the generator's filter {reason}, so the Wiener filter is the answer: check the measurement, "
    "and train a model for your earphone if all listeners get this",
    "prediction_from_model": "no coherence was sent{where}: send the coherence and the uncertainty that /calibrate "
    "answers",
    "low_coherence": "{cause}",
    "implausible_coherence": "{cause}, or send none; the prediction assumes an error-free measurement",
    "resampled_grid": "{n_bins} bins were sent, {n_used} are used",
    "ceiling_binds": "max_gain_db costs {cost_db:.1f} dB of predicted noise reduction; raise it where the loudspeaker "
    "allows",
    "unstable_loop": "the loop howls, its gain is {loop.peak_db:.1f} dB at {loop.peak_hz:.0f} Hz: do not load this; "
    "design with `feedback` in the request, with a quieter `controller`, or improve the seal",
    "margins_bind": "the margins of the loop cost {cost_db:.1f} dB of predicted noise reduction: check that `feedback` "
    "is the path from the loudspeaker to the outer microphone, in that microphone's unit; a better seal makes it "
    "quieter, and lower margins may howl",
    "controller_amplifies": "{bands}; lower controller.max_sensitivity_db, or allow less latency",
    "plant_unknown": "measure the earphone pressed and loose too, and send these as conditions with stability_only, or "
    "use a model of this earphone",
    "amplification": "{bands}; look for latency or a late secondary path, measure again, or lower max_gain_db there",
    "outer_band_louder": "{bands}; rumble or hiss may be heard; lower max_gain_db there, or check the measurement at "
    "these frequencies",
    "little_noise_reduction": "{means}: {causes}",
    "negated_filter": "the negated filter would reduce noise by {mean_db:.1f} dB: send the `sign` that the filter was "
    "designed with",
    "unlike_filter": "`fir` is predicted to take away {sent_db:.1f} dB on these paths, what was designed for them "
    "{realised_db:.1f} dB: check that filter and paths are of the same ear and have the same `sign`, and send its "
    "`risk_weight`",
    "unlike_target": "the controller is at {controller[0]:g} Hz in {controller[1]}, the filter at {target[0]:g} Hz in "
    "{target[1]}: if one chip runs both, design the controller with its `sample_rate` and `number_format`",
    "identical_paths": "conditions.{n} and conditions.{m} have the same paths: send each measurement once, with a "
    "weight",
}
_REPLACED = {"not_finite": "was not finite", "predicted_worse": "was predicted to be clearly worse"}


def finding(code: str, **numbers: Any) -> Finding:
    """Make a finding of its code and numbers."""
    return Finding(code, _DETAILS[code].format(**numbers))


# The latter if no uncertainty was sent: a coherence also counts sound beyond the windows, up to 1.4 dB without noise.
COSTLY_UNCERTAINTY_DB, COSTLY_COHERENCE_DB = 1.0, 1.5

# Predicted mean with which a costly uncertainty is no reason to measure again: measured ears reach it at 25 dB of SNR.
ENOUGH_DB = 20.0

# Mean coherence below which x and e have no common source; at 10 dB of SNR it is above 0.8.
UNRELATED = 0.5

_LOW_HZ = [nominal_hz(n) for n in LOW_BANDS]
_SCORED = slice(*(round(value * 2 * (N_BINS - 1) / SAMPLE_RATE_HZ) for value in (50.0, 5000.0)))
# Less than the 0.3 dB that no answer lacks unsaid: an exact Wiener filter may be 0.2 dB above one in single precision.
CEILING_COST_DB = 0.2
# Allowed increase of a band's level; of the lowest ones: 20 Hz becomes more than 2 dB louder on 18 of 30 ears.
LOUDER_DB, LOW_LOUDER_DB = 1.0, 3.0

LITTLE_NOISE_REDUCTION_DB = 3.0
NO_EFFECT_DB = 0.05
LONG_LATENCY_SAMPLES = 4.0

# One less the mean coherence, or mean uncertainty, below which a value was not measured; noise-free ears reach 1e-3.
PERFECT = 1e-6

# Most bands to list.
MAX_LISTED = 6


def collect_warnings(
    sent: Sequence[Path],
    used: Problem,
    prediction: Prediction,
    replaced: Replaced | None = None,
    ceiling_cost_db: float | None = None,
    implausible: Sequence[Finding] = (),
    loop: Loop | None = None,
) -> list[Warning_]:
    """Collect the warnings on a design or an evaluation, in the order of WARNINGS.

    Parameters
    ----------
    sent
        Paths as sent.
    used
        Problem with the resampled paths.
    replaced
        Reason for the Wiener filter in place of the generator's, if any.
    ceiling_cost_db
        Cost of the design's ceiling.
    implausible
        Findings on the paths or the filter.
    loop
        Loop of the filter.
    """
    found: list[Finding] = []
    if replaced:
        found.append(finding("generator_replaced", reason=_REPLACED[replaced]))
    found += [*_without_coherence(used), *_coherence(used, prediction)]
    lengths = [len(path) for path in sent if np.iscomplexobj(path) and len(path) != N_BINS]
    if lengths:
        found.append(finding("resampled_grid", n_bins=lengths[0], n_used=N_BINS))
    ceiling_cost_db, margins_cost_db = ceiling_cost_db or 0.0, loop.loss_db if loop else 0.0
    if ceiling_cost_db > CEILING_COST_DB:
        found.append(finding("ceiling_binds", cost_db=ceiling_cost_db))
    if loop is not None and not loop.stable:
        found.append(finding("unstable_loop", loop=loop))
    if margins_cost_db > CEILING_COST_DB:
        found.append(finding("margins_bind", cost_db=margins_cost_db))
    outer_db = dict.fromkeys(LOW_BANDS, LOW_LOUDER_DB) | dict.fromkeys(HIGH_BANDS, LOUDER_DB)
    limits_db = {"amplification": dict.fromkeys(AMP_BANDS, LOUDER_DB), "outer_band_louder": outer_db}
    for code, limit_db in limits_db.items():
        if bands := _of_conditions(prediction, _louder, limit_db):
            found.append(finding(code, bands=bands))
    if means := _of_conditions(prediction, _little):
        causes = _causes(used, ceiling_cost_db, margins_cost_db)
        found.append(finding("little_noise_reduction", means=means, causes=causes))
    for item in (*implausible, *_sent_twice(used)):
        is_twice = item.code == "implausible_delay" and used.latency_samples
        text = f"; latency_samples adds {used.latency_samples:g}, which must not count the same delay again"
        found.append(replace(item, detail=item.detail + text) if is_twice else item)
    return _warnings(found)


def _warnings(found: Iterable[Finding]) -> list[Warning_]:
    return [Warning_(code=item.code, detail=item.detail) for item in found]


def controller_warnings(made: HybridDesign) -> list[Warning_]:
    """Collect the warnings on a controller."""
    found = []
    if bands := _of_conditions(made.design.prediction, _louder, dict.fromkeys(WIDE_BANDS, LOUDER_DB)):
        found.append(finding("controller_amplifies", bands=bands))
    if made.is_plant_unknown:
        found.append(finding("plant_unknown"))
    return _warnings(found)


def negated_filter(negated: Prediction) -> tuple[Finding, ...]:
    """Return the finding for a filter that amplifies, from the prediction of its negative."""
    mean_db = negated.mean_noise_reduction_db
    return () if mean_db < LITTLE_NOISE_REDUCTION_DB else (finding("negated_filter", mean_db=mean_db),)


def unlike_filter(sent: Prediction, realised: Prediction) -> tuple[Finding, ...]:
    """Return the finding for a filter whose realisation for the same paths is much better."""
    sent_db, realised_db = sent.mean_noise_reduction_db, realised.mean_noise_reduction_db
    if realised_db < sent_db + LITTLE_NOISE_REDUCTION_DB:
        return ()
    return (finding("unlike_filter", sent_db=sent_db, realised_db=realised_db),)


def unlike_target(controller: tuple[float, str], target: tuple[float, str]) -> tuple[Finding, ...]:
    """Return the finding for a controller of another rate (Hz) or number format than the target's."""
    (rate_hz, words), (target_hz, target_words) = controller, target
    if rate_hz == target_hz and parse_format(words) == parse_format(target_words):  # None: a float
        return ()
    return (finding("unlike_target", controller=controller, target=target),)


def _of_conditions(prediction: Prediction, find: Callable[..., str | None], *arguments: Any) -> str | None:
    """Apply a check to the prediction, or to its conditions, which are named."""
    if not prediction.conditions:
        return find(prediction, *arguments)
    found = []
    for n, condition in enumerate(prediction.conditions):
        if detail := find(condition.prediction, *arguments):
            found.append(f"conditions.{n}{condition.label and f' ({condition.label})'}: {detail}")
    return "; ".join(found) or None


def _without_coherence(used: Problem) -> Iterator[Finding]:
    """Yield the finding for conditions of whose errors nothing is known."""
    without = [
        str(n)
        for n, condition in enumerate(used.conditions)
        if condition.coherence is None and condition.uncertainty is None
    ]
    if without and not (used.exact or used.snr_db):
        where = f" for conditions {', '.join(without)}" if len(used.conditions) > 1 else ""
        yield finding("prediction_from_model", where=where)


def _coherence(used: Problem, prediction: Prediction) -> Iterator[Finding]:
    """Yield `low_coherence` and `implausible_coherence`."""
    low, perfect = [], []
    for n, condition in enumerate(used.conditions):
        if condition.coherence is not None:
            mean = float(condition.coherence[_SCORED].mean(dtype=np.float64))
            if mean < UNRELATED:
                where = f"conditions.{n}: " if len(used.conditions) > 1 else ""
                cause = "look for a dead microphone or a wrong channel"
                low.append(f"{where}the mean is {mean:.2f} where noise is reduced: {cause}")
            if 1 - mean < PERFECT:
                perfect.append(
                    "the coherence is 1, as that of a single window is: pool many windows, as /calibrate does"
                )
        if condition.uncertainty is not None and float(condition.uncertainty.mean()) < PERFECT:
            perfect.append("the uncertainty is 0, as that of no measurement is: send what /calibrate answers")
    cost_db = prediction.uncertainty_cost_db
    allowed_db = COSTLY_COHERENCE_DB if used.conditions[0].uncertainty is None else COSTLY_UNCERTAINTY_DB
    is_costly = cost_db > allowed_db and prediction.mean_noise_reduction_db < ENOUGH_DB
    n_unknown = len({*NR_BANDS}.intersection(prediction.unknown_bands))
    cause = f"uncertainty of the measurement takes {cost_db:.1f} dB from the predicted mean"
    if is_mostly_unknown := n_unknown > len(NR_BANDS) / 2:
        cause = f"{n_unknown} of the {len(NR_BANDS)} bands of the mean are unknown"
    if prediction.basis == "coherence" and (is_mostly_unknown or is_costly):
        low.append(
            f"{cause}: measure again with less noise at the error microphone, louder probes or longer recordings"
        )
    for code, causes in {"low_coherence": low, "implausible_coherence": perfect}.items():
        if causes:
            yield finding(code, cause=causes[0])


def _louder(prediction: Prediction, limits_db: Mapping[int, float]) -> str | None:
    """List the bands louder by more than their limits or, if many, their number and the worst."""
    louder_db = (-prediction.band_reduction_db).tolist()
    if max(louder_db) <= LOUDER_DB:
        return None
    found = {
        nominal_hz(n): level_db
        for n, limit_db in limits_db.items()
        if (level_db := louder_db[n - WIDE_BANDS[0]]) > limit_db
    }
    if not found:
        return None
    if len(found) <= MAX_LISTED:
        return ", ".join(
            f"{hz:g} Hz: {item:.1f} dB louder{' or more' if hz in _LOW_HZ else ''}" for hz, item in found.items()
        )
    worst = max(found, key=lambda hz: found[hz])
    listed = f"{len(found)} bands from {min(found):g} to {max(found):g} Hz"
    return f"{listed}, most of all {worst:g} Hz: {found[worst]:.1f} dB louder"


def _little(prediction: Prediction) -> str | None:
    mean = prediction.mean_noise_reduction_db
    if mean >= LITTLE_NOISE_REDUCTION_DB:
        return None
    return f"the mean is {round(mean, 1) + 0.0:.1f} dB" + (", worse than no filter" if mean < -NO_EFFECT_DB else "")


def _causes(used: Problem, ceiling_cost_db: float, margins_cost_db: float) -> str:
    """Name causes of a low noise reduction, as far as the request shows them, with remedies."""
    found = []
    if used.latency_samples > LONG_LATENCY_SAMPLES:
        found.append(f"latency_samples of {used.latency_samples:g} leaves no time to cancel the noise; shorten it")
    if ceiling_cost_db > CEILING_COST_DB:
        found.append("max_gain_db is low; raise it")
    if margins_cost_db > CEILING_COST_DB:
        found.append("the margins of the loop through `feedback` take the rest")
    if n_silent := _n_silent_bands(used):
        found.append(f"reference_psd is silent in {n_silent} of the {len(NR_BANDS)} bands, which count as 0 dB")
    return "; ".join(found) or "look for latency, a leak or exchanged paths, and measure again"


def _n_silent_bands(used: Problem) -> int:
    if used.reference_psd is None:
        return 0
    power = used.reference_psd.astype(np.float64) @ band_membership(WIDE_BANDS, DESIGN_N_FFT)
    silent = power <= POWER_FLOOR * power.max()
    return int(silent[columns(NR_BANDS)].sum())


def _sent_twice(used: Problem) -> Iterator[Finding]:
    """Yield conditions with the same paths as an earlier one."""
    for (n, one), (m, other) in combinations(enumerate(used.conditions), 2):
        if np.array_equal(one.primary, other.primary) and np.array_equal(one.secondary, other.secondary):
            yield finding("identical_paths", n=n, m=m)

"""Warnings: known limitations of an otherwise valid answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from service.api.validation import Path
from service.engine.types import Replaced
from synthesis.backends.base import DesignInput, Prediction
from synthesis.conventions import N_BINS, SAMPLE_RATE_HZ
from synthesis.octave_bands import AMP_BANDS, WIDE_BANDS, nominal_hz
from synthesis.plausibility import PLAUSIBILITY, Finding
from synthesis.prediction import HIGH_BANDS, LOW_BANDS

WARNINGS = {
    "generator_replaced": "The generator's filter was not finite, or its predicted noise reduction was clearly "
    "lower than that of the Wiener filter for the same paths, which is the answer (method `wmmse`).",
    "prediction_from_model": "No coherence was sent: the prediction uses the average uncertainty of the model's "
    "support listeners.",
    "low_coherence": "This measurement is less certain than those of the model's support listeners, which takes "
    "more than 1 dB from the predicted mean noise reduction (1.5 dB where a coherence alone says so); or the mean "
    "coherence is below 0.5.",
    "resampled_grid": "A spectrum was resampled to the design grid of 32768 points.",
    "ceiling_binds": "max_gain_db binds: it costs more than 0.5 dB of predicted noise reduction, compared with the "
    "default ceiling.",
    "amplification": "A band from 50 Hz to 8 kHz is predicted to become louder by more than 1 dB.",
    "outer_band_louder": "A band from 20 to 40 Hz or from 10 to 20 kHz is predicted to become louder; by more than "
    "1 dB, or, below 50 Hz, at all.",
    "out_of_band_louder": "The former name of `outer_band_louder`, sent beside it.",
    "little_noise_reduction": "The predicted mean noise reduction is below 3 dB.",
    **PLAUSIBILITY,
}
"""Meaning of each code."""

COSTLY_UNCERTAINTY_DB, COSTLY_COHERENCE_DB = 1.0, 1.5
"""The latter where no uncertainty was sent: a coherence also counts what arrives too late for the windows, up to
1.4 dB without any noise."""

UNRELATED = 0.5
"""Mean coherence below which x cannot be what e hears; at 10 dB of SNR it is above 0.8."""

_SCORED = slice(*(round(each * 2 * (N_BINS - 1) / SAMPLE_RATE_HZ) for each in (50.0, 5000.0)))
CEILING_COST_DB = 0.5
LOUDER_DB = 1.0
LOW_LOUDER_DB = 0.0
"""Of bands that a calibration's windows hardly resolve: 20 Hz becomes 1 dB louder than predicted in the mean."""

LITTLE_NOISE_REDUCTION_DB = 3.0

_REPLACED = {
    "not_finite": "the generator's filter was not finite",
    "predicted_worse": "the generator's filter was predicted to be clearly worse",
}


def collect_warnings(
    sent: Sequence[Path],
    used: DesignInput,
    prediction: Prediction,
    replaced: Replaced | None = None,
    ceiling_cost_db: float | None = None,
    implausible: Sequence[Finding] = (),
) -> list[dict[str, str]]:
    """Warnings on a design or an evaluation, in the order of WARNINGS.

    sent: all paths as sent. used: the same, resampled. replaced: why the Wiener filter replaced
    the generator's, if it did. ceiling_cost_db: of the design. implausible: about the paths.
    """
    outer = _of_conditions(prediction, lambda each: _louder(each, LOW_BANDS + HIGH_BANDS))
    found: dict[str, str | None] = {
        "generator_replaced": _REPLACED[replaced] if replaced else None,
        "prediction_from_model": _no_coherence(used),
        "low_coherence": _low_coherence(used, prediction),
        "resampled_grid": _resampled(sent),
        "ceiling_binds": _bound(ceiling_cost_db),
        "amplification": _of_conditions(prediction, lambda each: _louder(each, AMP_BANDS)),
        "outer_band_louder": outer,
        "out_of_band_louder": outer,
        "little_noise_reduction": _of_conditions(prediction, _little),
    }
    warnings = [{"code": code, "detail": detail} for code, detail in found.items() if detail is not None]
    return warnings + [{"code": each.code, "detail": each.detail} for each in implausible]


def _of_conditions(prediction: Prediction, find: Callable[[Prediction], str | None]) -> str | None:
    """What is found in the prediction, or in each of its conditions, which are named."""
    if not prediction.conditions:
        return find(prediction)
    found = [(n, each.label, find(each.prediction)) for n, each in enumerate(prediction.conditions)]
    return "; ".join(f"conditions.{n}{label and f' ({label})'}: {each}" for n, label, each in found if each) or None


def _no_coherence(used: DesignInput) -> str | None:
    without = [n for n, each in enumerate(used.conditions) if each.coherence is None and each.uncertainty is None]
    if not without:
        return None
    return "no coherence was sent" + (f" for conditions {', '.join(map(str, without))}" if used.others else "")


def _low_coherence(used: DesignInput, prediction: Prediction) -> str | None:
    if used.coherence is not None and (mean := float(used.coherence[_SCORED].mean())) < UNRELATED:
        return f"the mean is {mean:.2f} where noise is reduced: look for a dead microphone or a wrong channel"
    cost_db = prediction.uncertainty_cost_db
    allowed_db = COSTLY_COHERENCE_DB if used.uncertainty is None else COSTLY_UNCERTAINTY_DB
    if prediction.basis != "coherence" or cost_db <= allowed_db:
        return None
    return (
        f"{cost_db:.1f} dB of the predicted mean are missing for it: "
        "measure again with less noise at the error microphone, louder probes or longer recordings"
    )


def _resampled(sent: Sequence[Path]) -> str | None:
    n_bins = sorted({len(path) for path in sent if np.iscomplexobj(path)} - {N_BINS})
    return f"{n_bins[0]} bins were sent, {N_BINS} are used" if n_bins else None


def _bound(cost_db: float | None) -> str | None:
    if cost_db is None or cost_db <= CEILING_COST_DB:
        return None
    return f"max_gain_db costs {cost_db:.1f} dB of predicted noise reduction; raise it where the loudspeaker allows"


def _louder(prediction: Prediction, bands: Sequence[int]) -> str | None:
    """Every one of the bands that becomes louder by more than LOUDER_DB, or LOW_LOUDER_DB."""
    louder_db = {n: -float(prediction.band_reduction_db[n - WIDE_BANDS[0]]) for n in bands}
    found = [
        f"{nominal_hz(n):g} Hz: {each:.1f} dB louder{' or more' if n in LOW_BANDS else ''}"
        for n, each in louder_db.items()
        if each > (LOW_LOUDER_DB if n in LOW_BANDS else LOUDER_DB)
    ]
    return ", ".join(found) or None


def _little(prediction: Prediction) -> str | None:
    mean = prediction.mean_noise_reduction_db
    return f"the mean is {mean:.1f} dB" if mean < LITTLE_NOISE_REDUCTION_DB else None

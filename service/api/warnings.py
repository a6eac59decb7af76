"""Warnings: known limitations of an otherwise valid answer."""

from __future__ import annotations

import numpy as np

from service.api.validation import Path
from service.engine.types import Replaced
from synthesis.backends.base import DesignInput, Prediction
from synthesis.conventions import N_BINS, SAMPLE_RATE_HZ
from synthesis.octave_bands import AMP_BANDS, NR_BANDS, edges_hz, nominal_hz

WARNINGS = {
    "generator_replaced": "The generator's filter was not finite, or its predicted noise reduction was clearly "
    "lower than that of the Wiener filter for the same paths, which is the answer (method `wmmse`).",
    "prediction_from_model": "No coherence was sent: the prediction uses the average uncertainty of the model's "
    "support listeners.",
    "low_coherence": "The mean coherence from 50 Hz to 5 kHz is below 0.9: the paths are poorly measured.",
    "resampled_grid": "A spectrum was resampled to the design grid of 32768 points.",
    "gain_above_ceiling": "The largest |W| is more than 1 dB above max_gain_db.",
    "amplification": "A band from 50 Hz to 8 kHz is predicted to become louder by more than 1 dB.",
    "out_of_band_louder": "Below 44.7 Hz or above 8.9 kHz the level is predicted to rise by more than 1 dB.",
    "little_noise_reduction": "The predicted mean noise reduction is below 3 dB.",
}
"""Meaning of each code."""

LOW_COHERENCE = 0.9
GAIN_MARGIN_DB = 1.0
LOUDER_DB = 1.0
LITTLE_NOISE_REDUCTION_DB = 3.0

_REPLACED = {
    "not_finite": "the generator's filter was not finite",
    "predicted_worse": "the generator's filter was predicted to be clearly worse",
}


def collect_warnings(
    sent: tuple[Path, Path], used: DesignInput, prediction: Prediction, replaced: Replaced | None = None
) -> list[dict[str, str]]:
    """Warnings on a design or an evaluation, in the order of WARNINGS.

    sent: primary and secondary path as sent. used: the same, resampled. replaced: why the Wiener filter replaced
    the generator's, if it did.
    """
    found: dict[str, str | None] = {
        "generator_replaced": _REPLACED[replaced] if replaced else None,
        "prediction_from_model": None if used.coherence is not None else "no coherence was sent",
        "low_coherence": _low_coherence(used),
        "resampled_grid": _resampled(sent),
        "gain_above_ceiling": _above_ceiling(used, prediction),
        "amplification": _amplified(prediction),
        "out_of_band_louder": _louder_outside(prediction),
        "little_noise_reduction": _little(prediction),
    }
    return [{"code": code, "detail": detail} for code, detail in found.items() if detail is not None]


def _low_coherence(used: DesignInput) -> str | None:
    if used.coherence is None:
        return None
    bins_per_hz = 2 * (N_BINS - 1) / SAMPLE_RATE_HZ
    low_hz, high_hz = edges_hz(NR_BANDS[0])[0], edges_hz(NR_BANDS[-1])[1]
    mean = float(used.coherence[round(low_hz * bins_per_hz) : round(high_hz * bins_per_hz)].mean())
    return f"the mean coherence is {mean:.3f}" if mean < LOW_COHERENCE else None


def _resampled(sent: tuple[Path, Path]) -> str | None:
    n_bins = sorted({len(path) for path in sent if np.iscomplexobj(path)} - {N_BINS})
    return f"{n_bins[0]} bins were sent, {N_BINS} are used" if n_bins else None


def _above_ceiling(used: DesignInput, prediction: Prediction) -> str | None:
    if prediction.max_gain_db <= used.max_gain_db + GAIN_MARGIN_DB:
        return None
    return f"the largest |W| is {prediction.max_gain_db:.1f} dB, the ceiling {used.max_gain_db:.1f} dB"


def _amplified(prediction: Prediction) -> str | None:
    worst = int(np.argmin(prediction.noise_reduction_db))
    louder_db = -float(prediction.noise_reduction_db[worst])
    return f"{nominal_hz(AMP_BANDS[worst]):g} Hz: {louder_db:.1f} dB louder" if louder_db > LOUDER_DB else None


def _louder_outside(prediction: Prediction) -> str | None:
    low, high = prediction.out_of_band_low_db, prediction.out_of_band_high_db
    return f"low {low:+.1f} dB, high {high:+.1f} dB" if max(low, high) > LOUDER_DB else None


def _little(prediction: Prediction) -> str | None:
    mean = prediction.mean_noise_reduction_db
    return f"the mean is {mean:.1f} dB" if mean < LITTLE_NOISE_REDUCTION_DB else None

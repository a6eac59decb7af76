"""Warnings: what a client should know about an answer that is none the less an answer."""

from __future__ import annotations

import numpy as np

from service.designs import Ear, Figures
from service.engine import net
from synthesis.conventions import N_BINS, SAMPLE_RATE_HZ
from synthesis.octave_bands import AMP_BANDS, NR_BANDS, edges_hz, nominal_hz

WARNINGS = {
    "generator_replaced": "The generator's filter was not finite, or was predicted to take away over 3 dB less "
    "noise than the Wiener filter for the same paths: the answer is the latter, method `wmmse`.",
    "prediction_from_model": "No coherence came with the paths: the prediction uses what the model's support "
    "listeners' estimates did not know, not what these do not.",
    "low_coherence": "The mean coherence from 50 Hz to 5 kHz is below 0.9: the paths are poorly measured.",
    "resampled_grid": "A spectrum was brought to the design grid of 32768 points through its impulse response.",
    "gain_above_ceiling": "The largest |W| is more than 1 dB above max_gain_db.",
    "amplification": "A band from 50 Hz to 8 kHz is predicted to become louder by more than 1 dB.",
    "out_of_band_louder": "Below 44.7 Hz or above 8.9 kHz the level is predicted to rise by more than 1 dB.",
    "little_noise_reduction": "The predicted mean noise reduction is below 3 dB.",
}
"""Every code and what it means."""

LOW_COHERENCE = 0.9
LOUDER_DB = 1.0
LITTLE_NOISE_REDUCTION_DB = 3.0

Warning_ = dict[str, str]


def advise(ear: Ear, figures: Figures, replaces: str | None = None) -> list[Warning_]:
    """Warnings on a design or on a filter that was brought along, in the order of WARNINGS.

    replaces: of a design, why it is not the generator's own.
    """
    found: dict[str, str | None] = {
        "generator_replaced": _REPLACED.get(replaces) if replaces else None,
        "prediction_from_model": None if ear.coherence is not None else "no coherence was sent",
        "low_coherence": _low_coherence(ear),
        "resampled_grid": _resampled(ear),
        "gain_above_ceiling": _above_ceiling(ear, figures),
        "amplification": _amplified(figures),
        "out_of_band_louder": _louder_outside(figures),
        "little_noise_reduction": _little(figures),
    }
    return [{"code": code, "detail": detail} for code, detail in found.items() if detail is not None]


_REPLACED = {
    net.NOT_FINITE: "the generator's filter was not finite",
    net.PREDICTED_WORSE: "the generator's filter was predicted clearly worse",
}


def _low_coherence(ear: Ear) -> str | None:
    if ear.coherence is None:
        return None
    bins_per_hz = 2 * (len(ear.coherence) - 1) / SAMPLE_RATE_HZ
    low_hz, high_hz = edges_hz(NR_BANDS[0])[0], edges_hz(NR_BANDS[-1])[1]
    mean = float(ear.coherence[round(low_hz * bins_per_hz) : round(high_hz * bins_per_hz)].mean())
    return f"the mean coherence is {mean:.3f}" if mean < LOW_COHERENCE else None


def _resampled(ear: Ear) -> str | None:
    found = sorted({len(each) for each in (ear.primary, ear.secondary) if np.iscomplexobj(each)} - {N_BINS})
    return f"{found[0]} bins were sent, {N_BINS} are used" if found else None


def _above_ceiling(ear: Ear, figures: Figures) -> str | None:
    if figures.max_gain_db <= ear.max_gain_db + net.GAIN_MARGIN_DB:
        return None
    return f"the largest |W| is {figures.max_gain_db:.1f} dB, the ceiling {ear.max_gain_db:.1f} dB"


def _amplified(figures: Figures) -> str | None:
    worst = int(np.argmin(figures.noise_reduction_db))
    louder_db = -float(figures.noise_reduction_db[worst])
    return f"{nominal_hz(AMP_BANDS[worst]):g} Hz: {louder_db:.1f} dB louder" if louder_db > LOUDER_DB else None


def _louder_outside(figures: Figures) -> str | None:
    low, high = float(figures.out_of_band_low_db), float(figures.out_of_band_high_db)
    return f"low {low:+.1f} dB, high {high:+.1f} dB" if max(low, high) > LOUDER_DB else None


def _little(figures: Figures) -> str | None:
    mean = float(figures.mean_noise_reduction_db)
    return f"the mean is {mean:.1f} dB" if mean < LITTLE_NOISE_REDUCTION_DB else None

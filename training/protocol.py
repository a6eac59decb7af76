"""Every design on the same cases: one row per design and ear.

A design sees the estimates; its score sees the true paths. Nothing else connects the two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from synthesis.estimate_uncertainty import expected_uncertainty
from synthesis.noise_reduction import Prediction, predict
from synthesis.octave_bands import nominal_hz
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import DEFAULT_MAX_GAIN_DB, Synthesizer
from training.baselines import ProjectedRatio, RatioBase, Wmmse
from training.measurements import Measurements
from training.scoring import SCORED_BANDS, Score, TimeDomainScore

Row = dict[str, Any]

N_UPDATES = (0, 1, 2, 3)
EARS_AT_ONCE = 8


@dataclass(frozen=True)
class Design:
    """One method's way from estimated paths to taps [batch, 2048], and how it is named in the table."""

    method: str
    n_updates: int
    profile: str
    max_gain_db: float | None
    taps: Callable[[AcousticPaths], Tensor]


def baseline_designs(reference_psd: Tensor) -> list[Design]:
    """Both ratio bases, projected ratio, WMMSE and WMMSE + GN(3) of the paper's profile."""
    methods = (RatioBase("full_band"), RatioBase("held_band"), ProjectedRatio(), Wmmse(reference_psd))
    designs = [Design(m.name, 0, "", None, lambda paths, m=m: m.design(paths).taps) for m in methods]  # type: ignore[misc]
    refined = Wmmse(reference_psd, n_updates=3)
    return [*designs, Design(refined.name, 3, "paper", None, lambda paths: refined.design(paths).taps)]


def generator_designs(synthesizer: Synthesizer) -> list[Design]:
    """A trained generator at k = 0 to 3: `prime` as the paper refines it, `prime-log` in this project's way."""
    kind = synthesizer.generator.config.kind
    profile = "paper" if kind == "prime" else "fast"
    max_gain_db = None if kind == "prime" else DEFAULT_MAX_GAIN_DB

    def taps_after(n_updates: int) -> Callable[[AcousticPaths], Tensor]:
        return lambda paths: synthesizer.design(paths, n_updates, profile=profile, max_gain_db=max_gain_db).taps

    return [
        Design(kind, n_updates, profile if n_updates else "", max_gain_db, taps_after(n_updates))
        for n_updates in N_UPDATES
    ]


@torch.no_grad()
def score_designs(
    measurements: Measurements,
    score: TimeDomainScore,
    designs: Iterable[Design],
    indices: list[int],
    labels: Row,
    learned_uncertainty: Tensor | None = None,
) -> list[Row]:
    """One row for each design on each of the measurements' pairs `indices`.

    labels: columns that all rows share (split, seed, checkpoint). learned_uncertainty: from a model's support
    listeners, [2, 31]; with it each row also states what a request without a coherence would have been told.
    """
    rows: list[Row] = []
    psd = measurements.reference_psd.float()
    for start in range(0, len(indices), EARS_AT_ONCE):
        chunk = indices[start : start + EARS_AT_ONCE]
        paths = measurements.paths(chunk)
        coherence = measurements.estimates.coherence[chunk].float()
        for design in designs:
            taps = design.taps(paths)
            prediction = predict(paths, taps, psd, coherence=coherence)
            blind = None
            if learned_uncertainty is not None:
                expected = expected_uncertainty(paths, learned_uncertainty, psd)
                blind = predict(paths, taps, psd, uncertainty=expected)
            for place, index in enumerate(chunk):
                one = score(measurements.pairs[index], taps[place : place + 1])[0]
                rows.append(
                    {
                        **labels,
                        **_case(measurements, index),
                        "method": design.method,
                        "k": design.n_updates,
                        "profile": design.profile,
                        **_figures(one),
                        **_predicted(prediction, blind, place),
                    }
                )
    return rows


def _case(measurements: Measurements, index: int) -> Row:
    pair = measurements.pairs[index]
    return {
        "dataset": measurements.dataset.name,
        "simulated": measurements.dataset.is_simulated or measurements.noise.is_simulated,
        "window": measurements.window,
        "listener": pair.listener,
        "ear": pair.ear,
        "condition": pair.condition,
        "fit": pair.fit,
        "variant": json.dumps(pair.variant, sort_keys=True),
    }


def _figures(score: Score) -> Row:
    values = asdict(score)
    bands = values.pop("band_db")
    return values | {f"band_{nominal_hz(n):g}_db": value for n, value in zip(SCORED_BANDS, bands, strict=True)}


def _predicted(prediction: Prediction, blind: Prediction | None, place: int) -> Row:
    row = {
        "predicted_noise_reduction_db": prediction.mean_noise_reduction_db[place].item(),
        "predicted_amplification_db": prediction.amplification_db[place].item(),
    }
    if blind is not None:
        row["predicted_blind_noise_reduction_db"] = blind.mean_noise_reduction_db[place].item()
    return row

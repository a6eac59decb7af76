"""Evaluation: every method on the same cases, one row for each design and ear.

A design sees the estimates, its score the true paths. The exceptions are the adaptive references, which adapt on
the true paths; their rows say so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from synthesis.estimate_uncertainty import uncertainty_given
from synthesis.gauss_newton import refine
from synthesis.noise_reduction import predict
from synthesis.octave_bands import nominal_hz
from synthesis.paths import AcousticPaths, ControlFilter
from synthesis.profiles import PROFILES, profile_for_resolution
from synthesis.synthesizer import DEFAULT_MAX_GAIN_DB
from training.baselines.adaptive import WeightedFxLms
from training.measurements import Measurements
from training.scoring import SCORED_BANDS, START_SAMPLES, Score, TimeDomainScore

Row = dict[str, Any]

EARS_AT_ONCE = 8


class Method(Protocol):
    """A way from paths to a control filter."""

    @property
    def name(self) -> str:
        """As rows and reports call it."""
        ...

    def design(self, paths: AcousticPaths) -> ControlFilter:
        """Taps [batch, 2048] from estimated paths; from the true ones where `uses_true_paths` is set."""
        ...


@dataclass(frozen=True)
class Updates:
    """A profile of Gauss-Newton updates and the numbers of them that get a row.

    `fast` becomes `fine` where the calibration's window asks for it (`profile_for_resolution`).
    """

    profile: str
    n_updates: tuple[int, ...]

    @property
    def max_gain_db(self) -> float | None:
        """The ceiling belongs to the `fast` profile; the paper's has none."""
        return DEFAULT_MAX_GAIN_DB if self.profile == "fast" else None


@dataclass(frozen=True)
class Design:
    """Taps [batch, 2048] after n_updates of a profile ("" at the start)."""

    taps: Tensor
    n_updates: int
    profile: str


def designs(
    method: Method, paths: AcousticPaths, window: int, reference_psd: Tensor, updates: Iterable[Updates]
) -> Iterator[Design]:
    """The method's own filter, then each refinement of it. window: samples of the calibration's."""
    start = method.design(paths).taps
    yield Design(start, 0, "")
    for each in updates:
        taps = start
        # One update at a time: the schedule has no memory, so k single updates are one call of k.
        for n_updates in range(1, max(each.n_updates) + 1):
            taps = refine(
                paths,
                taps,
                reference_psd,
                n_updates=1,
                profile=PROFILES[profile_for_resolution(each.profile, window)],
                max_gain_db=each.max_gain_db,
            ).taps
            if n_updates in each.n_updates:
                yield Design(taps, n_updates, each.profile)


@torch.no_grad()
def evaluate(
    measurements: Measurements,
    score: TimeDomainScore,
    method: Method,
    updates: Iterable[Updates],
    indices: list[int],
    labels: Row | None = None,
    band_uncertainty: Tensor | None = None,
) -> list[Row]:
    """One row for each design of the method on each of the measurements' pairs `indices`.

    labels: columns that all rows share (split, seed, support). band_uncertainty: a model's, [2, 31]; with it each
    row also states what would be predicted without a coherence.
    """
    rows: list[Row] = []
    psd = measurements.reference_psd.float()
    sees_truth = getattr(method, "uses_true_paths", False)
    for start in range(0, len(indices), EARS_AT_ONCE):
        chunk = indices[start : start + EARS_AT_ONCE]
        paths = measurements.paths(chunk)
        coherence = measurements.estimates.coherence[chunk].float()
        seen = measurements.true_paths(chunk) if sees_truth else paths
        made = list(designs(method, seen, measurements.window, psd, updates))
        predictions = [_predictions(paths, each.taps, psd, coherence, band_uncertainty) for each in made]
        for place, index in enumerate(chunk):
            scores = score(measurements.pairs[index], torch.stack([each.taps[place] for each in made]))
            for design, predicted, one in zip(made, predictions, scores, strict=True):
                rows.append(
                    {
                        **(labels or {}),
                        **case_columns(measurements, index),
                        "method": method.name,
                        "k": design.n_updates,
                        "profile": design.profile,
                        "paths": "true" if sees_truth else "estimated",
                        **figure_columns(one),
                        **{name: each[place].item() for name, each in predicted.items()},
                    }
                )
    return rows


@torch.no_grad()
def evaluate_weighted_fxlms(measurements: Measurements, score: TimeDomainScore, listener: str) -> list[Row]:
    """Rows of a listener's original measurements, with a filter for each noise: for the frequency figure alone.

    The noises' first 6.5 s are adapted on; the scores begin there.
    """
    rows: list[Row] = []
    method = WeightedFxLms()
    for index in measurements.indices((listener,)):
        if measurements.pairs[index].condition != "original":
            continue
        heard = measurements.noise.signals[:, :START_SAMPLES]
        taps = method.design_for(measurements.true_paths([index]), heard)
        labels = {"method": method.name, "k": 0, "profile": "", "paths": "true"}
        one = score(measurements.pairs[index], taps)[0]
        rows.append({**case_columns(measurements, index), **labels, **figure_columns(one)})
    return rows


def case_columns(measurements: Measurements, index: int) -> Row:
    """What a row says of its case."""
    pair = measurements.pairs[index]
    return {
        "dataset": measurements.dataset.name,
        "simulated": measurements.dataset.is_simulated or measurements.noise.is_simulated,
        "window": measurements.window,
        "regularisation": measurements.regularisation,
        "listener": pair.listener,
        "ear": pair.place,
        "condition": pair.condition,
        "fit": pair.fit,
        "variant": json.dumps(pair.variant, sort_keys=True),
        **({} if measurements.probe is None else {"probe": measurements.probe, "snr_db": measurements.snr_db}),
    }


def figure_columns(score: Score) -> Row:
    """What a row says of its filter."""
    values = asdict(score)
    bands = values.pop("band_db")
    return values | {f"band_{nominal_hz(n):g}_db": value for n, value in zip(SCORED_BANDS, bands, strict=True)}


def _predictions(
    paths: AcousticPaths, taps: Tensor, psd: Tensor, coherence: Tensor, band_uncertainty: Tensor | None
) -> dict[str, Tensor]:
    """Predicted figures by column: with the coherence and, from a model's uncertainty, without."""
    if band_uncertainty is None:
        informed = predict(paths, taps, psd, coherence=coherence)
    else:
        informed = predict(paths, taps, psd, uncertainty=uncertainty_given(paths, coherence, band_uncertainty, psd))
    columns = {
        "predicted_noise_reduction_db": informed.mean_noise_reduction_db,
        "predicted_amplification_db": informed.amplification_db,
    }
    if band_uncertainty is not None:
        blind = predict(paths, taps, psd, uncertainty=uncertainty_given(paths, None, band_uncertainty, psd))
        columns["predicted_blind_noise_reduction_db"] = blind.mean_noise_reduction_db
    return columns

"""What latency and a loop through the feedback path do: rows beside those of several conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from model_store.store import BUNDLED_ROOT, ModelStore
from service.engine.resident_model import ResidentModel
from synthesis.design import design_all, predict_all
from synthesis.errors import answer_or_raise
from synthesis.feedback import judge_loop, loop_gain, worst_loop
from synthesis.gauss_newton import refine
from synthesis.paths import AcousticPaths
from synthesis.profiles import FINE
from synthesis.types import Design, DesignOptions, Fallback, Float32, Paths, Problem
from training.datasets.noise import NoiseSet
from training.datasets.path_pairs import PathPair
from training.measurements import priors_of_others
from training.simulated_calibration import simulate_calibration

LATENCIES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
METHODS = ("prime", "fir_wiener", "wmmse")
RISK_WEIGHTS = (0.6, 1.0, 2.0)
"""In place of the 0.4 of the profile."""
SNR_DB = 40.0
Row = dict[str, object]


def late_designs(persons: Sequence[PathPair], noise: NoiseSet, n_updates: int) -> Iterator[Row]:
    """What the service and each of its methods answer at each latency, and updates that weigh the loudest bands
    more; ears calibrated under the other persons' prior, scored on true paths."""
    store = ModelStore(BUNDLED_ROOT)
    model = ResidentModel.load(store, store.resolve("default"), "cpu", Fallback())
    for side in ("left", "right"):
        own = [pair for pair in persons if pair.ear == side]
        measured = list(_calibrated(own, persons, noise))
        for latency in LATENCIES:
            ears = [replace(ear, latency_samples=latency) for ear in measured]
            truths = [replace(_truth(pair), latency_samples=latency) for pair in own]
            for name, taps in _late(model, ears, n_updates):
                scores = [answer_or_raise(each) for each in predict_all(truths, taps, model.model, is_true=True)]
                louder = np.maximum([-each.noise_reduction_db.min() for each in scores], 0)
                yield {
                    "ear": side,
                    "case": "latency",
                    "given": name,
                    "latency_samples": latency,
                    "noise_reduction_db": np.mean([each.mean_noise_reduction_db for each in scores]),
                    "louder_db": louder.mean(),
                    "loudest_db": louder.max(),
                }


def _late(model: ResidentModel, ears: Sequence[Problem], n_updates: int) -> Iterator[tuple[str, list[Float32]]]:
    """Name and taps for each ear."""
    options = DesignOptions(n_updates=n_updates, profile=FINE.name)
    yield "service", [_taps(each) for each in model.design(ears, options)]
    for method in METHODS:
        found = design_all(ears, replace(options, method=method), model.model)
        yield method, [answer_or_raise(each).taps for each in found]
    starts = [answer_or_raise(each).taps for each in design_all(ears, replace(options, n_updates=0), model.model)]
    for weight in RISK_WEIGHTS:
        yield f"prime, risk weight {weight:g}", _refined(model, ears, starts, n_updates, weight)


def _calibrated(own: Sequence[PathPair], persons: Sequence[PathPair], noise: NoiseSet) -> Iterator[Problem]:
    priors = priors_of_others(persons)
    for pair in own:
        found = simulate_calibration([pair], noise, snr_db=SNR_DB, prior=priors[pair.listener])
        yield Problem((Paths(*(each[0].numpy().astype(np.float32) for each in found.values()[:3])),))


def _truth(pair: PathPair) -> Problem:
    return Problem((Paths(pair.primary.astype(np.float32), pair.secondary.astype(np.float32)),))


def _taps(answer: object) -> Float32:
    assert isinstance(answer, Design)
    return answer.taps


def _refined(
    model: ResidentModel, ears: Sequence[Problem], starts: Sequence[Float32], n_updates: int, risk_weight: float
) -> list[Float32]:
    """The starts after updates whose worst-band risk weighs more."""
    primary, secondary = (
        torch.from_numpy(np.stack([getattr(ear.conditions[0], name) for ear in ears]))
        for name in ("primary", "secondary")
    )
    paths = AcousticPaths.from_impulse_responses(primary, secondary)
    bins = torch.arange(paths.secondary.shape[-1])
    delay = torch.polar(torch.ones(len(bins)), -2 * torch.pi * ears[0].latency_samples / paths.n_fft * bins)
    found = refine(
        AcousticPaths(paths.primary, paths.secondary * delay),
        torch.from_numpy(np.stack(starts)),
        torch.from_numpy(model.parameters.reference_psd),
        n_updates=n_updates,
        profile=replace(FINE, risk_weight=risk_weight),
    )
    return list(found.taps.numpy())


def looped_designs(cases: Sequence[PathPair], n_updates: int) -> Iterator[Row]:
    """The worst of the loops that a filter for one way of wearing closes in all of them."""
    store = ModelStore(BUNDLED_ROOT)
    model = ResidentModel.load(store, store.resolve("default"), "cpu", Fallback()).model
    for side in ("left", "right"):
        own = [pair for pair in cases if pair.ear == side]
        feedbacks = [pair.feedback.astype(np.float32) for pair in own if pair.feedback is not None]
        designs = design_all(
            [_truth(pair) for pair in own], DesignOptions(n_updates=n_updates, profile=FINE.name), model
        )
        for pair, found in zip(own, designs, strict=True):
            design = answer_or_raise(found)
            loop = worst_loop([judge_loop(loop_gain(design.taps, each)) for each in feedbacks])
            yield {
                "ear": side,
                "case": "loop",
                "given": f"{pair.label}, {pair.fit}",
                "stable": loop.stable,
                "gain_margin_db": loop.gain_margin_db,
                "phase_margin_deg": loop.phase_margin_deg,
                "peak_db": loop.peak_db,
            }

"""Measure how many conditions a filter needs: `python -m studies.wearing --data DIR --noise DIR --out FILE`.

Filters of the bundled model (k = 3, profile `fine`) for a dummy head's directions and for ways of wearing an
earphone, designed from true paths and scored on the true paths of conditions that no design knew; leave-one-out
predictions from calibrations at 40 dB SNR; single ears at several latencies; loops through the feedback path.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.method.design import design, design_all, predict_all
from prime_anc.method.errors import answer_or_raise
from prime_anc.method.loop import judge_loop, loop_gain, worst_loop
from prime_anc.method.types import Design, DesignOptions, Float32, Model, Problem
from studies import Row, problem, run
from training.datasets.noise import NoiseSet
from training.datasets.pandar import read_directions, read_handling
from training.datasets.path_pairs import DatasetError, PathDataset, PathPair
from training.measurements import priors_of_others
from training.simulated_calibration import simulate_calibration

OPTIONS = DesignOptions("prime", 3, "fine")
MODEL = Model.on("cpu", ModelStore(BUNDLED_ROOT).load("bose-qc20").parameters)
N_GIVEN = (1, 2, 3, 4, 6, 8, 12)
SHARES = {"all around": 1.0, "front half": 0.5, "one quarter": 0.25}  # shares of the circle
N_STARTS = 6
LATENCIES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
SNR_DB = 40.0
PRESSED, CLOSED = "101", "102"


def true_paths(pair: PathPair, latency_samples: float = 0.0) -> Problem:
    """Return the true paths of a pair."""
    return problem(pair.primary, pair.secondary, latency_samples=latency_samples)


def joint(problems: Sequence[Problem], leave_one_out: bool = False) -> Design:
    """Design one filter for the conditions of all problems."""
    posed = Problem(tuple(item.conditions[0] for item in problems))
    return design(posed, replace(OPTIONS, leave_one_out=leave_one_out), MODEL)


def score(taps: Float32, pairs: Sequence[PathPair]) -> np.ndarray:
    """Compute the mean noise reduction on the pairs' true paths, dB."""
    found = predict_all([true_paths(pair) for pair in pairs], [taps] * len(pairs), MODEL, is_true=True)
    return np.array([answer_or_raise(item).mean_noise_reduction_db for item in found])


def spread(start: int, n_given: int, n_all: int, share: float = 1.0) -> list[int]:
    """Return indices of directions at equal steps over a share of the circle."""
    return [(start + round(place * share * n_all / n_given)) % n_all for place in range(n_given)]


def left_out(taps: Float32, given: list[int], directions: Sequence[PathPair]) -> Row:
    """Compute the noise reduction in the directions that were not given."""
    scores = np.delete(score(taps, directions), given)
    return {"left_mean_db": scores.mean(), "left_worst_db": scores.min()}


def of_directions(directions: Sequence[PathPair]) -> Iterator[Row]:
    """Yield rows by number and place of the directions."""
    n_all = len(directions)
    choices = [(n, "all around") for n in N_GIVEN] + [(4, name) for name in list(SHARES)[1:]]
    for n_given, name in choices:
        n_different = n_all // n_given if name == "all around" else n_all
        for start in np.unique(np.linspace(0, n_different, N_STARTS, endpoint=False).astype(int)).tolist():
            given = spread(start, n_given, n_all, SHARES[name])
            taps = joint([true_paths(directions[n]) for n in given]).taps
            yield {"case": "directions", "given": f"{n_given} {name}", **left_out(taps, given, directions)}


def of_predictions(directions: Sequence[PathPair], noise: NoiseSet) -> Iterator[Row]:
    """Compare leave-one-out predictions from calibrations with the effect of those filters."""
    for n_given in (3, 4, 6):
        pairs = [directions[n] for n in spread(0, n_given, len(directions))]
        found = simulate_calibration(pairs, noise, snr_db=SNR_DB)
        values = (found.primary.numpy(), found.secondary.numpy(), found.coherence.numpy())
        measured = [problem(*(value[n] for value in values)) for n in range(n_given)]
        left_out_predictions = [
            condition.left_out for condition in joint(measured, leave_one_out=True).prediction.conditions
        ]
        predicted_db = np.array([item.mean_noise_reduction_db for item in left_out_predictions if item is not None])
        done = [score(joint(measured[:n] + measured[n + 1 :]).taps, [pair])[0] for n, pair in enumerate(pairs)]
        row = {
            "predicted_db": predicted_db.mean(),
            "scored_db": np.mean(done),
            "error_db": np.abs(predicted_db - done).mean(),
        }
        yield {"case": "leave one out", "given": f"{n_given} all around", **row}


def of_wearing(cases: dict[str, PathPair]) -> Iterator[Row]:
    """Yield rows for closed, pressed, and both, with the loops that the filters close in all ways of wearing."""
    worn = [cases[CLOSED], cases[PRESSED]]
    for name, pairs in {"closed": worn[:1], "pressed": worn[1:], "closed and pressed": worn}.items():
        scores = score(joint([true_paths(pair) for pair in pairs]).taps, worn)
        yield {"case": "worn", "given": name, "closed_db": scores[0], "pressed_db": scores[1]}
    feedbacks = [case.feedback.astype(np.float32) for case in cases.values() if case.feedback is not None]
    for case in cases.values():
        taps = joint([true_paths(case)]).taps
        loop = worst_loop([judge_loop(loop_gain(taps, feedback)) for feedback in feedbacks])
        yield {"case": "loop", "given": f"{case.label}, {case.fit}", "gain_margin_db": loop.gain_margin_db}


def of_latency(pairs: Sequence[PathPair], persons: Sequence[PathPair], noise: NoiseSet) -> Iterator[Row]:
    """Calibrate single ears under the other persons' prior, by method and latency."""
    priors, ears = priors_of_others(persons), []
    for pair in pairs:
        found = simulate_calibration([pair], noise, snr_db=SNR_DB, prior=priors[pair.listener])
        values = (found.primary, found.secondary, found.coherence)
        ears.append(problem(*(value[0].numpy() for value in values)))
    for latency in LATENCIES:
        late = [replace(ear, latency_samples=latency) for ear in ears]
        truths = [true_paths(pair, latency) for pair in pairs]
        for method in ("prime", "fir_wiener", "wmmse"):
            made = design_all(late, replace(OPTIONS, method=method), MODEL)
            scores = predict_all(truths, [answer_or_raise(item).taps for item in made], MODEL, is_true=True)
            reductions = [answer_or_raise(item).mean_noise_reduction_db for item in scores]
            louder = [max(-answer_or_raise(item).noise_reduction_db.min(), 0) for item in scores]
            row = {
                "noise_reduction_db": np.mean(reductions),
                "louder_db": np.mean(louder),
                "loudest_db": max(louder),
            }
            yield {"case": "latency", "given": f"{method}, {latency:g} samples", **row}


def study(dataset: PathDataset, noise: NoiseSet, request: argparse.Namespace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compute all rows, and their means over starts."""
    if request.data is None:
        raise DatasetError("--data: directions and handling are measured; give a folder of the PANDAR database")
    rows: list[Row] = []
    for side in ("left",) if request.quick else ("left", "right"):
        directions, handled, ears = (
            [pair for pair in item.pairs if pair.ear == side]
            for item in (read_directions(request.data), read_handling(request.data), dataset)
        )
        found = [*of_wearing({item.label: item for item in handled}), *of_predictions(directions, noise)]
        if not request.quick:
            found += [*of_directions(directions), *of_latency(ears, dataset.pairs, noise)]
        rows += [{"ear": side} | row for row in found]
    table = pd.DataFrame(rows).round(2)
    return table, table.groupby(["case", "given", "ear"], sort=False).mean()


if __name__ == "__main__":
    sys.exit(run(__doc__, study))

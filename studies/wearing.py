"""Measure how many conditions a filter needs.

Filters of the bundled model (k = 3, profile `fine`) for a dummy head's directions and for ways of wearing an
earphone, designed from true paths and scored on the true paths of conditions that no design knew; single ears at
several latencies, from calibrations at 40 dB SNR; loops through the feedback path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from prime_anc.method.design import design, design_all
from prime_anc.method.errors import answer_or_raise
from prime_anc.method.loops.loop import judge_loop, loop_gain, worst_loop
from prime_anc.method.types import Design, DesignOptions, Float32, Model, Problem
from studies import Request, Row, Work, bundled, problem, scored, true_paths
from training.datasets.noise import NoiseSet
from training.datasets.pandar import read_directions, read_handling
from training.datasets.path_pairs import PathPair
from training.measurements import priors_of_others
from training.simulated_calibration import simulate_calibration

OPTIONS = DesignOptions("prime", 3, "fine")
MODEL = Model.on("cpu", bundled("bose-qc20"))
N_GIVEN = (1, 2, 3, 4, 6, 8, 12)
SHARES = {"all around": 1.0, "front half": 0.5, "one quarter": 0.25}  # shares of the circle
N_STARTS = 6
LATENCIES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0)
SNR_DB = 40.0
PRESSED, CLOSED = "101", "102"


def joint(pairs: Sequence[PathPair]) -> Design:
    """Design one filter for the true paths of all pairs."""
    return design(Problem(tuple(true_paths(pair).conditions[0] for pair in pairs)), OPTIONS, MODEL)


def score(taps: Float32, pairs: Sequence[PathPair]) -> np.ndarray:
    """Compute the mean noise reduction on the pairs' true paths, dB."""
    return np.array([scored(true_paths(pair), taps, MODEL).mean_noise_reduction_db for pair in pairs])


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
            taps = joint([directions[n] for n in given]).taps
            yield {"kind": "directions", "given": f"{n_given} {name}", **left_out(taps, given, directions)}


def of_wearing(cases: dict[str, PathPair]) -> Iterator[Row]:
    """Yield rows for closed, pressed, and both, with the loops that the filters close in all ways of wearing."""
    worn = [cases[CLOSED], cases[PRESSED]]
    for name, pairs in {"closed": worn[:1], "pressed": worn[1:], "closed and pressed": worn}.items():
        scores = score(joint(pairs).taps, worn)
        yield {"kind": "worn", "given": name, "closed_db": scores[0], "pressed_db": scores[1]}
    feedbacks = [case.feedback.astype(np.float32) for case in cases.values() if case.feedback is not None]
    for case in cases.values():
        taps = joint([case]).taps
        loop = worst_loop([judge_loop(loop_gain(taps, feedback)) for feedback in feedbacks])
        yield {"kind": "loop", "given": f"{case.label}, {case.fit}", "gain_margin_db": loop.gain_margin_db}


def of_latency(pairs: Sequence[PathPair], persons: Sequence[PathPair], noise: NoiseSet) -> Iterator[Row]:
    """Calibrate single ears under the other persons' prior, by method and latency."""
    priors, ears = priors_of_others(persons), []
    for pair in pairs:
        found = simulate_calibration([pair], noise, snr_db=SNR_DB, priors=priors)
        values = (found.primary, found.secondary, found.coherence)
        ears.append(problem(*(value[0].numpy() for value in values)))
    for latency in LATENCIES:
        late = [replace(ear, latency_samples=latency) for ear in ears]
        truths = [true_paths(pair, latency) for pair in pairs]
        for method in ("prime", "fir_wiener", "wmmse"):
            made = design_all(late, replace(OPTIONS, method=method), MODEL)
            both = zip(truths, made, strict=True)
            scores = [scored(truth, answer_or_raise(item).taps, MODEL) for truth, item in both]
            louder = [max(-item.noise_reduction_db.min(), 0) for item in scores]
            row = {
                "noise_reduction_db": np.mean([item.mean_noise_reduction_db for item in scores]),
                "louder_db": np.mean(louder),
                "loudest_db": max(louder),
            }
            yield {"kind": "latency", "given": f"{method}, {latency:g} samples", **row}


def rows_of(part: Callable[..., Iterator[Row]], side: str, *inputs: object) -> list[Row]:
    """Return the rows of one part, of one ear."""
    return [{"ear": side} | row for row in part(*inputs)]


def cases(request: Request) -> dict[str, Work]:
    """Return the parts of both ears."""
    folder, works = request.data, dict[str, Work]()
    for side in ("left", "right"):
        directions, handled, ears = (
            [pair for pair in item.pairs if pair.ear == side]
            for item in (read_directions(folder), read_handling(folder), request.dataset)
        )
        works[f"wearing, {side}"] = partial(rows_of, of_wearing, side, {item.label: item for item in handled})
        works[f"directions, {side}"] = partial(rows_of, of_directions, side, directions)
        works[f"latency, {side}"] = partial(rows_of, of_latency, side, ears, request.dataset.pairs, request.noise)
    return works


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Average over starts."""
    return rows.groupby(["kind", "given", "ear"], sort=False).mean(numeric_only=True)

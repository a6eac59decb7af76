"""Measure a controller beside the filter.

Filters of the bundled model and controllers of eight sections, for persons' ears at several latencies of the chip, and
one controller for all, designed and scored on true paths. Changes by wearing, and the controller for all, are learnt
from other persons. There is a row per case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pandas as pd

from prime_anc.hardware.hybrid import design_for_all, design_hybrid, limited
from prime_anc.method.bands import NR_BANDS, columns
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.design import design, predict_all
from prime_anc.method.errors import answer_or_raise
from prime_anc.method.loops.controller import Controller, judge
from prime_anc.method.support.wearing import WearingChange
from prime_anc.method.types import DesignOptions, Fallback, Float32, Model, Problem
from prime_anc.options import ControllerFields
from studies import Request, Row, Work, bundled, true_paths
from training.datasets.pandar import read_handling
from training.datasets.path_pairs import PathPair
from training.measurements import changes

OPTIONS, PARAMETERS = DesignOptions("prime", 3, "fine"), bundled("bose-qc20")
LATENCIES, N_FOLDS = (0, 2, 4), 5
LEVELS_DB = (-3.0, 0.0, 3.0)
WAYS = ("pressed", "open")  # `loose` is of persons
LOW_BANDS = columns(tuple(range(17, 25)))  # 50 to 250 Hz


def model_with(wearing: Sequence[WearingChange]) -> Model:
    """Return the bundled model with other changes by wearing."""
    return Model.on("cpu", replace(PARAMETERS, wearing=tuple(wearing)))


def options_at(latency: float) -> ControllerFields:
    """Return the options of a controller whose chip is as late as the filter's."""
    return ControllerFields(latency_us=1e6 * latency / SAMPLE_RATE_HZ)


def bands_db(posed: Problem, taps: Float32, controller: Controller | None, level_db: float = 0.0) -> Float32:
    """Compute the noise reduction on true paths, [31], with the secondary path at another level."""
    (paths,) = posed.conditions
    louder = replace(paths, secondary=(paths.secondary * 10 ** (level_db / 20)).real.astype(np.float32))
    changed = replace(posed, conditions=(louder,), controller=controller)
    return answer_or_raise(predict_all([changed], [taps], MODEL, is_true=True)[0]).band_reduction_db


def mean_db(bands: Float32) -> float:
    """Average from 50 Hz to 5 kHz."""
    return float(bands[columns(NR_BANDS)].mean())


def scores(posed: Problem, taps: Float32, controller: Controller) -> Row:
    """Score filter and controller on one ear, beside the filter alone."""
    alone = design(posed, OPTIONS, MODEL, Fallback()).taps
    both, feedback = bands_db(posed, taps, controller), bands_db(posed, np.zeros_like(taps), controller)
    feedforward = bands_db(posed, alone, None)
    row: Row = {"w_db": mean_db(feedforward), "k_db": mean_db(feedback), "both_db": mean_db(both)}
    row |= {"k_low_db": float(feedback[LOW_BANDS].mean()), "at_20_hz_db": float(both[0])}
    row |= {"worst_db": float(both.min()), "w_worst_db": float(feedforward.min())}
    for level in (3.0, -3.0):
        row[f"w_{level:+g}_db"] = mean_db(bands_db(posed, alone, None, level))
        row[f"both_{level:+g}_db"] = mean_db(bands_db(posed, taps, controller, level))
    return row


class Cases:
    """Measured ears and handling cases."""

    def __init__(self, request: Request) -> None:
        self.persons, self.learnt = request.dataset.pairs, cache(self._learnt)
        self.handled = read_handling(request.data).pairs

    def _learnt(self, left_out: tuple[str, ...] = (), ear: str = "") -> tuple[WearingChange, ...]:
        others = [pair for pair in self.persons if pair.listener not in left_out]
        return changes(others, [pair for pair in self.handled if ear in ("", pair.ear)])

    def is_stable(self, controller: Controller, pair: PathPair) -> bool:
        """Return whether the loop is stable as measured, and worn as the handling of either ear, at all levels."""
        own = np.fft.rfft(pair.secondary, DESIGN_N_FFT)
        tried = [change for ear in ("left", "right") for change in self.learnt((), ear) if change.name in WAYS]
        plants = [own, *(change.applied(own) for change in tried)]
        return all(judge(controller, 10 ** (level / 20) * plant).stable for plant in plants for level in LEVELS_DB)

    def of_ear(self, pair: PathPair, latency: int) -> list[Row]:
        """Design filter and controller for an ear."""
        posed = true_paths(pair, latency)
        model = model_with(self.learnt((pair.listener,)))
        found = design_hybrid(posed, OPTIONS, model, options_at(latency), fallback=Fallback())
        row = scores(posed, found.design.taps, found.controller)
        return [row | {"stable": self.is_stable(found.controller, pair)}]

    def for_all(self, fold: int, latency: int) -> list[Row]:
        """Design one controller for other persons, and a filter around it for those left out."""
        left_out = tuple(sorted({pair.listener for pair in self.persons})[fold::N_FOLDS])
        model = model_with(self.learnt(left_out))
        posed = [(pair, true_paths(pair, latency)) for pair in self.persons]
        others = [item for pair, item in posed if pair.listener not in left_out]
        controller, _ = design_for_all(others, OPTIONS, model, options_at(latency))
        rows = []
        for pair, item in posed:
            if pair.listener in left_out:
                taps = design(replace(limited(item), controller=controller), OPTIONS, model, Fallback()).taps
                rows.append(scores(item, taps, controller) | {"stable": self.is_stable(controller, pair)})
        return rows


def cases(request: Request) -> dict[str, Work]:
    """Return the cases of ears and of folds, at all latencies."""
    every, works = Cases(request), dict[str, Work]()
    for latency in LATENCIES:
        for pair in every.persons:
            works[f"ears, {latency} samples/{pair.name}"] = partial(every.of_ear, pair, latency)
        for fold in range(N_FOLDS):
            works[f"one controller, {latency} samples/{fold}"] = partial(every.for_all, fold, latency)
    return works


def table(rows: pd.DataFrame) -> pd.DataFrame:
    """Average over ears and folds."""
    kinds = rows["case"].str.split("/").str[0]
    return rows.assign(stable=rows.stable.astype(float)).groupby(kinds, sort=False).mean(numeric_only=True)


MODEL = model_with(())

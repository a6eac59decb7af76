"""Measure a controller beside the filter: `python -m studies.hybrid --data DIR --out FILE`.

Filters of the bundled model and controllers of eight sections, for persons' ears at several latencies of the chip, for
one controller for all, for directions and for ways of wearing, designed and scored on true paths. Changes by wearing,
and the controller for all, are learnt from other persons. Finished rows are kept in the file: the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

from hardware.hybrid import design_for_all, design_hybrid
from model_store.store import BUNDLED_ROOT, ModelStore
from studies import problem, run
from synthesis.bands import NR_BANDS, columns
from synthesis.controller import Controller, judge
from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from synthesis.design import Model, design, predict_all
from synthesis.errors import answer_or_raise
from synthesis.options import ControllerFields
from synthesis.types import DesignOptions, Fallback, Float32, Paths, Problem
from synthesis.wearing import WearingChange
from training.datasets.noise import NoiseSet
from training.datasets.pandar import read_directions, read_handling
from training.datasets.path_pairs import DatasetError, PathDataset, PathPair
from training.wearing import CLOSED, PRESSED, changes

Row = dict[str, object]
OPTIONS, PARAMETERS = DesignOptions(n_updates=3), ModelStore(BUNDLED_ROOT).load("bose-qc20").parameters
LATENCIES = (0, 2, 4)
N_FOLDS, N_STARTS = 5, 3
LEVELS_DB = (-3.0, 0.0, 3.0)
WAYS = ("pressed", "open")  # `loose` is of persons
LOW_BANDS = columns(tuple(range(17, 25)))  # 50 to 250 Hz


def model_without(wearing: Sequence[WearingChange]) -> Model:
    """Return the bundled model with other changes by wearing."""
    return Model.on("cpu", replace(PARAMETERS, wearing=tuple(wearing)))


def wanted(latency: float) -> ControllerFields:
    """Return the options of a controller whose chip is as late as the filter's."""
    return ControllerFields(latency_us=1e6 * latency / SAMPLE_RATE_HZ)


def bands_db(posed: Problem, taps: Float32, controller: Controller | None, level_db: float = 0.0) -> np.ndarray:
    """Compute the noise reduction on true paths, [31], with the secondary path at another level."""
    paths = posed.conditions[0]
    louder = replace(paths, secondary=(paths.secondary * 10 ** (level_db / 20)).astype(paths.secondary.dtype))
    changed = replace(posed, conditions=(louder,), controller=controller)
    return answer_or_raise(predict_all([changed], [taps], MODEL, is_true=True)[0]).band_reduction_db


def mean_db(bands: np.ndarray) -> float:
    """Average from 50 Hz to 5 kHz."""
    return float(bands[columns(NR_BANDS)].mean())


def is_stable(controller: Controller, secondary: np.ndarray, tried: Sequence[WearingChange]) -> bool:
    """Return whether the loop is stable as measured and worn otherwise, at all levels."""
    own = np.fft.rfft(secondary, DESIGN_N_FFT)
    plants = [own, *(change.applied(own) for change in tried)]
    return all(judge(controller, 10 ** (level / 20) * plant).stable for plant in plants for level in LEVELS_DB)


def scores(posed: Problem, taps: Float32, controller: Controller) -> Row:
    """Score filter and controller on one ear."""
    alone = design(posed, OPTIONS, MODEL, Fallback())
    silent = np.zeros_like(taps)
    both, feedback = bands_db(posed, taps, controller), bands_db(posed, silent, controller)
    row: Row = {
        "w_db": mean_db(bands_db(posed, alone.taps, None)),
        "k_db": mean_db(feedback),
        "both_db": mean_db(both),
    }
    row |= {
        "k_low_db": float(feedback[LOW_BANDS].mean()),
        "at_20_hz_db": float(both[0]),
        "worst_db": float(both.min()),
    }
    for level in (3.0, -3.0):
        row[f"w_{level:+g}_db"] = mean_db(bands_db(posed, alone.taps, None, level))
        row[f"both_{level:+g}_db"] = mean_db(bands_db(posed, taps, controller, level))
    return row


class Cases:
    """Measured ears and handling cases."""

    def __init__(self, dataset: PathDataset, request: argparse.Namespace) -> None:
        if request.data is None:
            raise DatasetError("--data: handling is measured; give a folder of the PANDAR database")
        self.persons, self.folder = dataset.pairs, request.data
        self.handled = read_handling(request.data).pairs
        self.learnt = cache(self._learnt)

    def _learnt(self, left_out: tuple[str, ...], ear: str = "") -> tuple[WearingChange, ...]:
        others = [pair for pair in self.persons if pair.listener not in left_out]
        return changes(others, [pair for pair in self.handled if ear in ("", pair.ear)])

    def tried(self) -> list[WearingChange]:
        """Return the changes of single ears, on which stability is tried."""
        return [change for ear in ("left", "right") for change in self.learnt((), ear) if change.name in WAYS]

    def of_ear(self, pair: PathPair, latency: int) -> Row:
        """Design filter and controller for an ear."""
        posed = problem(pair.primary, pair.secondary, latency_samples=latency)
        model = model_without(self.learnt((pair.listener,)))
        found = design_hybrid(posed, OPTIONS, model, wanted(latency), fallback=Fallback())
        row = scores(posed, found.design.taps, found.controller)
        return row | {
            "stable": is_stable(found.controller, pair.secondary, self.tried()),
            "reported": found.design.loop.stable,
        }

    def for_all(self, fold: int, latency: int) -> list[Row]:
        """Design one controller for other persons, and a filter around it for those left out."""
        listeners = sorted({pair.listener for pair in self.persons})
        left_out = tuple(listeners[fold::N_FOLDS])
        model = model_without(self.learnt(left_out))
        others = [pair for pair in self.persons if pair.listener not in left_out]
        posed = [problem(pair.primary, pair.secondary, latency_samples=latency) for pair in others]
        controller = design_for_all(posed, OPTIONS, model, wanted(latency))
        rows = []
        for pair in self.persons:
            if pair.listener in left_out:
                own = problem(pair.primary, pair.secondary, latency_samples=latency)
                taps = design(replace(own, controller=controller), OPTIONS, model, Fallback()).taps
                stable = is_stable(controller, pair.secondary, self.tried())
                rows.append({"ear": pair.name} | scores(own, taps, controller) | {"stable": stable})
        return rows

    def joint(self, given: Sequence[PathPair], scored: Sequence[PathPair]) -> Row:
        """Design for several conditions, and score in others."""
        posed = Problem(tuple(problem(pair.primary, pair.secondary).conditions[0] for pair in given))
        own = np.fft.rfft(given[0].secondary, DESIGN_N_FFT)
        worn = [change.applied(own).astype(np.complex64) for change in self.learnt(()) if change.name in WAYS]
        only = [Paths(np.ones(1, np.float32), path) for path in worn]
        found = design_hybrid(posed, OPTIONS, MODEL, ControllerFields(), stability_only=only)
        alone = design(posed, OPTIONS, MODEL)
        each = [problem(pair.primary, pair.secondary) for pair in scored]
        both = [mean_db(bands_db(item, found.design.taps, found.controller)) for item in each]
        single = [mean_db(bands_db(item, alone.taps, None)) for item in each]
        return {
            "w_db": np.mean(single),
            "w_worst": min(single),
            "both_db": np.mean(both),
            "both_worst": min(both),
            "stable": found.design.loop.stable,
        }

    def all(self) -> Iterator[tuple[str, Callable[[], Row | list[Row]]]]:
        """Yield names of the cases, and what computes them."""
        for latency in LATENCIES:
            for pair in self.persons:
                yield (
                    f"ears, {latency} samples/{pair.name}",
                    lambda pair=pair, latency=latency: self.of_ear(pair, latency),
                )
            for fold in range(N_FOLDS):
                yield (
                    f"one controller, {latency} samples/{fold}",
                    lambda fold=fold, latency=latency: self.for_all(fold, latency),
                )
        for ear in ("left", "right"):
            worn = [
                next(item for item in self.handled if (item.ear, item.fit) == (ear, fit))
                for fit in (CLOSED, PRESSED)
            ]
            for n, name in enumerate(("closed", "pressed")):
                yield f"joint, {ear}, {name}/0", lambda worn=worn, n=n: self.joint(worn, worn[n : n + 1])
            around = [pair for pair in read_directions(self.folder).pairs if pair.ear == ear]
            for n_given in (4, 1):
                for start in np.linspace(0, len(around) // n_given, N_STARTS, endpoint=False).astype(int).tolist():
                    given = [
                        around[(start + place * len(around) // n_given) % len(around)] for place in range(n_given)
                    ]
                    rest = [pair for pair in around if not any(pair is item for item in given)]
                    yield (
                        f"{n_given} directions, {ear}/{start}",
                        lambda given=given, rest=rest: self.joint(given, rest),
                    )


def study(dataset: PathDataset, _: NoiseSet, request: argparse.Namespace) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Compute the rows that the file lacks, and the means over ears, folds and starts."""
    table = pd.read_csv(request.out) if request.out.exists() else pd.DataFrame({"name": []})
    for name, compute in Cases(dataset, request).all():
        if name in set(table.name) or (request.quick and "/person-01/left" not in name):
            continue
        found = compute()
        rows = found if isinstance(found, list) else [found]
        table = pd.concat([table, pd.DataFrame([{"name": name} | row for row in rows]).round(3)], ignore_index=True)
        table.to_csv(request.out, index=False)
        print(
            name, {key: value for key, value in rows[0].items() if key in ("w_db", "both_db", "stable")}, flush=True
        )
    return table, table.assign(case=table.name.str.split("/").str[0]).groupby("case", sort=False).mean(
        numeric_only=True
    )


MODEL = model_without(())
if __name__ == "__main__":
    sys.exit(run(__doc__, study))

"""Studies behind claims of the pages, which `studies.results` runs.

A study is a module with `cases`, each a function that returns rows, and the `table` of all rows. Rows name their case
and the commit that computed them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from numpy.typing import NDArray

from model_store.store import BUNDLED_ROOT, ModelStore
from prime_anc.measure.calibration import Calibration
from prime_anc.method.design import predict_all
from prime_anc.method.errors import answer_or_raise
from prime_anc.method.profiles import FAST
from prime_anc.method.types import DesignOptions, Float32, Model, ModelParameters, Paths, Prediction, Problem
from prime_anc.options import Method
from prime_anc.tasks.problem import resolved_profile
from training.datasets.noise import NoiseSet
from training.datasets.path_pairs import PathDataset, PathPair
from training.machine import commit
from training.rows import replacing

Row = dict[str, object]
Work = Callable[[], list[Row]]


@dataclass(frozen=True)
class Request:
    """What a study is computed on."""

    dataset: PathDataset
    noise: NoiseSet
    # Folder of the PANDAR database.
    data: Path
    # Folder of other devices' measured pairs; None without any.
    foreign: Path | None = None


def bundled(name: str) -> ModelParameters:
    """Return a bundled model's parameters."""
    return ModelStore(BUNDLED_ROOT).load(name).parameters


def problem(*paths: NDArray[np.floating], latency_samples: float = 0.0) -> Problem:
    """Pose the design for one condition: its primary path, its secondary path and, if measured, the coherence."""
    return Problem((Paths(*(path.astype(np.float32) for path in paths)),), latency_samples=latency_samples)


def true_paths(pair: PathPair, latency_samples: float = 0.0) -> Problem:
    """Pose the design for the true paths of a pair."""
    return problem(pair.primary, pair.secondary, latency_samples=latency_samples)


def served(problem: Problem, k: int, method: Method = "prime") -> DesignOptions:
    """Return the options with which the service designs for a problem, with k updates."""
    paths = [path for condition in problem.conditions for path in (condition.primary, condition.secondary)]
    return DesignOptions(method, k, resolved_profile(FAST.name, paths))


def as_sent(calibration: Calibration) -> Problem:
    """Pose the design with all of `/calibrate`'s answer."""
    estimate = calibration.estimate
    (paths,) = problem(estimate.primary, estimate.secondary, estimate.coherence).conditions
    return Problem((replace(paths, uncertainty=calibration.uncertainty.astype(np.float32)),))


def scored(truth: Problem, taps: Float32, model: Model) -> Prediction:
    """Score a filter on true paths."""
    return answer_or_raise(predict_all([truth], [taps], model, is_true=True)[0])


def computed(cases: Mapping[str, Work], file: Path, n_workers: int) -> pd.DataFrame:
    """Return the rows of all cases; those that the file lacks are computed and added to it, case by case."""
    rows = pd.read_csv(file) if file.exists() else pd.DataFrame({"case": []})
    left = {name: work for name, work in cases.items() if name not in set(rows.case)}
    began = time.monotonic()
    named = delayed(lambda name, work: (name, work()))
    finished = Parallel(n_workers, return_as="generator_unordered")(named(*item) for item in left.items())
    for n, (name, found) in enumerate(finished, start=1):
        more = pd.DataFrame(found).round(3).assign(case=name, commit=commit())
        rows = pd.concat([rows, more], ignore_index=True) if len(rows) else more
        with replacing(file) as beside:
            rows.to_csv(beside, index=False)
        spent_s = time.monotonic() - began
        print(f"{name}: {n} of {len(left)}, {spent_s * (len(left) - n) / n / 60:.0f} min left", flush=True)
    return rows

"""Studies behind claims of the pages: scripts that write their rows and print their means."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from prime_anc.measure.calibration import Calibration
from prime_anc.measure.estimate import GainTake
from prime_anc.method.profiles import FAST
from prime_anc.method.types import DesignOptions, Paths, Problem
from prime_anc.options import Method
from prime_anc.tasks.problem import resolved_profile
from training.data import open_dataset
from training.datasets.mistakes import Real, Responses, Takes
from training.datasets.noise import NoiseSet, read_noise, simulated_noise
from training.datasets.path_pairs import DatasetError, PathDataset
from training.simulated_calibration import PROBE_GAIN

Row = dict[str, object]
# Returns the rows to keep and the table to print.
Study = Callable[[PathDataset, NoiseSet, argparse.Namespace], tuple[pd.DataFrame, pd.DataFrame]]


def problem(*paths: NDArray[np.floating], latency_samples: float = 0.0) -> Problem:
    """Pose the design for one condition: its primary path, its secondary path and, if measured, the coherence."""
    return Problem((Paths(*(path.astype(np.float32) for path in paths)),), latency_samples=latency_samples)


def served(problem: Problem, k: int, method: Method = "prime") -> DesignOptions:
    """Return the options with which the service designs for a problem, with k updates."""
    paths = [path for condition in problem.conditions for path in (condition.primary, condition.secondary)]
    return DesignOptions(method, k, resolved_profile(FAST.name, paths))


def as_sent(found: Calibration) -> Problem:
    """Pose the design with all of `/calibrate`'s answer."""
    known = found.uncertainty.astype(np.float32)
    (paths,) = problem(found.estimate.primary, found.estimate.secondary, found.estimate.coherence).conditions
    return Problem((replace(paths, uncertainty=known),))


def record(probes: Real, paths: Responses, snr_db: float, seed: Sequence[int], driven: Real | None = None) -> Takes:
    """Record both states per probe; `driven` is the primary path while the loudspeaker plays, if it differs."""
    takes, rng = [], np.random.default_rng(seed)
    for x in probes:
        quiet, control = (fftconvolve(x, path)[: x.size] for path in paths)
        played = quiet if driven is None else fftconvolve(x, driven)[: x.size]
        noise = 10 ** (-snr_db / 20) * np.sqrt(np.mean(quiet**2))
        for gain, error in ((0.0, quiet), (PROBE_GAIN, played - PROBE_GAIN * control)):
            takes.append(GainTake(gain, x, error + noise * rng.standard_normal(x.size)))
    return takes


def run(description: str | None, study: Study, arguments: Sequence[str] | None = None) -> int:
    """Run a study on measured or simulated ears and return the exit status of its command."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="any level of the PANDAR database (default: simulated ears)")
    parser.add_argument("--noise", type=Path, help="folder of 48-kHz noises (default: simulated)")
    parser.add_argument("--foreign", type=Path, help="folder of other devices' measured pairs (mistakes; none)")
    parser.add_argument("--out", type=Path, required=True, help="CSV file of the rows")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--quick", action="store_true", help="one ear in the shortest time")
    request = parser.parse_args(arguments)
    try:
        dataset = open_dataset("pandar" if request.data else "simulated", request.data)
        noise = read_noise(request.noise) if request.noise else simulated_noise()
        rows, table = study(dataset, noise, request)
    except DatasetError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    rows.to_csv(request.out, index=False)
    print(table.to_string(float_format="%.2f"))
    return 0

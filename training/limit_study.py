"""What updates leave, and what the estimate withholds: `python -m training.limit_study --run OUT --data DIR ...`.

The original ears are calibrated with several windows; last, their true paths stand in the estimates' place. From
each of these come direct WMMSE, alone and refined as in the paper; each split's model after 0, 1 and 3 updates of
the `fast` profile on several grids; and *converged designs*: of two starts, WMMSE and the held-band base, the
filter with the lower objective after 48 updates with 48 iterations of conjugate gradients each, in double
precision: by the `fast` profile, on the finest grid, and there with the paper's lower weight of the worst-band risk
too. NR and AMP come from the reference spectrum on the true paths, which agrees with the time-domain score within
0.1 dB in the mean.

OUT is a finished run of `run_splits` with `prime-log`. Writes OUT/limit.csv: a row for each estimate, split, design
and held-out ear.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from synthesis.gauss_newton import FAST, FINE, PAPER, RefinementProfile, refine
from synthesis.noise_reduction import predict
from synthesis.octave_bands import WIDE_BANDS
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import DEFAULT_MAX_GAIN_DB
from training.baselines import RatioBase, Wmmse
from training.datasets.splits import Split
from training.experiment import Experiment, Piece
from training.finished_run import finished_run
from training.measurements import Measurements
from training.run_folder import write_atomically

GENERATOR = "prime-log"
WINDOWS = (8192, 16_384, 32_768)
TRUE_PATHS = "true paths"
GRIDS = (FAST, FINE, replace(FAST, name="finest", n_fft=32_768))
N_UPDATES = (1, 3)
N_TO_CONVERGE = 48
CONVERGED = {
    "converged": replace(FAST, n_iterations=48),
    "converged, finest grid": replace(GRIDS[-1], n_iterations=48),
    "converged, finest grid, risk 0.05": replace(GRIDS[-1], n_iterations=48, risk_weight=PAPER.risk_weight),
}

Row = dict[str, Any]


@dataclass(frozen=True)
class Design:
    """Filters of a batch of ears, taps [batch, 2048]; n_points: of the updates' grid, None where there are none."""

    method: str
    k: int
    n_points: int | None
    taps: Tensor


def study(experiment: Experiment, splits: Sequence[Split]) -> Iterator[Row]:
    """A row for each estimate, split, design and held-out original ear."""
    own = experiment.measurements
    psd, certain = own.reference_psd, torch.zeros(len(WIDE_BANDS), dtype=torch.float64)
    everyone = own.indices(own.dataset.listeners)
    truth = own.true_paths(everyone, torch.float64)
    for estimate in (*WINDOWS, TRUE_PATHS):
        paths = truth if estimate == TRUE_PATHS else _calibrated(experiment, int(estimate))
        untrained = list(untrained_designs(paths, psd))
        for split in splits:
            held_out = own.indices(split.query)
            designs = [replace(each, taps=each.taps[held_out]) for each in untrained]
            for design in (*designs, *trained_designs(experiment, split, paths[held_out])):
                scored = predict(truth[held_out], design.taps.double(), psd, uncertainty=certain)
                for place, index in enumerate(held_out):
                    yield {
                        "estimate": estimate,
                        "split": split.index,
                        "listener": own.pairs[index].listener,
                        "ear": own.pairs[index].ear,
                        "method": design.method,
                        "k": design.k,
                        "n_points": design.n_points,
                        "noise_reduction_db": scored.mean_noise_reduction_db[place].item(),
                        "amplification_db": scored.amplification_db[place].item(),
                        "control_rms": scored.control_rms[place].item(),
                    }
            print(f"{estimate}: split {split.index}", flush=True)


def untrained_designs(paths: AcousticPaths, psd: Tensor) -> Iterator[Design]:
    """WMMSE, alone and refined as in the paper, and the converged designs. paths, psd: float64."""
    wmmse = Wmmse(psd).design(paths).taps
    yield Design("wmmse", 0, None, wmmse)
    yield Design("wmmse", 3, PAPER.n_fft, refine(paths, wmmse, psd, n_updates=3, profile=PAPER).taps)
    starts = (wmmse, RatioBase("held_band").design(paths).taps)
    for name, profile in CONVERGED.items():
        yield Design(name, N_TO_CONVERGE, profile.n_fft, converged(paths, psd, starts, profile))


def converged(paths: AcousticPaths, psd: Tensor, starts: Sequence[Tensor], profile: RefinementProfile) -> Tensor:
    """For each ear, of several starts' ends the one with the lowest objective: taps [batch, 2048]."""
    ends = [refine(paths, start, psd, n_updates=N_TO_CONVERGE, profile=profile) for start in starts]
    objective = torch.stack([end.objective.nan_to_num(nan=torch.inf).amin(-1) for end in ends])
    return torch.stack([end.taps for end in ends])[objective.argmin(0), torch.arange(paths.batch_size)]


def trained_designs(experiment: Experiment, split: Split, paths: AcousticPaths) -> Iterator[Design]:
    """The split's model as it is served, in single precision: alone, and updated on each of GRIDS."""
    published = experiment.published(Piece(GENERATOR, split=split.index, seed=0))
    synthesizer = experiment.store.load(published).synthesizer()
    single = paths.to(torch.float32)
    start = synthesizer.initial_filter(single)
    yield Design(GENERATOR, 0, None, start)
    for profile in GRIDS:
        for k in N_UPDATES:
            refined = refine(
                single,
                start,
                synthesizer.reference_psd,
                n_updates=k,
                profile=profile,
                max_gain_db=DEFAULT_MAX_GAIN_DB,
            )
            yield Design(GENERATOR, k, profile.n_fft, refined.taps)


def _calibrated(experiment: Experiment, window: int) -> AcousticPaths:
    """Every original ear's estimate, in the order of the experiment's own."""
    own = experiment.measurements
    if window != own.window:
        own = Measurements.calibrate(
            own.dataset, own.noise, window=window, conditions="original", regularisation=own.regularisation
        )
    return own.paths(own.indices(own.dataset.listeners), torch.float64)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean NR over listeners, then splits."""
    columns = ["estimate", "method", "k", "n_points"]
    figures = ["noise_reduction_db", "amplification_db", "control_rms"]
    by_split = rows.groupby([*columns, "split"], sort=False, dropna=False)[figures].mean()
    return by_split.groupby(columns, sort=False, dropna=False).mean()


def main(arguments: Sequence[str] | None = None) -> None:
    """Calibrate, design, score, print."""
    with finished_run(__doc__ or "", arguments) as (experiment, splits), torch.no_grad():
        rows = pd.DataFrame(study(experiment, splits)).astype({"n_points": "Int64"})
    write_atomically(experiment.options.out / "limit.csv", rows.to_csv(index=False, float_format="%.4f"))
    print(summary(rows).round(3).to_string())


if __name__ == "__main__":
    main()

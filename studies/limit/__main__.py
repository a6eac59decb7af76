"""How far updates could still go: `python -m studies.limit --run OUT --data DIR --noise DIR`.

The original ears are calibrated with several windows; last, the true paths replace the estimates. From each of
these come direct WMMSE, alone and refined as in the paper; each split's model after updates of the `fast` profile
on several grids; and converged designs: of two starts, WMMSE and the held-band base, the filter with the lower
objective after 48 updates of 48 conjugate-gradient iterations each, in float64, on the `fast` grid, on the finest
grid, and there with the paper's lower weight of the worst-band risk too. Writes OUT/limit.csv.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from studies.finished_run import GENERATOR, FinishedRun, finished_run
from studies.scoring import spectral_scores
from synthesis.gauss_newton import refine
from synthesis.paths import AcousticPaths
from synthesis.profiles import FAST, FINE, PAPER, RefinementProfile
from synthesis.synthesizer import DEFAULT_MAX_GAIN_DB
from training.baselines import RatioBase, Wmmse
from training.datasets.splits import Split
from training.measurements import Measurements

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


@dataclass(frozen=True)
class Design:
    """Filters of a batch of ears, taps [batch, 2048]; n_points: of the updates' grid, None where there are none."""

    method: str
    k: int
    n_points: int | None
    taps: Tensor


def study(run: FinishedRun) -> Iterator[dict[str, Any]]:
    """A row for each estimate, split, design and held-out ear."""
    own = run.measurements
    psd = own.reference_psd
    held_out_by_split = {split.index: own.indices(split.query) for split in run.splits}
    ears = sorted(set().union(*held_out_by_split.values()))
    truth = own.true_paths(ears, torch.float64)
    for estimate in (*WINDOWS, TRUE_PATHS):
        paths = truth if estimate == TRUE_PATHS else _calibrated(own, int(estimate), ears)
        untrained = list(untrained_designs(paths, psd))
        for split in run.splits:
            held_out = [ears.index(index) for index in held_out_by_split[split.index]]
            designs = [replace(each, taps=each.taps[held_out]) for each in untrained]
            for design in (*designs, *trained_designs(run, split, paths[held_out])):
                labels: dict[str, Any] = {"estimate": estimate, "split": split.index, "method": design.method}
                labels |= {"k": design.k, "n_points": design.n_points}
                scores = spectral_scores(truth[held_out], design.taps, psd)
                for place, score in zip(held_out, scores, strict=True):
                    pair = own.pairs[ears[place]]
                    yield labels | {"listener": pair.listener, "ear": pair.ear} | score
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


def trained_designs(run: FinishedRun, split: Split, paths: AcousticPaths) -> Iterator[Design]:
    """The split's model in single precision: alone, and updated on each of GRIDS."""
    synthesizer = run.synthesizer(split)
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


def _calibrated(own: Measurements, window: int, ears: list[int]) -> AcousticPaths:
    """The ears' estimates from another window, float64."""
    if window != own.window:
        own = Measurements.calibrate(
            own.dataset, own.noise, window=window, conditions="original", regularisation=own.regularisation
        )
    return own.paths(ears, torch.float64)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over listeners, then splits."""
    columns = ["estimate", "method", "k", "n_points"]
    figures = ["noise_reduction_db", "amplification_db", "control_rms"]
    by_split = rows.groupby([*columns, "split"], sort=False, dropna=False)[figures].mean()
    return by_split.groupby(columns, sort=False, dropna=False).mean()


def main(arguments: Sequence[str] | None = None) -> None:
    """Calibrate, design, score, print."""
    with finished_run(__doc__ or "", arguments) as run, torch.no_grad():
        rows = pd.DataFrame(study(run)).astype({"n_points": "Int64"})
        run.write("limit", rows)
    print(summary(rows).round(3).to_string())


if __name__ == "__main__":
    main()

"""Refine the correction instead of the taps: `python -m studies.correction --run OUT --data DIR --noise DIR`.

A generator's correction is 128 numbers an ear, and every value of them is a filter of the generator's kind. For
each held-out ear L-BFGS lowers the objective of the `fast` updates over these numbers, on the same estimates.
Writes OUT/correction.csv.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pandas as pd
import torch
from torch import Tensor

from studies.finished_run import FinishedRun, finished_run
from studies.scoring import spectral_scores
from synthesis.gauss_newton import TapObjective
from synthesis.paths import AcousticPaths
from synthesis.profiles import PROFILES, profile_for_resolution
from synthesis.spectra import collected
from synthesis.synthesizer import DEFAULT_MAX_GAIN_DB, Synthesizer

N_ITERATIONS = (5, 20, 60)


def refined_corrections(synthesizer: Synthesizer, paths: AcousticPaths, profile: str) -> dict[int, Tensor]:
    """Taps [1, 2048] of one ear after 0 and N_ITERATIONS iterations of L-BFGS on its correction."""
    grid = PROFILES[profile].n_fft
    stride = paths.n_fft // grid
    coarse = AcousticPaths(paths.primary[..., ::stride].contiguous(), paths.secondary[..., ::stride].contiguous())
    psd = collected(synthesizer.reference_psd, stride)
    objective = TapObjective(coarse, psd, PROFILES[profile], DEFAULT_MAX_GAIN_DB)
    with torch.no_grad():
        ratio = synthesizer.path_ratio(paths)
        correction = synthesizer.generate(ratio.features)
    correction = correction.clone().requires_grad_()

    def taps() -> Tensor:
        return synthesizer.reconstruct(paths, ratio, correction, DEFAULT_MAX_GAIN_DB)

    def closure() -> Tensor:
        optimiser.zero_grad()
        response = torch.fft.rfft(taps(), n=grid)
        residual = coarse.primary - coarse.secondary * response
        loss = objective.value(objective.band_power(residual), response).sum()
        loss.backward()
        return loss

    found = {0: taps().detach()}
    for before, after in pairwise((0, *N_ITERATIONS)):
        # A line search by the strong Wolfe conditions lets the objective fall in every iteration.
        optimiser = torch.optim.LBFGS([correction], max_iter=after - before, line_search_fn="strong_wolfe")
        optimiser.step(closure)
        found[after] = taps().detach()
    return found


def study(run: FinishedRun) -> pd.DataFrame:
    """A row for each split, held-out ear, iterations on the correction and updates of the taps after them."""
    measurements = run.measurements
    profile = profile_for_resolution("fast", measurements.window)
    rows = []
    for split in run.splits:
        synthesizer = run.synthesizer(split).double()
        for index in measurements.indices(split.query):
            paths = measurements.paths([index], torch.float64)
            truth = measurements.true_paths([index], torch.float64)
            pair = measurements.pairs[index]
            for n_iterations, start in refined_corrections(synthesizer, paths, profile).items():
                for k in (0, 1, 3):
                    with torch.no_grad():
                        refined = synthesizer.refine(paths, start, k, profile)
                    labels = {"split": split.index, "listener": pair.listener, "ear": pair.ear}
                    labels |= {"n_iterations": n_iterations, "k": k}
                    objective = refined.objective[0, int(refined.n_applied[0])].item()
                    (score,) = spectral_scores(truth, refined.taps, measurements.reference_psd)
                    rows.append(labels | {"objective": objective} | score)
        print(f"split {split.index}: {len(rows)} rows", flush=True)
    return pd.DataFrame(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Refine, score, print."""
    with finished_run(__doc__ or "", arguments) as run:
        rows = study(run)
        run.write("correction", rows)
    means = rows.groupby(["n_iterations", "k"])[["objective", "noise_reduction_db", "amplification_db"]].mean()
    print(means.round(3).to_string())


if __name__ == "__main__":
    main()

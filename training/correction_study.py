"""Refine the correction instead of the taps: `python -m training.correction_study --run OUT --data DIR ...`.

A generator's correction is a few numbers for each ear; a minimum over them stays a filter of the generator's kind,
where an update of the taps may go anywhere. For each held-out original ear the correction is taken from the
model's own to lower values of the objective that the `fast` updates lower, on the same estimates, by L-BFGS; NR and
AMP come from the reference spectrum on the true paths. OUT is a finished run of `run_splits` with `prime-log`.
Writes OUT/correction.csv.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor

from synthesis.gauss_newton import PROFILES, TapObjective, suited_profile
from synthesis.noise_reduction import predict
from synthesis.octave_bands import WIDE_BANDS
from synthesis.paths import AcousticPaths
from synthesis.spectra import collected
from synthesis.synthesizer import DEFAULT_MAX_GAIN_DB, Synthesizer
from training.datasets.splits import Split
from training.experiment import Experiment, Piece
from training.finished_run import finished_run
from training.run_folder import write_atomically

GENERATOR = "prime-log"
N_ITERATIONS = (5, 20, 60)


def refined_corrections(synthesizer: Synthesizer, paths: AcousticPaths, profile: str) -> dict[int, Tensor]:
    """Taps [1, 2048] of one ear by iterations of L-BFGS on its correction: N_ITERATIONS, and 0, the generator's."""
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

    def value() -> Tensor:
        response = torch.fft.rfft(taps(), n=grid)
        residual = coarse.primary - coarse.secondary * response
        return objective.value(objective.band_power(residual), response).sum()

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = value()
        loss.backward()
        return loss

    found = {0: taps().detach()}
    for before, after in zip((0, *N_ITERATIONS), N_ITERATIONS, strict=False):
        # Line search by the strong Wolfe conditions, so that the objective falls in every iteration.
        optimiser = torch.optim.LBFGS([correction], max_iter=after - before, line_search_fn="strong_wolfe")
        optimiser.step(closure)
        found[after] = taps().detach()
    return found


def study(experiment: Experiment, splits: Sequence[Split]) -> pd.DataFrame:
    """A row for each split, held-out ear, iterations on the correction and updates of the taps after them."""
    measurements = experiment.measurements
    psd, certain = measurements.reference_psd, torch.zeros(len(WIDE_BANDS), dtype=torch.float64)
    profile = suited_profile("fast", measurements.window)
    rows = []
    for split in splits:
        indices = [i for i in measurements.indices(split.query) if measurements.pairs[i].condition == "original"]
        model = experiment.store.load(experiment.published(Piece(GENERATOR, split=split.index, seed=0)))
        synthesizer = model.synthesizer().double()
        for index in indices:
            paths, truth = measurements.paths([index]), measurements.true_paths([index], torch.float64)
            paths = paths.to(torch.float64, torch.device("cpu"))
            for n_iterations, start in refined_corrections(synthesizer, paths, profile).items():
                for k in (0, 1, 3):
                    with torch.no_grad():
                        refined = synthesizer.refine(paths, start, k, profile)
                    scored = predict(truth, refined.taps, psd, uncertainty=certain)
                    rows.append(
                        {
                            "split": split.index,
                            "listener": measurements.pairs[index].listener,
                            "ear": measurements.pairs[index].ear,
                            "n_iterations": n_iterations,
                            "k": k,
                            "objective": refined.objective[0, int(refined.n_applied[0])].item(),
                            "noise_reduction_db": scored.mean_noise_reduction_db.item(),
                            "amplification_db": scored.amplification_db.item(),
                        }
                    )
        print(f"split {split.index}: {len(rows)} rows", flush=True)
    return pd.DataFrame(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Refine, score, print."""
    with finished_run(__doc__ or "", arguments) as (experiment, splits):
        rows = study(experiment, splits)
    write_atomically(experiment.options.out / "correction.csv", rows.to_csv(index=False))
    means = rows.groupby(["n_iterations", "k"])[["objective", "noise_reduction_db", "amplification_db"]].mean()
    print(means.round(3).to_string())


if __name__ == "__main__":
    main()

"""What a ceiling on |W| costs: `python -m training.ceiling_study --run OUT --data DIR --noise DIR`.

OUT is a finished run of `run_splits` with `prime-log`. Each split's model designs for its held-out original ears
under each ceiling; NR and AMP come from the reference spectrum on the true paths, which agrees with the time-domain
score within 0.1 dB in the mean. Writes OUT/ceiling.csv and OUT/ceiling.png.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import torch

mpl.use("Agg")
import matplotlib.pyplot as plt

from synthesis.gauss_newton import suited_profile
from synthesis.noise_reduction import predict
from synthesis.octave_bands import WIDE_BANDS
from training.datasets.splits import Split
from training.experiment import Experiment, Piece
from training.finished_run import finished_run
from training.run_folder import write_atomically

GENERATOR = "prime-log"
CEILINGS_DB = (12.0, 18.0, 24.0, 27.0, 30.0, 33.0, 36.0, 42.0)
N_UPDATES = (0, 1, 3)


@torch.no_grad()
def study(experiment: Experiment, splits: Sequence[Split]) -> pd.DataFrame:
    """A row for each split, held-out ear, ceiling and number of updates."""
    measurements = experiment.measurements
    psd, certain = measurements.reference_psd.float(), torch.zeros(len(WIDE_BANDS))
    profile = suited_profile("fast", measurements.window)
    rows = []
    for split in splits:
        indices = [i for i in measurements.indices(split.query) if measurements.pairs[i].condition == "original"]
        paths, truth = measurements.paths(indices), measurements.true_paths(indices)
        synthesizer = experiment.store.load(
            experiment.published(Piece(GENERATOR, split=split.index, seed=0))
        ).synthesizer()
        for ceiling_db in CEILINGS_DB:
            for k in N_UPDATES:
                taps = synthesizer.design(paths, k, profile=profile, max_gain_db=ceiling_db).taps
                scored = predict(truth, taps, psd, uncertainty=certain)
                rows += [
                    {
                        "split": split.index,
                        "listener": measurements.pairs[index].listener,
                        "ear": measurements.pairs[index].ear,
                        "max_gain_db": ceiling_db,
                        "k": k,
                        "noise_reduction_db": scored.mean_noise_reduction_db[place].item(),
                        "amplification_db": scored.amplification_db[place].item(),
                        "out_of_band_low_db": scored.out_of_band_low_db[place].item(),
                        "control_rms": scored.control_rms[place].item(),
                        "reached_gain_db": scored.max_gain_db[place].item(),
                    }
                    for place, index in enumerate(indices)
                ]
        print(f"split {split.index}: {len(rows)} rows", flush=True)
    return pd.DataFrame(rows)


def draw(rows: pd.DataFrame, file: Path) -> None:
    """NR, control RMS and the gain that was reached over the ceiling: means over splits, and the worst ear's."""
    panels = {
        "noise_reduction_db": "noise reduction (dB)",
        "control_rms": "control RMS (reference: 0.05)",
        "reached_gain_db": "largest |W| (dB)",
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(12, 4), layout="constrained")
    for axis, (column, label) in zip(axes, panels.items(), strict=True):
        for k, colour in zip(N_UPDATES, ("#D55E00", "#0072B2", "#009E73"), strict=True):
            own = rows[rows.k == k].groupby("max_gain_db")[column]
            extreme = own.min() if column == "noise_reduction_db" else own.max()
            axis.plot(own.mean(), "o-", color=colour, ms=4, label=f"mean, k = {k}")
            axis.plot(extreme, ":", color=colour, lw=1, label=f"worst ear, k = {k}")
        axis.set(xlabel="max_gain_db asked for", ylabel=label)
        axis.grid(color="0.9")
    axes[-1].plot(CEILINGS_DB, CEILINGS_DB, color="0.5", lw=0.8)
    axes[0].legend(fontsize=7)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Design, score, draw."""
    with finished_run(__doc__ or "", arguments) as (experiment, splits):
        rows, folder = study(experiment, splits), experiment.options.out
    write_atomically(folder / "ceiling.csv", rows.to_csv(index=False))
    draw(rows, folder / "ceiling.png")
    means = rows.groupby(["k", "max_gain_db"])[["noise_reduction_db", "amplification_db", "reached_gain_db"]].mean()
    print(means.round(3).to_string())


if __name__ == "__main__":
    main()

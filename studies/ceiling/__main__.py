"""What a ceiling on |W| costs: `python -m studies.ceiling --run OUT --data DIR --noise DIR`.

Each split's model designs for its held-out ears under each ceiling. Writes OUT/ceiling.csv and OUT/ceiling.png.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import torch

mpl.use("Agg")
import matplotlib.pyplot as plt

from studies.finished_run import FinishedRun, finished_run
from studies.scoring import spectral_scores
from synthesis.profiles import profile_for_resolution

CEILINGS_DB = (12.0, 18.0, 24.0, 27.0, 30.0, 33.0, 36.0, 42.0)
N_UPDATES = (0, 1, 3)


@torch.no_grad()
def study(run: FinishedRun) -> pd.DataFrame:
    """A row for each split, held-out ear, ceiling and number of updates."""
    measurements = run.measurements
    profile = profile_for_resolution("fast", measurements.window)
    rows = []
    for split in run.splits:
        indices = measurements.indices(split.query)
        paths, truth = measurements.paths(indices), measurements.true_paths(indices)
        synthesizer = run.synthesizer(split)
        for ceiling_db in CEILINGS_DB:
            for k in N_UPDATES:
                taps = synthesizer.design(paths, k, profile=profile, max_gain_db=ceiling_db).taps
                scores = spectral_scores(truth, taps, measurements.reference_psd)
                for index, score in zip(indices, scores, strict=True):
                    pair = measurements.pairs[index]
                    labels: dict[str, Any] = {"split": split.index, "max_gain_db": ceiling_db, "k": k}
                    rows.append(labels | {"listener": pair.listener, "ear": pair.ear} | score)
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
        axis.set(xlabel="max_gain_db", ylabel=label)
        axis.grid(color="0.9")
    axes[-1].plot(CEILINGS_DB, CEILINGS_DB, color="0.5", lw=0.8)
    axes[0].legend(fontsize=7)
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Design, score, draw, print."""
    with finished_run(__doc__ or "", arguments) as run:
        rows = study(run)
        draw(rows, run.write("ceiling", rows).with_suffix(".png"))
    means = rows.groupby(["k", "max_gain_db"])[["noise_reduction_db", "amplification_db", "reached_gain_db"]].mean()
    print(means.round(3).to_string())


if __name__ == "__main__":
    main()

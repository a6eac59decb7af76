"""What a ceiling on |W| costs: `python -m studies.ceiling --run OUT --data DIR --noise DIR`.

Each split's model designs for its held-out ears under each ceiling. Writes OUT/ceiling.csv.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd
import torch

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


def main(arguments: Sequence[str] | None = None) -> None:
    """Design, score, print."""
    with finished_run(__doc__ or "", arguments) as run:
        rows = study(run)
        run.write("ceiling", rows)
    means = rows.groupby(["k", "max_gain_db"])[["noise_reduction_db", "amplification_db", "reached_gain_db"]].mean()
    print(means.round(3).to_string())


if __name__ == "__main__":
    main()

"""What is learned from few listeners, on these and on others: `python -m studies.sharing --data DIR --noise DIR`.

For several numbers of listeners in support, and for networks after several numbers of updates: figures on the
support's own ears beside those of the held-out ones. A method that does well on the first and not on the second
lacks listeners; one that does badly on both lacks freedom or updates. Output controls with a learned phase are also
scored with that phase set to zero. All conditions, one split and seed. Writes OUT/sharing.csv; the same command
resumes a training that was stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd
import torch

from studies.scoring import spectral_scores
from training.baselines.e2e_cfg import E2eCfgSize
from training.baselines.output_controls import OUTPUT_CONTROLS, OutputControl
from training.config import TrainingConfig, load_config
from training.datasets import open_dataset
from training.datasets.noise import read_noise
from training.datasets.splits import Split, make_splits
from training.evaluation import Method
from training.measurements import Measurements
from training.methods import FITTED, Fitting, fit_e2e_cfg
from training.run_data import SPLIT_SEED
from training.run_folder import write_atomically
from training.run_splits import positive_integer
from training.run_task import progress_line

SIZES = {
    "e2e_cfg_wide": E2eCfgSize((64, 128, 256), n_layers=6, feedforward_width=1024, head_width=1024),
    "e2e_cfg_tokens": E2eCfgSize(token_width=16),
}
"""Larger networks than `e2e_cfg`: one with twice its width and depth, and one that need not blur its tokens."""

AT_ONCE = ("wmmse_shared", "selective", "fomaml")
BY_UPDATES = ("e2e_cfg", *SIZES, *OUTPUT_CONTROLS)
STANDARD = ("wmmse_shared", "fomaml", "e2e_cfg")
WINDOW = 4096


def study(
    measurements: Measurements,
    names: Sequence[str],
    numbers: Sequence[int],
    updates: Sequence[int],
    seed: int,
    states: Path,
) -> Iterator[dict[str, object]]:
    """A row for each number of listeners in support, method, number of updates, and side of the split."""
    for n_support in numbers:
        (split,) = make_splits(measurements.dataset.listeners, 1, n_support, SPLIT_SEED, measurements.dataset.name)
        for name in names:
            state_file = states / f"{name}-{n_support}-{seed}.pt"
            # Each goes on from the state of the one before: with a constant rate, as if that had not ended.
            for n_updates in sorted(updates) if name in BY_UPDATES else (0,):
                config = load_config("prime", window=WINDOW, n_updates=max(n_updates, 1))
                method = fitted(measurements, split, name, config, seed, state_file)
                yield from rows(measurements, split, method, {"method": name, "n_updates": n_updates})
                if isinstance(method, OutputControl) and method.network.has_phase:
                    labels = {"method": f"{name}, phase zero", "n_updates": n_updates}
                    yield from rows(measurements, split, method.without_phase(), labels)


def fitted(
    measurements: Measurements, split: Split, name: str, config: TrainingConfig, seed: int, state_file: Path
) -> Method:
    """The method, taught by the split's support alone."""
    fitting = Fitting(
        measurements=measurements,
        support=split.support,
        query=split.query,
        split=split.index,
        seed=seed,
        config=config,
        device=torch.device("cpu"),
        state_file=state_file,
        progress=progress_line(f"{name}, {len(split.support)} in support"),
        generator=None,
    )
    return fit_e2e_cfg(fitting, SIZES[name]) if name in SIZES else FITTED[name].fit(fitting)


def rows(
    measurements: Measurements, split: Split, method: Method, labels: dict[str, object]
) -> Iterator[dict[str, object]]:
    """Means over the ears of the support and over those held out."""
    for side, listeners in (("support", split.support), ("held out", split.query)):
        indices = measurements.indices(listeners)
        taps = method.design(measurements.paths(indices)).taps
        truth = measurements.true_paths(indices, torch.float64)
        scores = pd.DataFrame(spectral_scores(truth, taps, measurements.reference_psd)).mean()
        row = labels | {
            "n_support": len(split.support),
            "side": side,
            "noise_reduction_db": scores.noise_reduction_db,
            "amplification_db": scores.amplification_db,
        }
        print(row, flush=True)
        yield row


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, fit, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="any level of the PANDAR database")
    parser.add_argument("--noise", type=Path, required=True, help="folder of 48-kHz noises")
    parser.add_argument("--methods", choices=(*AT_ONCE, *BY_UPDATES), nargs="+", default=STANDARD)
    parser.add_argument("--support", type=positive_integer, nargs="+", default=[3, 7, 11])
    parser.add_argument("--updates", type=positive_integer, nargs="+", default=[400, 1600, 6400])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    request = parser.parse_args(arguments)
    dataset, noise = open_dataset("pandar", request.data), read_noise(request.noise)
    measurements = Measurements.calibrate(dataset, noise, window=WINDOW, conditions="all")
    table = pd.DataFrame(
        study(measurements, request.methods, request.support, request.updates, request.seed, request.out / "state")
    )
    write_atomically(request.out / "sharing.csv", table.to_csv(index=False))
    print(table.pivot_table(index=["method", "n_updates"], columns=["n_support", "side"]).round(2).to_string())


if __name__ == "__main__":
    main()

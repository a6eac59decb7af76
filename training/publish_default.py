"""Train the bundled default model on every listener, and publish it with the scores of its split models.

    python -m training.publish_default --data DIR --noise DIR --run OUT [--seed N] [--updates N]

OUT is a finished run of `run_splits` with `prime-log`. The default model has no held-out listener of its own, so
its manifest carries what the split models, trained in the same way, reached on the listeners that each left out;
its own figures are labelled in support.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd
import torch

from model_store.manifest import Scores
from model_store.store import BUNDLED_ROOT, ModelStore
from training.config import TrainingConfig
from training.datasets import open_dataset
from training.datasets.noise import read_noise
from training.measurements import Measurements
from training.protocol import baseline_designs, generator_designs, score_designs
from training.report import read_rows
from training.run_folder import RunError
from training.run_splits import checkpoint, figures, train
from training.scoring import TimeDomainScore

NAME = "default"


def main() -> None:
    """Measure, train, score in support, publish."""
    options = parse()
    record = json.loads((options.run / "run.json").read_text())["settings"]
    config = TrainingConfig.model_validate(record["training"])
    if options.updates:
        config = config.model_copy(update={"n_updates": options.updates})
    dataset = open_dataset("pandar", options.data)
    noise = read_noise(options.noise)
    if record["data_fingerprint"] != dataset.fingerprint or record["quick"]:
        raise RunError(f"{options.run}: found a quick run or other data, expected a full run on {options.data}")
    measurements = Measurements.calibrate(dataset, noise, window=config.window, conditions=config.conditions)
    generator = train(
        config,
        "prime-log",
        measurements,
        dataset.listeners,
        mixture_seed=0,
        seed=options.seed,
        device=torch.device("cpu"),
        state_file=options.run / "models" / NAME / "state.pt",
        name=NAME,
    )
    candidate = checkpoint(
        generator, measurements, config, support=dataset.listeners, split=None, seed=options.seed
    )
    designs = [*baseline_designs(candidate.reference_psd), *generator_designs(candidate.synthesizer())]
    originals = [i for i, pair in enumerate(measurements.pairs) if pair.condition == "original"]
    rows = score_designs(measurements, TimeDomainScore(noise), designs, originals, {"split": 0, "seed": 0})
    scores = Scores(
        split_models=held_out_tables(read_rows(options.run)),
        in_support=figures(pd.DataFrame(rows), None, dataset.listeners),
    )
    candidate.manifest = candidate.manifest.model_copy(update={"scores": scores})
    published = ModelStore(options.store, include_bundled=False).publish(NAME, candidate)
    print(f"published {published} in {options.store}")


def held_out_tables(rows: pd.DataFrame) -> dict[str, dict[str, dict[str, float]]]:
    """For each split model, by name, its held-out figures beside the untrained designs' on the same ears."""
    tables = {}
    for checkpoint_name, own in rows[rows.method == "prime-log"].groupby("checkpoint"):
        compared = rows[(rows["split"] == own["split"].iloc[0]) & (rows.method != "prime-log")]
        tables[str(checkpoint_name)] = figures(own, compared, tuple(own.listener.unique()))
    return tables


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--noise", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True, help="a finished run of run_splits")
    parser.add_argument("--store", type=Path, default=BUNDLED_ROOT)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    main()

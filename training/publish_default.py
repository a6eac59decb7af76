"""Train a model on every listener of a data set, and publish it with the scores of its split models.

    python -m training.publish_default --data DIR --noise DIR --run OUT [--store DIR --name NAME] [--seed N]

OUT is a finished run of `run_splits` with `prime-log`; PANDAR's makes the bundled model. A model of all listeners
has no held-out listener of its own, so its manifest carries what the split models, trained in the same way, reached
on the listeners that each left out; its own figures are labelled in support.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from model_store.errors import ModelStoreError
from model_store.manifest import Scores
from model_store.store import BUNDLED_ROOT, ModelStore
from synthesis.backends.reference import build_synthesizer
from training.checkpoints import make_checkpoint, mean_figures
from training.datasets.path_pairs import DatasetError
from training.evaluation import evaluate
from training.methods import BOTH_PROFILES, GENERATORS, GROUPS, UNTRAINED, GeneratorDesign
from training.report import read_rows
from training.run_data import Options, RunData
from training.run_folder import RECORD_FILE, RunError, read_record
from training.run_task import train_generator

NAME = "default"
GENERATOR = "prime-log"


def main(arguments: Sequence[str] | None = None) -> int:
    """Publish; returns the exit status. A mistake in the request is one line on standard error and status 2."""
    try:
        request = parse(arguments)
        publish(request)
    except (DatasetError, ModelStoreError, RunError, OSError) as error:
        print(f"publish_default: {error}", file=sys.stderr)
        return 2
    return 0


def publish(request: argparse.Namespace) -> None:
    """Measure, train, score in support, publish."""
    record, _ = read_record(request.run / RECORD_FILE)
    data = RunData(as_options(request, record))
    if record != json.loads(json.dumps(data.settings())) or record["quick"]:
        raise RunError(f"{request.run}: is a quick run, or one of other data or another setup; finish a full one")
    listeners, setup = data.dataset.listeners, GENERATORS[GENERATOR]
    measurements, name = data.measurements, f"{request.name}/seed{request.seed}"
    generator = train_generator(data, measurements, setup, listeners, 0, request.seed, name)
    checkpoint = make_checkpoint(data, measurements, setup, generator, listeners, None, request.seed)
    print(f"{name}: scores {len(listeners)} listeners", flush=True)
    scores = Scores(
        split_models=held_out_tables(read_rows(request.run)),
        in_support=in_support(data, GeneratorDesign(GENERATOR, build_synthesizer(checkpoint.parameters))),
    )
    checkpoint.manifest = checkpoint.manifest.model_copy(update={"scores": scores})
    published = ModelStore(request.store, include_bundled=False).publish(request.name, checkpoint)
    print(f"published {published} in {request.store}")


def as_options(request: argparse.Namespace, record: dict[str, object]) -> Options:
    """The run's own, on the data that the command names."""
    return Options.model_validate(
        {
            "dataset": record["dataset"],
            "data": request.data,
            "noise": request.noise,
            "protocol": record["protocol"],
            "window": record["window"],
            "regularisation": record["regularisation"],
            "calibration": record["calibration"],
            "conditions": record["conditions"],
            "n_splits": 1,
            "support": record["support"],
            "updates": record["updates"],
            "quick": False,
            "device": "auto",
            "store": request.store,
            "out": request.run,
        }
    )


def in_support(data: RunData, method: GeneratorDesign) -> dict[str, dict[str, float]]:
    """The model on its own support's original ears, beside the designs that need no training."""
    measurements = data.measurements
    originals = [i for i, pair in enumerate(measurements.pairs) if pair.condition == "original"]
    psd = measurements.reference_psd.float()
    beside = [(UNTRAINED[name].make(psd), UNTRAINED[name].updates) for name in GROUPS["standard"]]
    return mean_figures(
        *(
            evaluate(measurements, data.score_of_all, each, updates, originals)
            for each, updates in [*beside, (method, BOTH_PROFILES)]
        )
    )


def held_out_tables(rows: pd.DataFrame) -> dict[str, dict[str, dict[str, float]]]:
    """For each split's first model, by name, its held-out figures beside the untrained designs' on its ears."""
    tables = {}
    for checkpoint_name, own in rows[(rows.method == GENERATOR) & (rows.seed == 0)].groupby("checkpoint"):
        beside = rows[(rows["split"] == own["split"].iloc[0]) & rows.method.isin(GROUPS["standard"])]
        tables[str(checkpoint_name)] = mean_figures(beside, own)
    return tables


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--noise", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True, help="a finished run of run_splits")
    parser.add_argument("--store", type=Path, default=BUNDLED_ROOT)
    parser.add_argument("--name", default=NAME, help="of the model in the store")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

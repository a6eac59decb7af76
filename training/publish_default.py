"""Train a model on all listeners of a data set, and publish it with the scores of its split models.

    python -m training.publish_default --data DIR --noise DIR --run OUT [--store DIR --name NAME] [--seed N]

OUT is a finished run of `run_splits` with `prime-log`; PANDAR's makes the bundled model. A model of all listeners has
no held-out listeners, so its manifest has the held-out scores of the split models, trained in the same way; its scores
on the support are labelled so.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from model_store.errors import ModelStoreError
from model_store.manifest import Scores
from model_store.store import BUNDLED_ROOT, ModelStore
from training.config import Configuration
from training.data import DETERMINING, Data
from training.datasets.path_pairs import DatasetError
from training.experiment import make_checkpoint, score_method
from training.methods import GROUPS, METHODS
from training.report import mean_figures
from training.rows import RunError, by_split, read_rows
from training.support import SupportSet

GENERATOR = "prime-log"


def main(arguments: Sequence[str] | None = None) -> int:
    """Publish; returns the exit status. A mistake in the request is one line on standard error and status 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--noise", type=Path, required=True)
    parser.add_argument("--run", type=Path, required=True, help="a finished run of run_splits")
    parser.add_argument("--store", type=Path, default=BUNDLED_ROOT)
    parser.add_argument("--name", default="default", help="of the model in the store")
    parser.add_argument("--seed", type=int, default=0)
    try:
        publish(parser.parse_args(arguments))
    except (DatasetError, ModelStoreError, RunError, OSError) as error:
        print(f"publish_default: {error}", file=sys.stderr)
        return 2
    return 0


def publish(request: argparse.Namespace) -> None:
    """Measure, train, score in support, publish."""
    rows = read_rows(request.run)
    data = Data(configuration_of(rows.attrs["settings"], request))
    settings = json.loads(json.dumps(data.settings()))
    if any(settings[name] != value for name, value in rows.attrs["settings"].items() if name in settings):
        raise RunError(f"{request.run}: is one of other data or another setup; give the run of these data")
    if settings["quick"]:
        raise RunError(f"{request.run}: is a quick run; finish a full one")
    listeners, name = data.dataset.listeners, f"{request.name}/seed{request.seed}"
    support = SupportSet(data, data.everybody.support, listeners, (), 0, request.seed, name)
    scores = Scores(split_models=held_out_tables(by_split(rows)), in_support=in_support(support))
    checkpoint = make_checkpoint(support, GENERATOR, None, scores)
    published = ModelStore(request.store, include_bundled=False).publish(request.name, checkpoint)
    print(f"published {published} in {request.store}")


def configuration_of(settings: dict[str, Any], request: argparse.Namespace) -> Configuration:
    """Return the run's configuration, on the data named on the command line."""
    kept = {name: settings[name] for name in DETERMINING if name in settings}
    folders = {"data": request.data, "noise": request.noise, "out": request.run / "all-listeners"}
    return Configuration.load({"dataset": settings["dataset"], "splits": 1, **folders, **kept})


def in_support(support: SupportSet) -> dict[str, dict[str, float]]:
    """Score the model on its support's ears, beside the designs that need no training."""
    fold = support.data.everybody
    found = []
    for name in (*GROUPS["standard"], GENERATOR):
        print(f"{support.name}: scores {name} on {len(support.listeners)} listeners", flush=True)
        rows_of_split = score_method(
            fold.support, fold.score, name, METHODS[name].fit(support), support, support.listeners, {"split": 0}
        )
        found.append(pd.DataFrame(rows_of_split))
    return mean_figures(*found)


def held_out_tables(rows: pd.DataFrame) -> dict[str, dict[str, dict[str, float]]]:
    """Return per split's first model its held-out figures beside the untrained designs' on its ears."""
    tables = {}
    first = rows[(rows.method == GENERATOR) & (rows.seed == 0)]
    for split, rows_of_split in first.groupby("split"):
        name = f"{rows_of_split.dataset.iloc[0]}-{GENERATOR}-split{split:02d}-seed0"
        beside = rows[(rows["split"] == split) & rows.method.isin(GROUPS["standard"])]
        tables[name] = mean_figures(beside, rows_of_split)
    return tables


if __name__ == "__main__":
    sys.exit(main())

"""What studies of a finished run start from: its data, its models, its splits."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from model_store.store import DEFAULT_ROOT
from training.datasets.splits import Split
from training.experiment import Experiment, Options
from training.run_folder import read_record


def finished_run(description: str, arguments: Sequence[str] | None) -> tuple[Experiment, list[Split]]:
    """The experiment that a command's `--run` names, of original measurements on the CPU, and the splits asked for.

    Its folder is `experiment.options.out`.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="a finished run of run_splits")
    parser.add_argument("--data", type=Path, help="as for that run")
    parser.add_argument("--noise", type=Path, help="as for that run")
    parser.add_argument("--store", type=Path, default=DEFAULT_ROOT)
    parser.add_argument("--split", type=int, action="append", help="only this split, counted from 0; repeatable")
    request = parser.parse_args(arguments)
    settings, starts = read_record(request.run / "run.json")
    options = Options(
        dataset=settings["dataset"],
        data=request.data,
        noise=request.noise,
        window=settings["window"],
        regularisation=settings["regularisation"],
        conditions="original",
        n_splits=int(starts[-1]["options"]["splits"]),
        support=settings["support"],
        updates=settings["updates"],
        quick=settings["quick"],
        device="cpu",
        store=request.store,
        out=request.run,
    )
    experiment = Experiment(options)
    return experiment, [each for each in experiment.splits if request.split is None or each.index in request.split]

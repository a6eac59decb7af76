"""What studies of a finished run start from: its data, its models, its splits."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from model_store.errors import ModelStoreError
from model_store.store import DEFAULT_ROOT
from training.datasets.path_pairs import DatasetError
from training.datasets.splits import Split
from training.experiment import Experiment, Options
from training.run_folder import RECORD_FILE, RunError, RunFolder, read_record


@contextmanager
def finished_run(description: str, arguments: Sequence[str] | None) -> Iterator[tuple[Experiment, list[Split]]]:
    """The experiment that a command's `--run` names, of original measurements on the CPU, and the splits asked for.

    Its folder is `experiment.options.out`. What is wrong with the request, then or later, is one line on standard
    error and exit status 2.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True, help="a finished run of run_splits")
    parser.add_argument("--data", type=Path, help="as for that run")
    parser.add_argument("--noise", type=Path, help="as for that run")
    parser.add_argument("--store", type=Path, default=DEFAULT_ROOT)
    parser.add_argument("--split", type=int, action="append", help="only this split, counted from 0; repeatable")
    request = parser.parse_args(arguments)
    try:
        yield _opened(request)
    except (DatasetError, ModelStoreError, RunError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


def _opened(request: argparse.Namespace) -> tuple[Experiment, list[Split]]:
    settings, _ = read_record(request.run / RECORD_FILE)
    known = sorted(RunFolder(request.run).held_out())
    unknown = sorted(set(request.split or ()).difference(known))
    if unknown or not known:
        raise RunError(
            f"--split: found {unknown or 'none'}, expected some of those finished in {request.run}: {known}"
        )
    options = Options(
        dataset=settings["dataset"],
        data=request.data,
        noise=request.noise,
        window=settings["window"],
        regularisation=settings["regularisation"],
        conditions="original",
        n_splits=known[-1] + 1,
        support=settings["support"],
        updates=settings["updates"],
        quick=settings["quick"],
        device="cpu",
        store=request.store,
        out=request.run,
    )
    experiment = Experiment(options)
    for option, key in (("--data", "data_fingerprint"), ("--noise", "noise_fingerprint")):
        found, expected = experiment.settings()[key], settings[key]
        if found != expected:
            raise RunError(f"{option}: found data of fingerprint {found}, expected the run's own, {expected}")
    return experiment, [
        experiment.splits[index] for index in known if request.split is None or index in request.split
    ]

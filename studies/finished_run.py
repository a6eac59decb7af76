"""A finished run of `run_splits` with `prime-log`, as the studies read it: its data, its models, its splits."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from model_store.errors import ModelStoreError
from model_store.store import DEFAULT_ROOT
from synthesis.backends.reference import build_synthesizer
from synthesis.synthesizer import Synthesizer
from training.checkpoints import load_model
from training.datasets.path_pairs import DatasetError
from training.datasets.splits import Split
from training.measurements import Measurements
from training.run_data import Options, RunData
from training.run_folder import RECORD_FILE, RunError, RunFolder, read_record, write_atomically
from training.tasks import Task

GENERATOR = "prime-log"


@dataclass(frozen=True)
class FinishedRun:
    """The run and those of its splits that were asked for."""

    data: RunData
    splits: list[Split]

    @property
    def measurements(self) -> Measurements:
        """The original ears, calibrated as in the run."""
        return self.data.measurements

    def synthesizer(self, split: Split) -> Synthesizer:
        """The split's published model of seed 0."""
        return build_synthesizer(load_model(self.data, Task(GENERATOR, split=split.index, seed=0)).parameters)

    def write(self, name: str, rows: pd.DataFrame) -> None:
        """Write rows as NAME.csv into the run's folder."""
        write_atomically(self.data.options.out / f"{name}.csv", rows.to_csv(index=False, float_format="%.4f"))


@contextmanager
def finished_run(description: str, arguments: Sequence[str] | None) -> Iterator[FinishedRun]:
    """Open the run that a command's `--run` names.

    A mistake in the request, found at once or later, is one line on standard error and exit status 2.
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


def _opened(request: argparse.Namespace) -> FinishedRun:
    settings, _ = read_record(request.run / RECORD_FILE)
    known = sorted(RunFolder(request.run).held_out())
    unknown = sorted(set(request.split or ()).difference(known))
    if unknown or not known:
        raise RunError(f"--split: {unknown or 'no split'} is not finished in {request.run}; finished are {known}")
    options = Options(
        dataset=settings["dataset"],
        data=request.data,
        noise=request.noise,
        window=settings["window"],
        regularisation=settings["regularisation"],
        calibration=settings["calibration"],
        conditions="original",
        n_splits=known[-1] + 1,
        support=settings["support"],
        updates=settings["updates"],
        quick=settings["quick"],
        device="cpu",
        store=request.store,
        out=request.run,
    )
    data = RunData(options)
    for option, key in (("--data", "data_fingerprint"), ("--noise", "noise_fingerprint")):
        found, expected = data.settings()[key], settings[key]
        if found != expected:
            raise RunError(f"{option}: these data have the fingerprint {found}, those of the run {expected}")
    return FinishedRun(data, [data.splits[index] for index in known if index in (request.split or known)])

"""The experiment: every method on splits of a path data set. The story of a run, top to bottom.

    python training/run_splits.py --dataset pandar --data DIR --noise DIR --methods all
        --splits 10 --seeds 3 --store DIR --out DIR

Trains and publishes a checkpoint for each generator, split and seed, fits and scores every other method on the same
cases, and writes tables and figures. Started again with the same options after a kill, it goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from model_store.errors import ModelStoreError
from model_store.store import DEFAULT_ROOT
from training.config import load_config
from training.datasets.path_pairs import DatasetError
from training.datasets.splits import Split
from training.engines import ENGINES, WorkerLost
from training.exhibits import time_designs, write_exhibits
from training.experiment import Experiment, Options, Piece, choose_device, open_experiment, stages
from training.methods import GENERATORS, GROUPS, NAMES, chosen_methods
from training.packed_run import unpack
from training.precision import computes_bfloat16
from training.report import ReportError, write_report
from training.run_folder import RunError, RunFolder, environment, under_way


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns the exit status. A mistake in the request is one line on standard error and status 2."""
    request = parse(arguments)
    try:
        run(request)
    except (DatasetError, ModelStoreError, RunError, ReportError, WorkerLost, OSError, ImportError) as error:
        print(f"run_splits: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("run_splits: stopped; the same command goes on from here", file=sys.stderr)
        return 130
    except ValidationError as error:
        for each in error.errors():
            name = ".".join(map(str, each["loc"]))
            print(f"run_splits: {name}: found {each['input']!r}, {each['msg']}", file=sys.stderr)
        return 2
    except (ValueError, FloatingPointError) as error:
        print(f"run_splits: {error}", file=sys.stderr)
        return 2
    return 0


def run(request: argparse.Namespace) -> None:
    """Data -> splits -> calibration -> each piece of work -> rows -> tables and figures."""
    options = as_options(request)
    methods = chosen_methods(request.methods or f"standard,{request.generator}")
    experiment = open_experiment(options)
    splits = chosen_splits(experiment.splits, request.split)
    with under_way(options.out):
        if request.packed is not None:
            unpack(request.packed, options.out, experiment.settings())
        asked = {name: value if value is None else str(value) for name, value in vars(request).items()}
        record = {"options": asked, "environment": environment(experiment.device)}
        folder = RunFolder.open(options.out, experiment.settings(), record)
        announce(experiment, methods, splits, request)

        pieces = experiment.pieces(methods, splits, request.seeds)
        verify_published(experiment, pieces, may_lack_models=request.packed is not None)
        alone = (request.engine, request.workers) == ("local", 1)
        group_size = request.group or (len(pieces) if alone and experiment.device.type == "cuda" else 1)
        if group_size > 1:
            experiment.train_together(pieces, group_size)
        work(options, folder, pieces, request.engine, request.workers)

        rows = folder.collect({split.index: experiment.queries(split) for split in experiment.splits})
        time_designs(experiment, methods, splits)
        write_exhibits(experiment, rows)
        print(write_report(options.out))


def work(options: Options, folder: RunFolder, pieces: list[Piece], engine: str, n_workers: int) -> None:
    """Do what is not finished, stage after stage, and say how long the rest will take."""
    left = [piece for piece in pieces if not folder.is_finished(piece.name)]
    if len(left) < len(pieces):
        print(f"{len(pieces) - len(left)} of {len(pieces)} pieces of work were finished before", flush=True)
    started, n_done = time.monotonic(), 0
    for stage in stages(left):
        for piece, rows in ENGINES[engine](options, stage, n_workers):
            folder.finish(piece.name, rows)
            n_done += 1
            rate = (time.monotonic() - started) / n_done
            print(
                f"{piece.name}: {len(rows)} rows; {n_done} of {len(left)} pieces, "
                f"about {_minutes(rate * (len(left) - n_done))} left",
                flush=True,
            )


def verify_published(experiment: Experiment, pieces: list[Piece], *, may_lack_models: bool) -> None:
    """What was published before must still be there, whole; a packed run's models may be missing but where a piece
    that is yet to be done is made of one.
    """
    folder = experiment.folder
    needed = {piece.generator for piece in pieces if not folder.is_finished(piece.name)}
    trained = [piece for piece in pieces if piece.method in GENERATORS and folder.is_finished(piece.name)]
    may_miss = [piece for piece in trained if may_lack_models and piece not in needed]
    missing = [piece for piece in may_miss if not experiment.has_model(piece)]
    if missing:
        print(
            f"{len(missing)} models of finished pieces are not in {experiment.store.root}: their rows count, core "
            "times and listener pages leave them out",
            flush=True,
        )
    for piece in trained:
        if piece not in missing:
            experiment.store.verify(experiment.published(piece))


def chosen_splits(splits: list[Split], index: int | None) -> list[Split]:
    """All of them, or the one asked for."""
    chosen = splits if index is None else [each for each in splits if each.index == index]
    if not chosen:
        raise RunError(f"--split: found {index}, expected 0 to {len(splits) - 1}")
    return chosen


def as_options(request: argparse.Namespace) -> Options:
    """What the workers need of the command line; the window and conditions default to the generator's own."""
    choose_device(request.device)
    own = load_config(
        request.generator,
        window=request.window,
        regularisation=request.regularisation,
        n_updates=request.updates,
    )
    conditions = request.conditions or ("original" if request.quick else own.conditions)
    return Options(
        dataset=request.dataset,
        data=request.data,
        noise=request.noise,
        window=own.window,
        regularisation=own.regularisation,
        conditions=conditions,
        n_splits=request.splits,
        support=request.support,
        updates=request.updates,
        quick=request.quick,
        device=request.device,
        store=request.store,
        out=request.out,
    )


def announce(
    experiment: Experiment, methods: tuple[str, ...], splits: list[Split], request: argparse.Namespace
) -> None:
    """Say what is about to run, on what."""
    dataset, noise = experiment.dataset, experiment.noise
    for what, simulated in (("paths", dataset.is_simulated), ("noises", noise.is_simulated)):
        if simulated:
            print(f"SIMULATED {what}: the figures below are not of measured ears", flush=True)
    print(
        f"{dataset.name}: {len(dataset.listeners)} listeners, {len(dataset.pairs)} ears; "
        f"{len(splits[0].support)} in support, {len(splits[0].query)} held out; "
        f"{len(splits)} of {len(experiment.splits)} splits, {request.seeds} seeds, {experiment.device_name()}; "
        f"{', '.join(methods)}",
        flush=True,
    )
    for split in splits:
        print(f"split {split.index}: {', '.join(split.support)} in support", flush=True)
    if not computes_bfloat16(experiment.device):
        print("networks train in float32: this processor would emulate bfloat16", flush=True)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dataset", choices=("pandar", "ten-path", "simulated"), required=True)
    add("--data", type=Path, help="folder of the data set; any level of the PANDAR database")
    add("--noise", type=Path, help="folder of 48-kHz noises, or DEMAND; without it, simulated noises")
    add("--generator", choices=("prime", "prime-log"), default="prime-log", help="sets window and conditions")
    add("--methods", help=f"names and groups, separated by commas: {', '.join((*GROUPS, *NAMES))}")
    add("--splits", type=positive_integer, help="default: 10, in a quick run 1")
    add("--seeds", type=positive_integer, help="default: 3, in a quick run 1")
    add(
        "--updates",
        type=positive_integer,
        help="updates of a generator, a control or E2E-CFG (default: its recipe's)",
    )
    add("--store", type=Path, default=DEFAULT_ROOT, help="where checkpoints are published")
    add("--out", type=Path, required=True, help="folder of this run's rows, tables and figures")
    add(
        "--from",
        type=Path,
        dest="packed",
        metavar="FILE",
        help="a packed run to go on from (packed_run.py)",
    )
    add("--support", type=positive_integer, help="listeners in support (default: the paper's number or share)")
    add("--split", type=int, help="run only this split, counted from 0")
    add("--window", type=positive_integer, help="samples of the calibration's window")
    add("--regularisation", type=float, help="of the calibration's reference autospectrum, over its maximum")
    add("--conditions", choices=("original", "all"), help="all: with the three secondary-path variants")
    add("--engine", choices=tuple(ENGINES), default="local", help="local processes, or a Ray cluster")
    add("--workers", type=positive_integer, default=1, help="processes on this machine, which share its cores")
    add("--group", type=positive_integer, help="models trained as one program (default: all on a GPU, 1 on a CPU)")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add(
        "--quick",
        action="store_true",
        help="few updates, two held-out listeners: with the standard methods a check in two minutes",
    )
    options = parser.parse_args(arguments)
    if (options.group or 1) > 1 and (options.engine, options.workers) != ("local", 1):
        parser.error("--group: found several workers, expected --engine local --workers 1: a group is one program")
    options.splits = options.splits or (1 if options.quick else 10)
    options.seeds = options.seeds or (1 if options.quick else 3)
    return options


def positive_integer(text: str) -> int:
    """An option that counts something."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"found {value}, expected 1 or more")
    return value


if __name__ == "__main__":
    sys.exit(main())

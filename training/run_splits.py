"""Train and evaluate every method on splits of a path data set.

    python -m training.run_splits --dataset pandar --data DIR --noise DIR --methods all
        --splits 10 --seeds 3 --store DIR --out DIR

Trains and publishes a checkpoint for each generator, split and seed, fits and evaluates every other method on the
same cases, and writes tables and figures. Repeating the command resumes an interrupted run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from model_store.errors import ModelStoreError
from model_store.store import DEFAULT_ROOT
from training.checkpoints import verify_models
from training.config import load_config
from training.datasets.path_pairs import DatasetError, DatasetKind
from training.datasets.splits import Split
from training.methods import GROUPS, NAMES, chosen_methods
from training.packed_run import unpack
from training.precision import computes_bfloat16
from training.report import ReportError, write_report
from training.report_artifacts import write_core_times, write_listener_paths
from training.run_data import Options, Protocol, RunData, choose_device, open_run
from training.run_folder import RunError, RunFolder, environment, exclusive
from training.run_task import run_task, train_groups
from training.runner import RUNNERS, Runner, WorkerLost
from training.tasks import Task, list_tasks, stages

MISTAKES = (
    DatasetError, ModelStoreError, RunError, ReportError, WorkerLost,
    OSError, ImportError, ValueError, FloatingPointError,
)  # fmt: skip
"""Errors in the arguments, the data or the environment: reported in one line, without a traceback."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment and return the exit status: 2 for an error in the arguments, data or environment."""
    request = parse(arguments)
    try:
        run(request)
    except KeyboardInterrupt:
        print("run_splits: interrupted; repeat the command to resume", file=sys.stderr)
        return 130
    except ValidationError as error:
        for each in error.errors():
            name = ".".join(map(str, each["loc"]))
            print(f"run_splits: {name}: {each['input']!r}: {each['msg']}", file=sys.stderr)
        return 2
    except MISTAKES as error:
        print(f"run_splits: {error}", file=sys.stderr)
        return 2
    return 0


def run(request: argparse.Namespace) -> None:
    """Configuration -> data -> splits -> tasks -> (training in groups) -> each task -> rows -> report.

    `run_task` defines a task: training set, training, evaluation, publication.
    """
    options = as_options(request)
    methods = chosen_methods(request.methods or f"standard,{request.generator}")
    data = open_run(options)
    splits = chosen_splits(data.splits, request.split)
    with exclusive(options.out):
        folder = open_folder(data, request)
        announce(data, methods, splits, request)

        tasks = list_tasks(data, methods, splits, request.seeds)
        verify_models(data, tasks, may_lack_models=request.packed is not None)
        group_size = request.group or default_group(data, request, len(tasks))
        if group_size > 1:
            train_groups(data, tasks, group_size)
        run_tasks(RUNNERS[request.engine](partial(run_task, options), request.workers), folder, tasks)

        rows = folder.collect({split.index: data.queries(split) for split in data.splits})
        write_core_times(data, methods, splits)
        if data.shares_estimates:
            write_listener_paths(data, rows)
        print(write_report(options.out))


def open_folder(data: RunData, request: argparse.Namespace) -> RunFolder:
    """Open the run's folder, unpack the run given by `--from` into it, and record this invocation."""
    settings, out = data.settings(), data.options.out
    if request.packed is not None:
        unpack(request.packed, out, settings)
    asked = {name: value if value is None else str(value) for name, value in vars(request).items()}
    return RunFolder.open(out, settings, {"options": asked, "environment": environment(data.device)})


def default_group(data: RunData, request: argparse.Namespace, n_tasks: int) -> int:
    """Number of models to train together: all of them on a GPU if the run is a single process, else 1."""
    is_one_process = (request.engine, request.workers) == ("local", 1)
    return n_tasks if is_one_process and data.device.type == "cuda" else 1


def run_tasks(runner: Runner, folder: RunFolder, tasks: list[Task]) -> None:
    """Run the unfinished tasks, stage by stage, and print progress with the estimated time left."""
    left = [task for task in tasks if not folder.is_finished(task.name)]
    if len(left) < len(tasks):
        print(f"{len(tasks) - len(left)} of {len(tasks)} tasks were already finished", flush=True)
    started, n_done = time.monotonic(), 0
    for stage in stages(left):
        for task, rows in runner.run(stage):
            folder.finish(task.name, rows)
            n_done += 1
            rate = (time.monotonic() - started) / n_done
            print(
                f"{task.name}: {len(rows)} rows; {n_done} of {len(left)} tasks, "
                f"about {_minutes(rate * (len(left) - n_done))} left",
                flush=True,
            )


def chosen_splits(splits: list[Split], index: int | None) -> list[Split]:
    """All splits, or only the one with this index."""
    chosen = splits if index is None else [each for each in splits if each.index == index]
    if not chosen:
        raise RunError(f"--split: {index} does not exist; use 0 to {len(splits) - 1}")
    return chosen


def as_options(request: argparse.Namespace) -> Options:
    """The part of the request that workers receive; window and conditions default to the generator's
    configuration."""
    choose_device(request.device)  # raises if there is no such device, before any data is read
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
        protocol=request.protocol,
        window=own.window,
        regularisation=own.regularisation,
        calibration=request.calibration or ("paper" if request.protocol == "by-person" else "prior"),
        conditions=conditions,
        n_splits=request.splits,
        support=request.support,
        updates=request.updates,
        quick=request.quick,
        device=request.device,
        store=request.store,
        out=request.out,
    )


def announce(data: RunData, methods: tuple[str, ...], splits: list[Split], request: argparse.Namespace) -> None:
    """Print the data, splits, device and methods of this run."""
    dataset = data.dataset
    for what, is_simulated in (("paths", dataset.is_simulated), ("noises", data.noise.is_simulated)):
        if is_simulated:
            print(f"SIMULATED {what}: the results below are not for measured ears", flush=True)
    print(
        f"{dataset.name}: {len(dataset.listeners)} listeners, {len(dataset.pairs)} ears; "
        f"{len(splits[0].support)} in support, {len(splits[0].query)} held out; "
        f"{len(splits)} of {len(data.splits)} splits, {request.seeds} seeds, {data.device_name()}; "
        f"{', '.join(methods)}",
        flush=True,
    )
    for split in splits:
        known = ", ".join((*split.support, *split.support_recordings))
        print(f"split {split.index}: {known} in support", flush=True)
    if not computes_bfloat16(data.device):
        print("networks train in float32: this processor has no native bfloat16", flush=True)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--dataset", choices=get_args(DatasetKind), required=True)
    add(
        "--data",
        type=Path,
        help="folder of the data set (PANDAR: any folder that contains the database; index: "
        "the folder of index.csv, or a table of another name)",
    )
    add("--noise", type=Path, help="folder of noise recordings at 48 kHz, or of DEMAND (default: simulated noises)")
    add(
        "--generator",
        choices=("prime", "prime-log"),
        default="prime-log",
        help="also sets the default window and conditions",
    )
    add(
        "--protocol",
        choices=get_args(Protocol),
        default="by-person",
        help="what is held out: listeners (the paper's), or listeners and half of the recordings",
    )
    add("--methods", help=f"methods and groups of methods, comma-separated: {', '.join((*GROUPS, *NAMES))}")
    add("--splits", type=positive_integer, help="default: 10, or 1 with --quick")
    add("--seeds", type=positive_integer, help="default: 3, or 1 with --quick")
    add(
        "--updates",
        type=positive_integer,
        help="training updates of generators, controls and E2E-CFG (default: as configured for each)",
    )
    add("--store", type=Path, default=DEFAULT_ROOT, help="model store to publish checkpoints in")
    add("--out", type=Path, required=True, help="folder for the rows, tables and figures of this run")
    add(
        "--from",
        type=Path,
        dest="packed",
        metavar="FILE",
        help="packed run to continue (see training.packed_run)",
    )
    add("--support", type=positive_integer, help="number of support listeners (default: as in the paper)")
    add("--split", type=int, help="run only this split, counted from 0")
    add("--window", type=positive_integer, help="calibration window in samples")
    add(
        "--regularisation",
        type=float,
        help="regularisation of the calibration, relative to the maximum of the reference autospectrum",
    )
    add(
        "--calibration",
        choices=("paper", "prior"),
        help="regularised as in the paper, or under the prior of the support's listeners (default: paper, or prior "
        "by recording)",
    )
    add(
        "--conditions",
        choices=("original", "all"),
        help="original measurements only, or also the three variants of the secondary path",
    )
    add(
        "--engine",
        choices=tuple(RUNNERS),
        default="local",
        help="where tasks run: in local processes or on a Ray cluster",
    )
    add(
        "--workers", type=positive_integer, default=1, help="local processes, which share the cores of this machine"
    )
    add(
        "--group",
        type=positive_integer,
        help="number of models to train together (default: all on a GPU, 1 on a CPU)",
    )
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add(
        "--quick",
        action="store_true",
        help="few updates and two held-out listeners; two minutes with the standard methods",
    )
    request = parser.parse_args(arguments)
    if (request.group or 1) > 1 and (request.engine, request.workers) != ("local", 1):
        parser.error("--group: models that train together need one process; use --engine local --workers 1")
    request.splits = request.splits or (1 if request.quick else 10)
    request.seeds = request.seeds or (1 if request.quick else 3)
    return request


def positive_integer(text: str) -> int:
    """Parse an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not positive; use 1 or more")
    return value


if __name__ == "__main__":
    sys.exit(main())

"""Recompute the numbers and figures of docs/results.md: `python -m studies.results --data DIR [NAME ...]`.

DIR holds the PANDAR database and, in `noise/`, eight recordings; `foreign/` may hold other devices' pairs. Every name
is an experiment of `training.run_splits` or a study, with its rows in OUT/NAME. All of them take hours on a GPU and
days on a processor, most of it for trainings. The same command goes on where it was stopped. `--published` prints the
tables of the rows in this repository instead, without computing anything.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import pandas as pd

from training.report import checked, markdown, sections, summary
from training.rows import by_split, read_rows
from training.run_splits import main as run_splits

ROOT = Path(__file__).resolve().parents[1]
CONTROLS = "standard,prime,skip_mp,skip_mp_phase,no_skip_mp,no_skip_mp_phase"
# Options of `run_splits` per experiment.
RUNS = {
    "pandar-8192": "--splits 10 --seeds 3 --methods standard,prime-log,iterative_fir,fxlms,fxnlms",
    "pandar-4096": "--splits 10 --seeds 3 --split 0 --generator prime --methods all",
    "controls-4096": f"--splits 10 --seeds 1 --split 0 --generator prime --updates 1600 --methods {CONTROLS}",
}
STUDIES = ("everyday", "mistakes", "predictions", "foreign", "wearing", "hybrid", "new_device")


def published_rows(name: str) -> pd.DataFrame:
    """Return the rows behind the page; RunError or OSError if the repository has none."""
    if name in RUNS:
        return read_rows(ROOT / "docs" / "results" / f"{name}.parquet")
    return pd.read_csv(ROOT / "studies" / f"{name}.csv")


def tables(name: str, rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables of an experiment or study by title."""
    if name in RUNS:
        return {title: summary(section) for title, section in sections(checked(by_split(rows)))}
    make: Callable[[pd.DataFrame], pd.DataFrame] = import_module(f"studies.{name}").table
    return {name: make(rows).reset_index()}


def recomputed(name: str, request: argparse.Namespace) -> int:
    """Recompute one experiment or study, and return the exit status of its command."""
    command = ["--data", str(request.data), "--noise", str(request.noise or request.data / "noise")]
    command += ["--workers", str(request.workers)]
    if name in RUNS:
        return run_splits(["--dataset", "pandar", *command, "--out", str(request.out / name), *RUNS[name].split()])
    foreign = request.data / "foreign"
    command += ["--foreign", str(foreign)] if foreign.is_dir() else []
    status: int = import_module(f"studies.{name}").main([*command, "--out", str(request.out / f"{name}.csv")])
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Recompute or print, and return the exit status: that of the first command that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join((*RUNS, *STUDIES))} (default: all)"
    )
    parser.add_argument("--data", type=Path, help="folder of the measured data")
    parser.add_argument("--noise", type=Path, help="folder of noise recordings (default: DATA/noise)")
    parser.add_argument("--out", type=Path, default=Path("runs/results"))
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--published", action="store_true", help="print the tables of the published rows")
    request = parser.parse_args(arguments)
    names = request.names or [*RUNS, *STUDIES]
    if unknown := sorted({*names}.difference(RUNS, STUDIES)):
        parser.error(f"found {', '.join(unknown)}; use some of {', '.join((*RUNS, *STUDIES))}")
    if not request.published and request.data is None:
        parser.error("--data: name the folder of the measured data, or use --published")
    for name in names:
        print(f"=== {name}", flush=True)
        if not request.published:
            if status := recomputed(name, request):
                return status
        elif name != "new_device":  # whose rows are not published
            for title, table in tables(name, published_rows(name)).items():
                print(f"\n{title}\n\n{markdown(table)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

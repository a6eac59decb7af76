"""Recompute the numbers and figures of docs/results.md: `python -m studies.results --data DIR [NAME ...]`.

DIR holds the PANDAR database and, in `noise/`, eight recordings; `foreign/` may hold other devices' pairs. Every name
is an experiment of `training.run_splits` or a study, with its rows in OUT/NAME. All of them take hours on a GPU and
days on a processor, most of it for trainings. The same command goes on where it was stopped. `--published` prints the
tables of the rows in this repository instead, without computing anything.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pandas as pd

from studies import Request, computed, everyday, foreign, hybrid, mistakes, new_device, predictions, wearing
from training.datasets.noise import read_noise
from training.datasets.pandar import read_pandar
from training.datasets.path_pairs import DatasetError
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
STUDIES: dict[str, ModuleType] = {
    module.__name__.removeprefix("studies."): module
    for module in (everyday, mistakes, predictions, foreign, wearing, hybrid, new_device)
}
NAMES = (*RUNS, *STUDIES)


def published_rows(name: str) -> pd.DataFrame:
    """Return the rows behind the page."""
    if name in RUNS:
        return read_rows(ROOT / "docs" / "results" / f"{name}.parquet")
    return pd.read_csv(ROOT / "studies" / f"{name}.csv")


def tables(name: str, rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables of an experiment or study by title."""
    if name in RUNS:
        return {title: summary(section) for title, section in sections(checked(by_split(rows)))}
    return {name: STUDIES[name].table(rows).reset_index()}


def print_tables(name: str, rows: pd.DataFrame) -> None:
    """Print all tables of an experiment or study."""
    for title, table in tables(name, rows).items():
        print(f"\n{title}\n\n{markdown(table)}")


def recompute(name: str, request: argparse.Namespace) -> int:
    """Recompute one experiment or study, and return the exit status of an experiment's command."""
    noise = request.noise or request.data / "noise"
    if name in RUNS:
        command = ["--dataset", "pandar", "--data", str(request.data), "--noise", str(noise), *RUNS[name].split()]
        return run_splits([*command, "--workers", str(request.workers), "--out", str(request.out / name)])
    folder = request.data / "foreign"
    given = Request(read_pandar(request.data), read_noise(noise), request.data, folder if folder.is_dir() else None)
    print_tables(name, computed(STUDIES[name].cases(given), request.out / f"{name}.csv", request.workers))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Recompute or print, and return the exit status: that of the first command that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--data", type=Path, help="folder of the measured data")
    parser.add_argument("--noise", type=Path, help="folder of noise recordings (default: DATA/noise)")
    parser.add_argument("--out", type=Path, default=Path("runs/results"))
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--published", action="store_true", help="print the tables of the published rows")
    request = parser.parse_args(arguments)
    if unknown := sorted(set(request.names).difference(NAMES)):
        parser.error(f"found {', '.join(unknown)}; use some of {', '.join(NAMES)}")
    if not request.published and request.data is None:
        parser.error("--data: name the folder of the measured data, or use --published")
    for name in request.names or NAMES:
        print(f"=== {name}", flush=True)
        if request.published:
            if name != "new_device":  # whose rows are not published
                print_tables(name, published_rows(name))
            continue
        try:
            if status := recompute(name, request):
                return status
        except (DatasetError, OSError) as error:
            print(f"{parser.prog}: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

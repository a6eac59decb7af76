"""A run as one file that a repository can keep: reports are made from it, and a run goes on from it.

    python -m training.packed_run pack RUN FILE
    python -m training.packed_run unpack FILE RUN
    python -m training.run_splits ... --from FILE --out RUN
    python -m training.report FILE

FILE (`NAME.json.xz`) is JSON under xz: `settings` and `starts` as in run.json; `held_out`, the listeners of each
split in cases.csv; `core_times`, the text of core_time.csv; and `rows`, for each method a list for each column,
with the task of each row in the column `piece`. Columns compress a quarter better than rows. Published models,
training states and the listeners' paths are not in it.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from training.report.inputs import CORE_TIME_FILE
from training.run_folder import (
    RECORD_FILE,
    RunError,
    RunFolder,
    check_settings,
    read_record,
    read_rows,
    rounded,
    write_atomically,
)

TASK = "piece"
NUMBERS = {"split", "seed", "k", "window", "regularisation", "control_rms"}
"""The columns, beside those in dB, that hold numbers or nothing."""


class PackedRun(BaseModel):
    """What FILE holds, see above; rows: by method, by column."""

    model_config = ConfigDict(extra="forbid")

    settings: dict[str, Any]
    starts: list[dict[str, Any]]
    held_out: dict[int, tuple[str, ...]]
    core_times: str | None
    rows: dict[str, dict[str, list[Any]]]

    @field_validator("rows")
    @classmethod
    def _are_tables(cls, rows: dict[str, dict[str, list[Any]]]) -> dict[str, dict[str, list[Any]]]:
        if not rows:
            raise ValueError("there are no rows; a run has those of one method at least")
        for method, columns in rows.items():
            tasks = columns.get(TASK, [])
            if not tasks:
                raise ValueError(f"{method}: found no column {TASK!r} with rows in it")
            for name, values in columns.items():
                if len(values) != len(tasks):
                    raise ValueError(f"{method}: found {len(values)} values of {name!r} in {len(tasks)} rows")
                numbers = name in NUMBERS or name.endswith("_db")
                if numbers and not all(each is None or isinstance(each, int | float) for each in values):
                    raise ValueError(f"{method}: found text in {name!r}, expected numbers")
            for task in set(tasks):
                name = f"{method}/{task}"
                if not isinstance(task, str) or ".." in (method, task) or Path(name).parts != (method, task):
                    raise ValueError(f"found the task {name!r}, expected METHOD/TASK")
        return rows


def pack(run: Path, file: Path) -> None:
    """Write all that is finished in a run's folder into one file; RunError where there is nothing to write."""
    settings, starts = read_record(run / RECORD_FILE)
    core_times = run / CORE_TIME_FILE
    methods = sorted((run / "rows").glob("*/"))
    if not methods:
        raise RunError(f"{run}: no task is finished, so there is nothing to pack")
    packed = PackedRun(
        settings=settings,
        starts=[_without_folders(each) for each in starts],
        held_out=RunFolder(run).held_out(),
        core_times=core_times.read_text() if core_times.exists() else None,
        rows={folder.name: _columns(folder) for folder in methods},
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(packed.model_dump(mode="json"), separators=(",", ":"))
    write_atomically(file, lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def _without_folders(start: dict[str, Any]) -> dict[str, Any]:
    """A start whose options name files and folders by their last names: where they lay says nothing elsewhere."""
    options = start.get("options", {})
    return start | {
        "options": {name: Path(text).name if text and "/" in text else text for name, text in options.items()}
    }


def _columns(folder: Path) -> dict[str, list[Any]]:
    """A method's rows, all tasks, by column; a missing value is None."""
    tasks = [rounded(read_rows(file)).assign(**{TASK: file.stem}) for file in sorted(folder.glob("*.csv"))]
    rows = pd.concat(tasks, ignore_index=True).astype(object)
    return {str(name): column.where(column.notna(), None).tolist() for name, column in rows.items()}


def read_packed(file: Path) -> PackedRun:
    """RunError where the file is none."""
    try:
        return PackedRun.model_validate_json(lzma.decompress(file.read_bytes()))
    except ValidationError as error:
        first = error.errors()[0]
        reason = ".".join(map(str, first["loc"])) + f": {first['msg']}"
    except lzma.LZMAError as error:
        reason = str(error)
    raise RunError(f"{file}: cannot be read as a packed run ({reason})")


def unpack(file: Path, run: Path, settings: dict[str, Any] | None = None) -> None:
    """Make a run's folder of the file, or add to one what it lacks: a task that is there is kept.

    Raises RunError, and leaves the folder alone, where the file holds a run with other settings than `settings`
    (None: than the folder's own).
    """
    packed = read_packed(file)
    if settings is not None:
        check_settings(str(file), packed.settings, settings)
    record = run / RECORD_FILE
    if record.exists():
        check_settings(str(run), read_record(record)[0], packed.settings)
    folder = RunFolder(run)
    run.mkdir(parents=True, exist_ok=True)
    if not record.exists():
        folder.write_record(packed.settings, packed.starts)
    for method, columns in packed.rows.items():
        for task, rows in pd.DataFrame(columns).groupby(TASK, sort=False):
            name = f"{method}/{task}"
            if not folder.is_finished(name):
                folder.write_rows(name, rows.drop(columns=TASK))
    if packed.core_times is not None and not (run / CORE_TIME_FILE).exists():
        write_atomically(run / CORE_TIME_FILE, packed.core_times)
    if packed.held_out:
        folder.collect(packed.held_out)


def main(arguments: Sequence[str] | None = None) -> int:
    """Pack or unpack; returns the exit status. A mistake in the request is one line on standard error, status 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("pack", "unpack"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    request = parser.parse_args(arguments)
    try:
        (pack if request.action == "pack" else unpack)(request.source, request.target)
    except (RunError, OSError) as error:
        print(f"packed_run: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

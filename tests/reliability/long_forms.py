"""A long form cut short, through its command: what it wrote."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import results

Main = Callable[[Sequence[str]], int]


def outcome_of(main: Main, folder: Path, *arguments: str) -> dict[str, Any]:
    """The row that the command writes; its exit status must agree with it."""
    file = folder / "outcome.json"
    status = main((*arguments, "--device", "cpu", "--threads", "1", "--out", str(file)))
    row: dict[str, Any] = results.read(file)["rows"][0]
    assert row["held"] == (status == 0), row
    return row

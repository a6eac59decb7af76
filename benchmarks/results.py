"""The JSON file that a command writes, and where it lies."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

Row = dict[str, Any]

RESULTS_ROOT = Path("benchmarks") / "results"


def results_folder(out: Path | None, machine: dict[str, Any]) -> Path:
    """Where a command writes: `out`, or a folder named after the date and the device."""
    if out is not None:
        return out
    device = re.sub(r"[^a-z0-9]+", "-", str(machine["device"]).lower()).strip("-")
    return RESULTS_ROOT / f"{str(machine['created'])[:10]}-{device}"


def write(
    out: Path | None,
    benchmark: str,
    machine: dict[str, Any],
    settings: dict[str, Any],
    rows: list[Row],
    **more: Any,
) -> Path:
    """Write BENCHMARK.json with where, with what and what was measured; returns the file, and prints its name."""
    file = results_folder(out, machine) / f"{benchmark}.json"
    write_file(file, benchmark, machine, settings, rows, **more)
    return file


def write_file(
    file: Path, benchmark: str, machine: dict[str, Any], settings: dict[str, Any], rows: list[Row], **more: Any
) -> None:
    """The same into a file of any name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    document = {"benchmark": benchmark, "machine": machine, "settings": settings, **more, "rows": rows}
    file.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {file}", flush=True)


def read(file: Path) -> dict[str, Any]:
    """A document that `write` wrote."""
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def rounded(value: Any, digits: int = 5) -> Any:
    """Floats cut to `digits` significant digits, inside lists and dictionaries too."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(each, digits) for key, each in value.items()}
    return [rounded(each, digits) for each in value] if isinstance(value, list | tuple) else value

"""Write the JSON file of a command."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS_ROOT = Path("benchmarks") / "results"


def folder_for(out: Path | None, machine: dict[str, Any]) -> Path:
    """Return `out`, or the folder named after the machine, whose earlier run is replaced."""
    return out or RESULTS_ROOT / re.sub(r"[^a-z0-9]+", "-", str(machine["device"]).lower()).strip("-")


def write(
    file: Path,
    benchmark: str,
    machine: dict[str, Any],
    settings: dict[str, Any],
    rows: Sequence[Mapping[Any, Any]],
    **more: Any,
) -> None:
    """Write the rows with machine and settings."""
    file.parent.mkdir(parents=True, exist_ok=True)
    document = {"benchmark": benchmark, "machine": machine, "settings": settings, **more, "rows": rows}
    file.write_text(json.dumps(rounded(document), indent=1) + "\n")
    print(f"written: {file}", flush=True)


def rounded(value: Any, digits: int = 5) -> Any:
    """Round floats to `digits` significant digits, also inside lists and dictionaries; None for NaN."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: rounded(item, digits) for key, item in value.items()}
    return [rounded(item, digits) for item in value] if isinstance(value, list | tuple) else value

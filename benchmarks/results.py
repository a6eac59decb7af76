"""The JSON file that a command writes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

Row = dict[str, Any]

RESULTS_ROOT = Path("benchmarks") / "results"


def folder_for(out: Path | None, machine: dict[str, Any]) -> Path:
    """`out`, or the folder named for the machine, whose earlier run is replaced."""
    return out or RESULTS_ROOT / re.sub(r"[^a-z0-9]+", "-", str(machine["device"]).lower()).strip("-")


def write(
    file: Path, benchmark: str, machine: dict[str, Any], settings: dict[str, Any], rows: list[Row], **more: Any
) -> None:
    """Write what was measured, where and with which settings."""
    file.parent.mkdir(parents=True, exist_ok=True)
    document = {"benchmark": benchmark, "machine": machine, "settings": settings, **more, "rows": rows}
    file.write_text(json.dumps(rounded(document), indent=1) + "\n")
    print(f"written: {file}", flush=True)


def rounded(value: Any, digits: int = 5) -> Any:
    """Floats rounded to `digits` significant digits, inside lists and dictionaries too."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(item, digits) for key, item in value.items()}
    return [rounded(item, digits) for item in value] if isinstance(value, list | tuple) else value

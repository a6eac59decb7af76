"""Write the JSON file of a command."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd

RESULTS_ROOT = Path("benchmarks") / "results"


def folder_for(out: Path | None, machine: dict[str, Any]) -> Path:
    """Return `out`, or the folder named after the machine, whose earlier run is replaced."""
    return out or RESULTS_ROOT / re.sub(r"[^a-z0-9]+", "-", str(machine["device"]).lower()).strip("-")


def write(
    file: Path,
    benchmark: str,
    machine: dict[str, Any],
    settings: dict[str, Any],
    rows: pd.DataFrame,
    **more: Any,
) -> None:
    """Write the rows with machine and settings."""
    file.parent.mkdir(parents=True, exist_ok=True)
    document = {"benchmark": benchmark, "machine": machine, "settings": settings, **more}
    document["rows"] = json.loads(rows.to_json(orient="records", double_precision=5))
    file.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {file}", flush=True)

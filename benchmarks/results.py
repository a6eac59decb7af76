"""Write the JSON file of a command."""

from __future__ import annotations

import json
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import pandas as pd

RESULTS_ROOT = Path("benchmarks") / "results"


def write(
    options: Namespace,
    name: str,
    machine: dict[str, Any],
    settings: dict[str, Any],
    rows: pd.DataFrame,
    **more: Any,
) -> None:
    """Write NAME.json with rows, machine and settings into `--out`, or the folder named after the machine."""
    folder = options.out or RESULTS_ROOT / re.sub(r"[^a-z0-9]+", "-", machine["device"].lower()).strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine, "settings": settings, **more}
    document["rows"] = json.loads(rows.to_json(orient="records", double_precision=5))
    file = folder / f"{name}.json"
    file.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {file}", flush=True)

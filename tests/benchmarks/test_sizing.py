"""`python -m benchmarks sizing` in a tiny form: a real service, with one core and with all."""

import json
import os
from pathlib import Path

from benchmarks.__main__ import main


def test_the_command_counts_designs_by_cores_and_clients(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    assert main(["sizing", "--quick", "--device", "cpu", "--out", str(tmp_path)]) == 0
    assert os.sched_getaffinity(0) == before
    rows = json.loads((tmp_path / "sizing.json").read_text())["rows"]
    cores = sorted({1, len(before)})
    assert [(row["cores"], row["clients"]) for row in rows] == [(n, each) for n in cores for each in (1, 16)]
    assert all(row["designs_per_s"] > 0.1 and 0 < row["p50"] <= row["p99"] for row in rows)

"""`python -m benchmarks start` in a tiny form: real starts of the service, each stopped again."""

import json
from pathlib import Path

import pytest

from benchmarks.__main__ import main


def test_the_command_times_real_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", "--quick", "--threads", "1", "--device", "cpu", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "start.json").read_text())
    assert {"created", "commit", "device", "quiet"} <= set(found["machine"])
    assert found["settings"]["arguments"] == ["--device", "cpu", "--threads", "1"]
    (row,) = found["rows"]
    assert row["n"] == len(row["each_s"]) == 2
    assert 0.5 < min(row["each_s"]) <= row["p50_s"] <= row["max_s"] == max(row["each_s"])
    assert capsys.readouterr().out.count("ready after") == 2

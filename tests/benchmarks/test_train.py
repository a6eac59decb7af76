"""`python -m benchmarks train` in a tiny form."""

import json
from pathlib import Path

from benchmarks.__main__ import main


def test_a_short_run_is_extrapolated_and_says_so(tmp_path: Path) -> None:
    asked = ["train", "--quick", "--threads", "1", "--device", "cpu", "--groups", "1", "2", "--out", str(tmp_path)]
    assert main(asked) == 0
    one, two = json.loads((tmp_path / "train.json").read_text())["rows"]
    assert (one["group"], two["group"]) == (1, 2)
    for row in (one, two):
        assert row["extrapolated"] is True
        assert row["timed_updates"] < row["recipe_updates"]
        expected = row["recipe_updates"] / row["updates_per_s"] / row["group"]
        assert abs(row["seconds_per_model"] / expected - 1) < 1e-3

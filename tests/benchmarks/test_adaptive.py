"""`python -m benchmarks adaptive` in a tiny form."""

import json
from pathlib import Path

from benchmarks.__main__ import main
from synthesis.conventions import SAMPLE_RATE_HZ


def test_both_methods_say_how_fast_they_are_and_how_they_ended(tmp_path: Path) -> None:
    assert main(["adaptive", "--quick", "--threads", "1", "--device", "cpu", "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "adaptive.json").read_text())
    assert [row["method"] for row in document["rows"]] == ["fxlms", "fxnlms"]
    for row in document["rows"]:
        assert (row["adapted_s"], row["stopped"], row["n_divergences"]) == (1.0, "cap", 0)
        assert row["noise_reduction_db"] > 0, "a second on white noise must have reduced something"
        assert abs(row["times_real_time"] * SAMPLE_RATE_HZ / row["samples_per_s"] - 1) < 1e-3
    assert document["data"]["measured"] is False

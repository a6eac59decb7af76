"""`python -m benchmarks.side_by_side`, short, against this checkout twice; and what is made of the times."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks import results, side_by_side
from benchmarks.http import Loop

ROOT = Path(__file__).parents[2]


def test_two_checkouts_are_asked_in_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "side_by_side.json"
    asked = ("--requests", "3", "--rounds", "2", "--kinds", "binary, impulse", "--device", "cpu", "--threads", "1")
    side_by_side.main(("--other", str(ROOT), "--out", str(file), *asked))  # whether it held is a matter of times
    document = results.read(file)
    (outcome,) = document["rows"]
    assert document["settings"]["other"] == ROOT.name
    assert [(row["service"], row["n"], row["failed"]) for row in outcome["rows"]] == [
        ("this", 6, []),
        ("other", 6, []),
    ]
    (ratios,) = outcome["ratios"].values()
    assert set(ratios) == {"p50", "p99"}
    assert all(0 < low <= high for _, low, high in ratios.values())
    assert "overhead of this over the other" in capsys.readouterr().out


def loops(overhead_ms: float, core_ms: float, seed: int) -> list[Loop]:
    """Ten rounds of twenty answers, each with up to a tenth more than that."""
    draw = np.random.default_rng(seed)
    rounds = []
    for _ in range(10):
        spent = core_ms + 1.0 + overhead_ms * draw.uniform(1, 1.1, 20)
        server = {"core": core_ms, "decode": 1.0, "total": core_ms + 1.0}
        rounds.append(Loop(latency_ms=list(spent), server_ms=[server] * 20, seconds=1.0))
    return rounds


def test_the_ratio_is_of_what_lies_around_the_design() -> None:
    """A service that designs faster and costs twice as much around it, in any round that is drawn."""
    rounds = {"this": loops(2.0, 3.0, 0), "other": loops(1.0, 30.0, 1)}
    for level in side_by_side.LEVELS:
        of, low, high = side_by_side.ratio(rounds, level)
        assert 2 / 1.1 < low <= of <= high < 2 * 1.1
    row = side_by_side.together(rounds["other"])
    assert row["n"] == 200
    assert row["answers_per_s"] == pytest.approx(20)

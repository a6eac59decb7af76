"""The short form of `benchmarks.lanes`: everything in it runs; its times mean nothing here."""

from pathlib import Path

from benchmarks import lanes
from model_store.store import ModelStore
from tests.service import models


def test_every_companion_is_measured_with_and_without_the_side_lane(tmp_path: Path) -> None:
    ModelStore(tmp_path, include_bundled=False).publish("ears", models.checkpoint(1))
    arguments = ("--device", "cpu", "--threads", "1", "--model", "ears")
    figures = lanes.run(10, 1, 0.01, *arguments, store=tmp_path)
    assert set(figures) == {"with", "without"}
    for found in figures.values():
        assert set(found) == {"alone", "read", "elsewhere", "json", "binary"}
        assert all(summary["requests"] == 10 for summary in found.values())
        assert all(0 < summary["own_p50_ms"] <= summary["total_p99_ms"] for summary in found.values())
        assert found["alone"]["beside"] == found["elsewhere"]["beside"] == 0
        assert all(found[what]["beside"] > 0 for what in ("read", "json", "binary"))
    factors = lanes.ratios(figures)
    assert all(factor > 0 for factor in factors.values())
    assert len(factors) == 8

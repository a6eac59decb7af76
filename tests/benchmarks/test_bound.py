"""What is recorded of a design is what it does, and its counts are those of its mathematics."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import bound, floor
from benchmarks.__main__ import main
from benchmarks.bound import Recorded, recorded_design, recording
from benchmarks.ears import Ears
from model_store.store import ModelStore
from synthesis.cpu.transforms import RealTransform
from synthesis.gauss_newton import FAST
from synthesis.synthesizer import Synthesizer


@pytest.fixture
def synthesizer() -> Synthesizer:
    return ModelStore().load("default").synthesizer(torch.float32, "cpu")


def test_operators_calls_and_products_are_noted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    transform = RealTransform(16)
    monkeypatch.setattr(Recorded, "calls", [])
    with recording():
        found = np.zeros(8, np.float32)
        found += 3
        total = float((np.exp(found) @ found[:8]) + found.sum())
        spectrum = transform.forward(found)
    names = [call.key[0] for call in Recorded.calls or []]
    assert names == ["add", "exp", "__getitem__", "matmul", "add", "forward"]
    assert [call.kind for call in Recorded.calls or []] == ["calls"] * 3 + ["products", "calls", "transforms"]
    assert [call.flop for call in Recorded.calls or []] == [0, 0, 0, 16, 0, 0]
    assert total == pytest.approx(24 * np.exp(3) + 24)
    assert spectrum[0] == 24
    for call in Recorded.calls or []:
        call.again()
    assert float(found[0]) == 3  # what is made again is made elsewhere


def test_transforms_and_products_are_the_floor_s(synthesizer: Synthesizer, ears: Ears) -> None:
    config = synthesizer.generator.config
    recorded = recorded_design(synthesizer, ears, 1)
    for stage, least in floor.stages(config, FAST, 1).items():
        points = [call.n_points for call in recorded[stage] if call.n_points]
        found = {n: points.count(n) for n in set(points)}
        if stage == "reconstruct":  # a response far below its ceiling is left as it is
            assert all(found[n] in (count, count - 3) for n, count in least.transforms.items())
        else:
            assert found == dict(least.transforms), stage
    flop = sum(call.flop for call in recorded["generate"])
    inner, points = 2 * len(config.dilations), floor.n_points(config)
    convolutions = floor.generate(config).other_operations - 10 * (inner + 2) * config.n_channels * points
    assert 1 < flop / convolutions < 1.05  # the biases and the norms' means


def test_recording_leaves_a_design_as_it_is(synthesizer: Synthesizer, ears: Ears) -> None:
    stages: dict[str, list[torch.Tensor]] = {"plain": [], "recorded": []}
    for name, found in stages.items():
        with recording() if name == "recorded" else torch.inference_mode():
            schedule, design = bound.one_design(synthesizer, ears, 2)
            design(bound.MarkingClock(lambda stage: None))
            found += [schedule.taps.clone(), schedule.predict("model", bound.MarkingClock(lambda _: None)).clone()]
    assert all(torch.equal(*pair) for pair in zip(*stages.values(), strict=True))


def test_the_command_sets_a_bound_beside_every_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bound", "--quick", "--threads", "1", "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "bound.json").read_text())
    assert document["machine"]["transforms"] in ("FFTW", "SciPy")
    rows = {(row["stage"], row["k"]): row for row in document["rows"]}
    for k in (0, 1, 3):
        parts = [rows[stage, k]["sum_ms"] for stage in ("path_ratio", "generate", "reconstruct", "refine")]
        assert rows["core", k]["sum_ms"] == pytest.approx(sum(parts), rel=1e-3)
    for row in rows.values():
        assert row["calls"] > 10
        kinds = [row[f"{kind}_ms"] for kind in bound.KINDS]
        assert 0 < row["sum_ms"] == pytest.approx(sum(kinds), rel=1e-3)
        assert row["sum_over_measured"] == pytest.approx(row["sum_ms"] / row["measured_ms"]["p50"], rel=1e-3)
    assert capsys.readouterr().out.count("\n| ") >= 11

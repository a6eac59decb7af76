"""Operators and bytes as they are counted, by hand on small programs and against torch's profiler on a design."""

import json
from collections import Counter
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.__main__ import main
from benchmarks.ears import Ears
from benchmarks.trace import Counting, MarkingClock, traced
from model_store.store import ModelStore
from service.engine.schedule import Schedule
from synthesis.conventions import STAGES
from synthesis.gpu.served import (
    LAUNCHES_AROUND_A_SOLVE,
    LAUNCHES_TO_BEGIN,
    LAUNCHES_TO_CORRECT,
    LAUNCHES_TO_PREDICT,
    LAUNCHES_TO_READ,
    LAUNCHES_TO_REALISE,
    N_LAUNCHES,
)


def test_views_cost_nothing_and_bytes_are_read_and_written() -> None:
    a, b = torch.ones(4, 8), torch.ones(8)
    with torch.inference_mode(), Counting() as counting:
        found = (a[1:3] * b.expand(2, 8)).reshape(16)
    assert torch.equal(found, torch.ones(16))
    assert counting.counts == {"mul": 1}
    assert counting.bytes == {"mul": 4 * (16 + 8 + 16)}  # half of a, b where it is stored, the product


def test_a_composite_operator_is_counted_as_what_it_is_made_of() -> None:
    with torch.inference_mode(), Counting() as counting:
        torch.fft.irfft(torch.fft.rfft(torch.ones(3, 16)) + 1)
    assert {"_fft_r2c", "_fft_c2r", "add"} <= set(counting.counts)
    assert not any(name.startswith("fft_") for name in counting.counts)


def test_writing_in_place_counts_once() -> None:
    buffer = torch.zeros(10)
    with torch.inference_mode(), Counting() as counting:
        buffer.copy_(torch.ones(10))
    assert counting.counts["copy_"] == 1
    assert counting.bytes["copy_"] == 2 * 40


def test_the_counts_are_the_profiler_s(ears: Ears) -> None:
    synthesizer = ModelStore().load("default").synthesizer(torch.float32, "cpu")
    counted: Counter[str] = Counter()
    for row in traced(synthesizer, ears, 1, 1, fused=False):
        counted.update(row["counts"])
    schedule = Schedule(synthesizer, 1)
    clock = MarkingClock(lambda stage: None)

    def design() -> None:
        schedule.design("prime", 1, "fast", clock)
        schedule.predict("model", clock)

    design()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        design()
    seen = Counter(each.name.removeprefix("aten::") for each in profiler.events() or [])
    for name in ("mul", "_fft_r2c", "_fft_c2r", "native_group_norm", "convolution", "clamp_min", "sqrt", "log"):
        assert counted[name] == seen[name], name


def test_what_is_fused_counts_as_its_launches(ears: Ears) -> None:
    synthesizer = ModelStore().load("default").synthesizer(torch.float32, "cpu")
    plain, fused = (
        {row["stage"]: row["counts"] for row in traced(synthesizer, ears, 1, 2, fused=each)}
        for each in (False, True)
    )
    expected = {
        "path_ratio": {"fused features": LAUNCHES_TO_READ},
        "generate": {"fused layers": LAUNCHES_TO_CORRECT},
        "reconstruct": {"fused filter": LAUNCHES_TO_REALISE, "fused solve": N_LAUNCHES},
        "refine": {
            "fused updates": LAUNCHES_TO_BEGIN + 2 * LAUNCHES_AROUND_A_SOLVE,
            "fused solve": 2 * N_LAUNCHES,
        },
        "predict": {"fused prediction": LAUNCHES_TO_PREDICT},
    }
    for stage, counts in fused.items():
        assert {name: count for name, count in counts.items() if "fused" in name} == expected[stage]
        assert plain[stage]["convolution" if stage == "generate" else "_fft_r2c"] > 0
        assert not {"_fft_r2c", "_fft_c2r", "log", "log10", "exp", "convolution"} & set(counts)


def test_outputs_are_no_copies_and_every_replay_is_a_graph(ears: Ears) -> None:
    """As many as are replayed for two updates: the start, each of them and the result."""
    synthesizer = ModelStore().load("default").synthesizer(torch.float32, "cpu")
    rows = {row["stage"]: row for row in traced(synthesizer, ears, 1, 2)}
    graphs = {"path_ratio": 1, "generate": 1, "reconstruct": 1, "refine": 4, "predict": 1}
    assert {stage: row["graphs"] for stage, row in rows.items()} == graphs
    assert rows["generate"]["counts"] == {"fused layers": LAUNCHES_TO_CORRECT}
    # The start's taps and the refined ones, from one stage's buffer into another's.
    assert [rows[stage]["counts"].get("copy_", 0) for stage in graphs] == [0, 0, 0, 2, 0]


def test_the_command_counts_every_stage(tmp_path: Path) -> None:
    options = ["--threads", "1", "--device", "cpu", "--batches", "1", "2"]
    assert main(["trace", *options, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "trace.json").read_text())
    designs: dict[tuple[str, int, int], list[str]] = {}
    for row in found["rows"]:
        designs.setdefault((row["generator"], row["batch"], row["k"]), []).append(row["stage"])
    batches = ("prime-log", 1), ("prime-log", 2), ("prime", 1)
    assert set(designs) == {(*each, k) for each in batches for k in (0, 1, 3)}
    for stages in designs.values():
        assert stages == [stage for stage in STAGES if stage in stages]
        assert {"path_ratio", "generate", "reconstruct", "refine", "predict"} == set(stages)
    one, three = (
        next(row["operators"] for row in found["rows"] if (row["k"], row["stage"]) == (k, "refine")) for k in (1, 3)
    )
    assert three - one == 2 * (LAUNCHES_AROUND_A_SOLVE + N_LAUNCHES)
    assert found["kernels"] == []

"""The floor of each stage: below what is done, and by the same formulas that counters confirm."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import floor
from benchmarks.__main__ import main
from benchmarks.ears import Ears
from benchmarks.trace import MarkingClock
from model_store.store import ModelStore
from service.engine.schedule import Schedule
from synthesis.gauss_newton import FAST
from synthesis.generator import Generator, GeneratorConfig


class Transforms(TorchDispatchMode):
    """Real transforms by their points, each item of a batch counted."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[int] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with self:
            decomposed = func.decompose(*args, **(kwargs or {}))
        if decomposed is not NotImplemented:
            return decomposed
        if func._schema.name in ("aten::_fft_r2c", "aten::_fft_c2r"):
            is_inverse = func._schema.name.endswith("c2r")
            points = int(args[3]) if is_inverse else args[0].shape[-1]
            self.found[points] += args[0].numel() // args[0].shape[-1]
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("config", [GeneratorConfig.prime_log(), GeneratorConfig.prime(4096)], ids=lambda c: c.kind)
def test_a_generator_s_operations_are_its_convolutions(config: GeneratorConfig) -> None:
    generator = Generator(config)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        generator(torch.zeros(1, 12, floor.n_points(config)))
    width, inner = config.n_channels, 2 * len(config.dilations)
    others = 10 * (inner + 2) * width * floor.n_points(config)
    assert floor.generate(config).other_operations - others == counter.get_total_flops()


@pytest.mark.parametrize("kind", ["prime-log", "prime"])
def test_no_stage_does_with_fewer_transforms(kind: str, ears: Ears) -> None:
    synthesizer = ModelStore().load("default").synthesizer(torch.float32, "cpu")
    if kind == "prime":
        synthesizer.generator = Generator(GeneratorConfig.prime()).eval()
    schedule = Schedule(synthesizer, 1)
    counted: dict[str, Counter[int]] = {}
    k = 1

    def design(clock: MarkingClock) -> None:
        schedule.design("prime", k, "fast", clock)
        schedule.predict("model", clock)

    design(MarkingClock(lambda stage: None))
    with Transforms() as transforms:

        def ended(stage: str) -> None:
            counted[stage] = transforms.found.copy()
            transforms.found.clear()

        design(MarkingClock(ended))
    least = floor.stages(synthesizer.generator.config, FAST, k)
    assert set(least) == set(counted)
    for stage, work in least.items():
        done = floor.Work(counted[stage]).transform_operations
        # What is done beyond the floor is a matter of the benchmark, not of a test; far beyond, the floor is wrong.
        assert work.transform_operations <= done <= 2 * work.transform_operations, (stage, work.transforms, counted)


def test_the_command_follows_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["floor", "--threads", "1", "--device", "cpu", "--out", str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "floor.json").read_text())["rows"]
    # For each of two generators the head, four stages, the refinement three times.
    assert capsys.readouterr().out.count("\n| ") == 16
    assert {row["generator"] for row in rows} == {"prime-log", "prime"}
    of_refine = {row["k"]: row for row in rows if row["stage"] == "refine"}
    assert of_refine[0]["megaflop"] < of_refine[1]["megaflop"] < of_refine[3]["megaflop"]
    assert of_refine[3]["barriers"] - of_refine[0]["barriers"] == 3 * (
        of_refine[1]["barriers"] - of_refine[0]["barriers"]
    )

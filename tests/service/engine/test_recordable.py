"""What is recorded never asks what a tensor holds: every stage runs on tensors that hold nothing.

A fake tensor has a shape and no values, so an operator whose result or whose shape depends on them raises, as it
would wait for the device, or spoil the graph, where a stage is captured.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)

from service.engine.schedule import Schedule
from service.engine.stage_clock import StageClock
from synthesis.cuda_graph import GraphedStage
from synthesis.gauss_newton import PROFILES
from synthesis.generator import Generator, GeneratorConfig
from synthesis.synthesizer import Synthesizer

METHODS = ("prime", "ratio_base", "projected_ratio")
"""All but `wmmse`, which the host solves and nobody records."""

KINDS = [GeneratorConfig.prime_log(), GeneratorConfig.prime()]


@pytest.fixture(scope="module", params=KINDS, ids=lambda each: str(each.kind))
def synthesizer(request: pytest.FixtureRequest) -> Synthesizer:
    """A model of either kind. What is computed once and kept has been: it is not to be kept as a fake."""
    own = Synthesizer(Generator(request.param), torch.full((16_385,), 1e-4), torch.full((2, 31), 0.01)).eval()
    run_every_stage(own, n_updates=1)
    return own


@pytest.fixture
def valueless(synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """New tensors hold nothing, and have no address."""
    monkeypatch.setattr(GraphedStage, "_buffer_addresses", lambda self: ())
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield


def run_every_stage(synthesizer: Synthesizer, n_updates: int) -> list[Tensor]:
    """Record and run all stages for two ears; what came out."""
    schedule = Schedule(synthesizer, 2)
    clock = StageClock(torch.device("cpu"))
    clock.start()
    return [
        *(schedule.design(method, n_updates, "fast", clock) for method in METHODS),
        *(schedule.design("prime", n_updates, profile, clock) for profile in PROFILES),
        *(schedule.predict(basis, clock) for basis in ("coherence", "model")),
    ]


@pytest.mark.usefixtures("valueless")
@pytest.mark.parametrize("n_updates", range(4))
def test_no_stage_reads_a_value(synthesizer: Synthesizer, n_updates: int) -> None:
    found = run_every_stage(synthesizer, n_updates)
    assert all(isinstance(each, FakeTensor) for each in found)


READINGS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda each: each.sum().item(),
    "bool": lambda each: bool((each > 0).all()),
    "list": lambda each: each[0].tolist(),
    "nonzero": lambda each: each.nonzero(),
    "mask": lambda each: each[each > 0],
}


@pytest.mark.usefixtures("valueless")
@pytest.mark.parametrize(
    ("stage", "reading"),
    [
        *((stage, "item") for stage in ("path_ratio", "generate", "reconstruct", "refining", "predict")),
        *(("solve", reading) for reading in READINGS),
    ],
)
def test_a_stage_that_reads_one_is_caught(
    stage: str, reading: str, synthesizer: Synthesizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`solve` is where an update is."""
    own = getattr(synthesizer, stage)

    def reads(*arguments: Any, **options: Any) -> Any:
        READINGS[reading](synthesizer.reference_psd + 0)
        return own(*arguments, **options)

    monkeypatch.setattr(synthesizer, stage, reads)
    with pytest.raises((DataDependentOutputException, DynamicOutputShapeException)):
        run_every_stage(synthesizer, 1)

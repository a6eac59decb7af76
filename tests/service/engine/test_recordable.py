"""What is recorded never asks what a tensor holds, and takes nothing from the host.

A fake tensor has a shape and no values, so an operator whose result or whose shape depends on them raises, as it
would wait for the device, or spoil the graph, where a stage is captured. A device without memory, `meta`, shows
what is copied to it: a tensor made of a Python list, or made on the host and taken over, is a copy from pageable
memory that the device is waited for, which cannot be captured either. Constants are made before, in the warm-up.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
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
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks import paper_refinement
from service.engine import schedule as schedule_module
from service.engine.ear_buffers import EarInputs
from service.engine.schedule import Schedule
from service.engine.stage_clock import StageClock
from synthesis.channels_last import for_inference
from synthesis.conventions import N_BINS, N_TAPS
from synthesis.cuda_graph import GraphedStage
from synthesis.gauss_newton import PROFILES
from synthesis.generator import Generator, GeneratorConfig
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import Synthesizer
from tests.synthesis.gpu.launches import Launches

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
@pytest.mark.parametrize("n_updates", [0, 2])
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


class NothingOfNumbers(TorchFunctionMode):
    """Raises where a tensor on `meta` is made of Python's numbers, which no operator shows."""

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call, and look at where the result is."""
        result = func(*args, **(kwargs or {}))
        makes = func in (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)
        indexes = func in (Tensor.__getitem__, Tensor.__setitem__)
        numbers = (makes and not isinstance(args[-1], Tensor)) or (indexes and _holds_list(args[1]))
        if numbers and (args[0] if indexes else result).device.type == "meta":
            raise AssertionError(f"{func.__name__} brings numbers from the host")
        return result


def _holds_list(index: object) -> bool:
    return any(isinstance(each, list) for each in (index if isinstance(index, tuple) else (index,)))


class NothingOfTensors(TorchDispatchMode):
    """Raises where an operator on `meta` reads a tensor on the host. A single number may go along with a launch."""

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run the operator, and look at where its tensors are."""
        given = [each for each in tree_leaves((args, kwargs or {})) if isinstance(each, Tensor)]
        result = func(*args, **(kwargs or {}))
        made = [each for each in tree_leaves(result) if isinstance(each, Tensor)]
        name = str(func._schema.name).removeprefix("aten::")
        on_device = any(each.device.type == "meta" for each in (*given, *made))
        taken = [
            each for each in given if each.device.type == "cpu" and (each.ndim or name in ("copy_", "_to_copy"))
        ]
        if on_device and taken:
            raise AssertionError(f"{name} brings {[tuple(each.shape) for each in taken]} from the host")
        return result


@contextmanager
def nothing_from_the_host() -> Iterator[None]:
    """Raises where anything on `meta` comes from the host."""
    with NothingOfNumbers(), NothingOfTensors():
        yield


@pytest.fixture
def on_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule's ears lie on `meta`."""

    def ears(batch_size: int, reference_psd: Tensor) -> SimpleNamespace:
        def rows(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.empty(batch_size, *shape, dtype=dtype, device="meta")

        paths = (rows(N_BINS, dtype=torch.complex64) for _ in range(2))
        return SimpleNamespace(device=EarInputs(*paths, rows(N_BINS), rows(N_BINS), rows(1)))

    monkeypatch.setattr(schedule_module, "EarBuffers", ears)


def by_torch(config: GeneratorConfig, monkeypatch: pytest.MonkeyPatch) -> Synthesizer:
    """A model on `meta`, in the form that is served."""
    own = Synthesizer(Generator(config), torch.full((16_385,), 1e-4), torch.full((2, 31), 0.01)).eval()
    own.generator = for_inference(own.generator)
    return own.to("meta")


def by_kernels(config: GeneratorConfig, monkeypatch: pytest.MonkeyPatch) -> Synthesizer:
    """The same, with kernels that compute nothing."""
    pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
    from synthesis.gpu import features, fir_wiener, generator, prediction, refinement, toeplitz

    for module in (features, fir_wiener, generator, prediction, refinement, toeplitz):
        for name in module.N_WARPS:
            monkeypatch.setattr(module, name, Launches(name, Counter()))
    own = by_torch(config, monkeypatch)
    own.generator = generator.for_kernels(Generator(config)).to("meta")
    own.solve, own.read, own.realise = toeplitz.solve, features.read, fir_wiener.realised
    own.begin_updates, own.foresee = refinement.refining, prediction.predict
    return own


@pytest.mark.usefixtures("on_no_memory")
@pytest.mark.parametrize(
    ("make", "config"),
    [(by_torch, KINDS[0]), (by_torch, KINDS[1]), (by_kernels, KINDS[0])],
    ids=["prime-log", "prime", "kernels"],
)
def test_no_stage_takes_anything_from_the_host(
    make: Callable[..., Synthesizer], config: GeneratorConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    synthesizer = make(config, monkeypatch)
    run_every_stage(synthesizer, 1)  # what is computed once and kept has been
    with nothing_from_the_host():
        found = run_every_stage(synthesizer, 1)
    assert {each.device.type for each in found} == {"meta"}


def paper_update() -> tuple[Tensor, ...]:
    """What `benchmarks.designers` records."""
    path, taps = torch.empty(2, N_BINS, dtype=torch.complex64, device="meta"), torch.empty(2, N_TAPS, device="meta")
    return paper_refinement.refine(AcousticPaths(path, path), taps, torch.empty(N_BINS, device="meta"), 1)


def test_the_papers_refinement_takes_nothing_from_the_host() -> None:
    paper_update()
    with nothing_from_the_host():
        assert paper_update()[0].device.type == "meta"


COPIES: dict[str, Callable[[Tensor], object]] = {
    "list": lambda each: each.new_tensor([0.0, 1.0]),
    "number": lambda each: torch.tensor(1.0, device=each.device),
    "made there": lambda each: torch.arange(3).to(each.device),
    "into a buffer": lambda each: each.copy_(torch.zeros(N_BINS)),
    "indices": lambda each: each[[0, 2]],
}


@pytest.mark.parametrize("copy", COPIES)
def test_a_copy_from_the_host_is_caught(copy: str) -> None:
    there = torch.empty(N_BINS, device="meta")
    with nothing_from_the_host(), pytest.raises(AssertionError, match="from the host"):
        COPIES[copy](there)

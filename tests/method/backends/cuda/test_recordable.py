"""Recorded stages never read a tensor's values, and take nothing from the host.

A tensor on `meta` has a shape and no values, so an operator whose result depends on values raises, as it would
spoil a CUDA graph. What is copied to it shows: a tensor made of a Python list, or made on the host and moved, is a
copy from pageable memory, which cannot be captured either.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from prime_anc.method.backends.cuda.graphs import RECORDED_METHODS
from prime_anc.method.backends.cuda.stages import Stages
from prime_anc.method.backends.reference import build_synthesizer
from prime_anc.method.conventions import N_BINS, N_TAPS
from prime_anc.method.paths import AcousticPaths
from prime_anc.method.profiles import MAX_UPDATES, PROFILES
from prime_anc.method.start.features import GeneratorConfig
from tests.model_store import cases

CONFIGS = {"prime-log": GeneratorConfig.prime_log(), "prime": GeneratorConfig.prime(n_fft=4096)}


def run_every_stage(stages: Stages) -> Tensor:
    """Run all stages for two ears and return what the last update left; buffers have only what stages use."""

    def rows(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.ones(2, *shape, dtype=dtype, device="meta")

    inputs: Any = SimpleNamespace(
        primary=rows(N_BINS, dtype=torch.complex64),
        secondary=rows(N_BINS, dtype=torch.complex64),
        reference_psd=rows(N_BINS),
        uncertainty=rows(2, 31),
        max_gain_db=rows(1),
    )
    inputs.paths = AcousticPaths(inputs.primary, inputs.secondary)
    outputs: Any = SimpleNamespace(
        taps=rows(N_TAPS),
        history=rows(3, MAX_UPDATES + 1),
        n_applied=rows(dtype=torch.int32),
        stopped=rows(dtype=torch.int32),
    )
    with torch.inference_mode():
        for method in RECORDED_METHODS:
            taps = stages.initial_filter(method, inputs)
        for profile in PROFILES:
            update = stages.begin_updates(profile, inputs, taps, outputs)
            update()
        return torch.stack((outputs.taps.sum(), outputs.history[:, 0].sum()))


class NothingOfNumbers(TorchFunctionMode):
    """Raises where a tensor on `meta` is made of Python's numbers, which no operator shows."""

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        makes = func in (torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor)
        indexes = func in (Tensor.__getitem__, Tensor.__setitem__)
        by_list = indexes and any(
            isinstance(tree_leave, list)
            for tree_leave in tree_leaves(args[1], is_leaf=lambda item: isinstance(item, list))
        )
        if (by_list or (makes and not isinstance(args[-1], Tensor))) and _is_meta(args[0] if indexes else result):
            raise AssertionError(f"{func.__name__} brings numbers from the host")
        return result


class NothingOfTensors(TorchDispatchMode):
    """Raises where an operator on `meta` reads a tensor on the host. A single number may go along with a launch."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # which would be imported to be skipped, in ten seconds

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = [tree_leave for tree_leave in tree_leaves((args, kwargs or {})) if isinstance(tree_leave, Tensor)]
        result = func(*args, **(kwargs or {}))
        moves = str(func._schema.name).endswith(("::copy_", "::_to_copy"))
        taken = [item for item in given if item.device.type == "cpu" and (item.ndim or moves)]
        if taken and any(_is_meta(tree_leave) for tree_leave in (*given, *tree_leaves(result))):
            raise AssertionError(f"{func} brings {[tuple(item.shape) for item in taken]} from the host")
        return result


def _is_meta(value: object) -> bool:
    return isinstance(value, Tensor) and value.device.type == "meta"


@contextmanager
def nothing_from_the_host() -> Iterator[None]:
    with NothingOfNumbers(), NothingOfTensors():
        yield


@pytest.mark.parametrize("name", CONFIGS)
def test_no_stage_takes_anything_from_host(name: str) -> None:
    stages = Stages(build_synthesizer(cases.parameters(0, CONFIGS[name]), device="meta"))
    run_every_stage(stages)  # what is computed once and kept has been
    with nothing_from_the_host():
        assert run_every_stage(stages).device.type == "meta"

"""A design takes its ears to the device in one copy and brings its answers back in one, as counted on `meta`."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from model_store.store import ModelVersion
from service.designs import Design, Ear, Recipe
from service.engine.net import Net
from service.engine.resident import ResidentModel
from tests.service import models
from tests.service.engine.test_recordable import METHODS


class Copies(TorchDispatchMode):
    """Counts copies between devices. From `meta`, which has no memory, they bring zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[str, str]] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """An operator; any but `copy_` that leads from `meta` to the host raises by itself."""
        tensors = [each for each in args if isinstance(each, Tensor)]
        kinds = [each.device.type for each in tensors]
        if func in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default):
            into = kinds[0] if len(kinds) == 2 else str(torch.device((kwargs or {}).get("device") or kinds[0]).type)
            if into != kinds[-1]:
                self.counts[kinds[-1], into] += 1
                if into == "cpu" and len(kinds) == 2:
                    return args[0].zero_()
        return func(*args, **(kwargs or {}))


@pytest.fixture
def model() -> ResidentModel:
    """Loaded on the CPU, then designing on `meta`; zeros are no reason for a second design."""
    checkpoint = models.checkpoint(1)
    own = ResidentModel(
        ModelVersion("ears", 1, Path(), ""), checkpoint, torch.device("cpu"), net=Net(below_db=-math.inf)
    )
    own._synthesizer = checkpoint.synthesizer().to("meta")
    own._schedules.clear()
    return own


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n_ears", [1, 2])
def test_a_design_is_one_copy_in_and_one_out(n_ears: int, method: str, model: ResidentModel) -> None:
    """With one prediction, and with both."""
    plain = Ear(*(each.numpy() for each in models.responses(3)))
    ears = [plain, replace(plain, coherence=models.coherence(3).numpy())][:n_ears]
    with Copies() as copies:
        model.design(Recipe(None, method, 1), ears)  # records
        for n_updates in (0, 1, 3):
            copies.counts.clear()
            answers = model.design(Recipe(None, method, n_updates), ears)
            assert copies.counts == {("cpu", "meta"): 1, ("meta", "cpu"): 1}
            assert all(isinstance(each, Design) and not each.taps.any() for each in answers)

"""Designs are independent: a used workspace gives the same bits as a fresh one."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from model_store.store import DEFAULT_ROOT, ModelStore
from prime_anc.core import Core
from prime_anc.method.design import design_all
from prime_anc.method.errors import SynthesisError
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.types import Model
from tests.core.hostile import corpus
from tests.model_store import cases

BUNDLED = ModelStore(DEFAULT_ROOT).load("bose-qc20").parameters


class KeepingBackend(Core):
    """Uses one workspace for all calls, however they end, so that only the core can leave state in it."""

    _kept: int | None = None

    @contextmanager
    def _workspace(self, n_conditions: int = 1) -> Iterator[int]:
        if self._kept is None:
            self._kept = self._core.prime_workspace_create(self._model)
        assert self._core.prime_workspace_reserve(self._kept, n_conditions)
        yield self._kept


class ForgettingBackend(Core):
    """Has a fresh workspace for every call."""

    @contextmanager
    def _workspace(self, n_conditions: int = 1) -> Iterator[int]:
        with super()._workspace(n_conditions) as workspace:
            yield workspace
        self._core.prime_workspace_free(self._workspaces.pop())


def bits(found: object) -> object:
    """Return an answer without its times, for comparison bit by bit."""
    if isinstance(found, SynthesisError):
        return type(found), str(found)
    if isinstance(found, np.ndarray):
        return found.tobytes()
    if is_dataclass(found):
        return [bits(getattr(found, field.name)) for field in fields(found) if field.name != "times_ms"]
    if isinstance(found, list | tuple):
        return [bits(item) for item in found]
    return repr(found)


@pytest.mark.parametrize(
    ("config", "n_designs"),
    [
        (None, 25),
        # Whose rows end within a vector, and whose output has more channels than its layers.
        (GeneratorConfig.prime_log(n_points=100, n_channels=1, n_groups=1, dilations=(1,)), 8),
        (GeneratorConfig.prime(n_fft=4096), 6),
    ],
    ids=["bundled", "odd rows", "linear"],
)
def test_used_workspace_designs_as_fresh(config: GeneratorConfig | None, n_designs: int) -> None:
    parameters = BUNDLED if config is None else cases.parameters(3, config)
    used, fresh = (Model(parameters, kind(parameters)) for kind in (KeepingBackend, ForgettingBackend))
    for number, (problem, options, fallback) in enumerate(corpus(2, n_designs)):
        (found,), (expected,) = (design_all([problem], options, model, fallback) for model in (used, fresh))
        assert bits(found) == bits(expected), (number, options)

"""What the engine needs of a model, wherever that lives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from model_store.store import ModelVersion
from service.designs import Design, Ear, Evaluation, Float32, Recipe
from synthesis.errors import SynthesisError


class Model(Protocol):
    """A `ResidentModel`, or one in the design process. For one thread at a time."""

    version: ModelVersion
    golden_ear: Ear
    graph_bytes: int
    scored_noise_reduction_db: list[float | None]

    def check(self) -> float:
        """See `ResidentModel.check`."""

    def tensor_bytes(self) -> int:
        """See `ResidentModel.tensor_bytes`."""

    def design(self, recipe: Recipe, ears: Sequence[Ear]) -> list[Design | SynthesisError]:
        """See `ResidentModel.design`."""

    def evaluate(self, ears: Sequence[Ear], filters: Sequence[Float32]) -> list[Evaluation | SynthesisError]:
        """See `ResidentModel.evaluate`."""

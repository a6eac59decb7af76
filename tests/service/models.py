"""Checkpoints and ears of `tests.model_store.cases` as the service's tests need them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from model_store.checkpoint import Checkpoint
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.types import Fallback, Model, ModelParameters, Paths, Problem
from service.models.resident_model import ResidentModel
from tests.model_store import cases

# What the tests of the engine run on.
DEVICE = "cpu"

NO_FALLBACK = Fallback(below_db=-np.inf)


def checkpoint(seed: int, std: float = 0.05) -> Checkpoint:
    """A `prime-log` generator with random weights of that size in its last layer, ready to be published."""
    config = GeneratorConfig.prime_log(n_channels=8, dilations=(1, 2), n_points=64)
    return cases.checkpoint(seed, config, std)


def responses(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Primary [1024] and secondary [512]."""
    return cases.ear(seed)[:2]


def problem(seed: int, is_coherence_known: bool = True, **limits: Any) -> Problem:
    """A problem of the one condition of `ear`; limits as of `Problem`."""
    return Problem((ear(seed, is_coherence_known),), **limits)


def joint_problem(n_conditions: int) -> Problem:
    """A problem of several conditions."""
    return Problem(tuple(ear(seed) for seed in range(n_conditions)))


def ear(seed: int, is_coherence_known: bool = True) -> Paths:
    """One ear's impulse responses, and its coherence."""
    return Paths(*cases.ear(seed)[: 3 if is_coherence_known else 2])


def with_last_layer(parameters: ModelParameters, value: float) -> ModelParameters:
    """Change the generator's last layer."""
    weights = dict(parameters.weights)
    name = max(weight for weight in weights if weight.startswith("head") and weight.endswith("weight"))
    weights[name] = np.full_like(weights[name], value)
    return replace(parameters, weights=weights)


@contextmanager
def damaged(model: ResidentModel, value: float = np.nan) -> Iterator[None]:
    """Change the last layer's weights temporarily, as by broken memory: a new backend does not help.

    Designs by the reference, for the CPU's core bounds a correction that is not a number.
    """
    whole, parameters = model.model, model.parameters
    model.parameters = with_last_layer(parameters, value)
    model.use(Model.on("reference", model.parameters))
    yield
    model.parameters = parameters
    model.use(whole)

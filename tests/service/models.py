"""Small real checkpoints and paths for the service's tests: random weights, random decaying responses."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from model_store.checkpoint import Checkpoint, GoldenCase
from model_store.manifest import Manifest
from service.engine.resident_model import ResidentModel
from synthesis.conventions import N_BINS
from synthesis.generator_config import GeneratorConfig
from synthesis.model import Model
from synthesis.start.generator import Generator, model_parameters
from synthesis.types import Fallback, ModelParameters, Paths, Problem

N_PRIMARY, N_SECONDARY = 1024, 512

# What the tests of the engine run on.
DEVICE = "cpu"

NO_FALLBACK = Fallback(below_db=-np.inf)


def responses(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Causal primary [1024] and secondary [512], float32, like an ear's: a delay, then a decaying tail."""
    draw = torch.Generator().manual_seed(seed)
    found = []
    for n, delay, decay in ((N_PRIMARY, 12, 60.0), (N_SECONDARY, 5, 25.0)):  # samples
        tail = 0.3 * torch.randn(n - delay, generator=draw) * torch.exp(-torch.arange(n - delay) / decay)
        tail[0] = 1.0
        found.append(torch.cat((torch.zeros(delay), tail)))
    return found[0], found[1]


def reference_psd() -> torch.Tensor:
    """Mean square per bin of a noise that falls by 3 dB an octave, RMS 0.05: [16385]."""
    falling = 1 / torch.arange(N_BINS).clamp_min(14)
    return 0.05**2 * falling / falling.sum()


def coherence(seed: int) -> torch.Tensor:
    """Coherence of a good calibration: [16385]."""
    return 0.97 + 0.029 * torch.rand(N_BINS, generator=torch.Generator().manual_seed(seed))


def problem(seed: int, is_coherence_known: bool = True, **limits: Any) -> Problem:
    """A problem of the one condition of `ear`; limits as of `Problem`."""
    return Problem((ear(seed, is_coherence_known),), **limits)


def ear(seed: int, is_coherence_known: bool = True) -> Paths:
    """One ear's impulse responses, and its coherence."""
    primary, secondary = responses(seed)
    known = coherence(seed).numpy() if is_coherence_known else None
    return Paths(primary.numpy(), secondary.numpy(), known)


def checkpoint(seed: int, std: float = 0.05) -> Checkpoint:
    """A `prime-log` generator with random weights of that size in its last layer, so that it corrects something."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        generator = Generator(GeneratorConfig.prime_log(n_channels=8, dilations=(1, 2), n_points=64))
        torch.nn.init.normal_(generator.head[-1].weight, std=std)
    generator = generator.eval().requires_grad_(False)
    psd, uncertainty = reference_psd(), torch.full((2, 31), 0.01)
    parameters = model_parameters(generator, psd, uncertainty)
    golden = GoldenCase.make(parameters, *(response.numpy() for response in (*responses(100), coherence(100))))
    manifest = Manifest(
        dataset="simulated",
        split=0,
        seed=seed,
        support=("listener-01", "listener-02"),
        training={"updates": 0},
        data_fingerprint="0" * 64,
        licence="none",
        attribution="nobody",
    )
    return Checkpoint(manifest, parameters, golden)


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

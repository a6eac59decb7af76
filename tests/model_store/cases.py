"""A small real checkpoint: random weights, one simulated ear, everything else as the trainer would state it."""

import numpy as np
import torch
from numpy.typing import NDArray

from model_store.checkpoint import Checkpoint, GoldenCase
from model_store.controller import PublishedController
from model_store.manifest import Manifest, Scores
from prime_anc.method.conventions import N_BINS
from prime_anc.method.start.features import GeneratorConfig
from prime_anc.method.start.generator import Generator, model_parameters
from prime_anc.method.types import ModelParameters

Float32 = NDArray[np.float32]
SMALL = GeneratorConfig.prime_log(n_channels=8, dilations=(1, 2), n_points=32, realisation="minimum_phase")


def generator(seed: int, config: GeneratorConfig = SMALL, std: float = 0.05) -> Generator:
    """Default weights, and a last layer of that size, so that it corrects something."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = Generator(config)
        torch.nn.init.normal_(made.head[-1].weight, std=std)
    return made.eval().requires_grad_(False)


def ear(seed: int) -> tuple[Float32, Float32, Float32]:
    """Primary [1024], secondary [512], each a delay and a decaying tail, and a good coherence [16385]."""
    draw, found = torch.Generator().manual_seed(seed), []
    for n, delay, decay in ((1024, 12, 60.0), (512, 5, 25.0)):  # samples
        tail = 0.3 * torch.randn(n - delay, generator=draw) * torch.exp(-torch.arange(n - delay) / decay)
        tail[0] = 1.0
        found.append(torch.cat((torch.zeros(delay), tail)).numpy())
    coherence = 0.97 + 0.029 * torch.rand(N_BINS, generator=torch.Generator().manual_seed(seed))
    return found[0], found[1], coherence.numpy()


def reference_psd() -> Float32:
    """Mean square per bin of a noise that falls by 3 dB an octave, RMS 0.05: [16385]."""
    falling = 1 / np.arange(N_BINS).clip(14)
    return (0.05**2 * falling / falling.sum()).astype(np.float32)


def random_paths(n_samples: int) -> list[NDArray[np.float64]]:
    """Six responses that have something in common."""
    rng = np.random.default_rng(n_samples)
    responses = (1 + 0.3 * rng.standard_normal((6, n_samples))) * rng.standard_normal(n_samples)
    return list(responses * np.exp(-np.arange(n_samples) / 30))


def parameters(seed: int, config: GeneratorConfig = SMALL, std: float = 0.05) -> ModelParameters:
    """A random generator with its reference and uncertainty."""
    uncertainty = torch.full((31,), 0.01)
    return model_parameters(generator(seed, config, std), torch.from_numpy(reference_psd()), uncertainty)


def manifest(**changes: object) -> Manifest:
    """What a trainer would state."""
    stated = {
        "dataset": "simulated",
        "split": 3,
        "seed": 1,
        "support": ("listener-01", "listener-02"),
        "training": {"updates": 250, "rate": 1.5e-3, "windows": [4096, 8192], "note": "à l'oreille"},
        "data_fingerprint": "0" * 64,
        "scores": Scores(
            held_out={
                "k=0": {"noise_reduction_db": 21.5, "control_rms": 0.08},
                "k=1": {"noise_reduction_db": 22.75, "control_rms": 0.081},
                "wmmse": {"noise_reduction_db": 21.25},
            }
        ),
        "licence": "MIT",
        "attribution": "nobody in particular",
    }
    return Manifest.model_validate({**stated, **changes})


def checkpoint(seed: int = 1, config: GeneratorConfig = SMALL, std: float = 0.05) -> Checkpoint:
    """Ready to be published."""
    made = parameters(seed, config, std)
    return Checkpoint(manifest(seed=seed), made, GoldenCase.make(made, *ear(100)[:2]))


def controller(**changes: object) -> PublishedController:
    """One section for one ear, ready to be published."""
    stated = {
        "dataset": "simulated",
        "support": ("listener-01",),
        "data_fingerprint": "0" * 64,
        "sos": ((0.1, 0, 0, 1, -0.9, 0),),
        "sample_rate": 96_000,
        "latency_us": 10,
        "number_format": "float32",
        "plants": {"listener-01/left": {"gain_margin_db": 6, "phase_margin_deg": 30, "max_sensitivity_db": 6}},
        "licence": "MIT",
        "attribution": "nobody in particular",
    }
    return PublishedController.model_validate({**stated, **changes})


def arrays(checkpoint: Checkpoint) -> dict[str, Float32]:
    """Every stored array by a name of its own."""
    return {
        **{f"generator.{name}": array for name, array in checkpoint.parameters.weights.items()},
        "reference_psd": checkpoint.parameters.reference_psd,
        "band_uncertainty": checkpoint.parameters.band_uncertainty,
        **{f"golden.{name}": getattr(checkpoint.golden, name) for name in GoldenCase.SHAPES},
    }

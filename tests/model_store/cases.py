"""A small real checkpoint: random weights, one simulated ear, everything else as the trainer would state it."""

import torch
from torch import Tensor

from model_store import Checkpoint, GoldenCase, Manifest, Scores
from synthesis.conventions import N_BINS
from synthesis.generator import Generator, GeneratorConfig

SMALL = GeneratorConfig.prime_log(n_channels=8, dilations=(1, 2), n_points=32, realisation="minimum_phase")


def generator(seed: int, config: GeneratorConfig = SMALL) -> Generator:
    """Default weights, and a last layer that is not zero, so that it corrects something."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = Generator(config)
        torch.nn.init.normal_(made.head[-1].weight, std=0.05)
    return made.eval().requires_grad_(False)


def ear(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Primary [1024], secondary [512], each a delay and a decaying tail, and a good coherence [16385]."""
    draw = torch.Generator().manual_seed(seed)
    responses = []
    for n, delay, decay in ((1024, 12, 60.0), (512, 5, 25.0)):  # samples
        tail = 0.3 * torch.randn(n - delay, generator=draw) * torch.exp(-torch.arange(n - delay) / decay)
        tail[0] = 1.0
        responses.append(torch.cat((torch.zeros(delay), tail)))
    return responses[0], responses[1], 0.97 + 0.029 * torch.rand(N_BINS, generator=draw)


def reference_psd() -> Tensor:
    """Mean square per bin of a noise that falls by 3 dB an octave, RMS 0.05: [16385]."""
    falling = 1 / torch.arange(N_BINS).clamp_min(14)
    return 0.05**2 * falling / falling.sum()


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


def checkpoint(seed: int = 1, config: GeneratorConfig = SMALL) -> Checkpoint:
    """Ready to be published."""
    made, psd, uncertainty = generator(seed, config), reference_psd(), torch.full((2, 31), 0.01)
    golden = GoldenCase.make(made, psd, uncertainty, *ear(100))
    return Checkpoint(manifest(seed=seed), made, psd, uncertainty, golden)


def tensors(each: Checkpoint) -> dict[str, Tensor]:
    """Every stored tensor by a name of its own."""
    return {
        **{f"generator.{name}": tensor for name, tensor in each.generator.state_dict().items()},
        "reference_psd": each.reference_psd,
        "band_uncertainty": each.band_uncertainty,
        **{f"golden.{name}": tensor for name, tensor in each.golden.tensors().items()},
    }

"""Small real checkpoints and paths for the service's tests: random weights, random decaying responses."""

from collections.abc import Callable

import torch

from model_store.checkpoint import Checkpoint, GoldenCase
from model_store.manifest import Manifest
from service.engine.resident import ResidentModel
from synthesis.conventions import N_BINS
from synthesis.cpu import served
from synthesis.generator import Generator, GeneratorConfig

N_PRIMARY, N_SECONDARY = 1024, 512


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
    """Of a good calibration: [16385]."""
    return 0.97 + 0.029 * torch.rand(N_BINS, generator=torch.Generator().manual_seed(seed))


def checkpoint(seed: int, std: float = 0.05) -> Checkpoint:
    """A `prime-log` generator with random weights of that size in its last layer, so that it corrects something."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        generator = Generator(GeneratorConfig.prime_log(n_channels=8, dilations=(1, 2), n_points=64))
        torch.nn.init.normal_(generator.head[-1].weight, std=std)
    generator = generator.eval().requires_grad_(False)
    psd, uncertainty = reference_psd(), torch.full((2, 31), 0.01)
    golden = GoldenCase.make(generator, psd, uncertainty, *responses(100), coherence(100))
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
    return Checkpoint(manifest, generator, psd, uncertainty, golden)


def changed(model: ResidentModel, change: Callable[[torch.Tensor], object]) -> None:
    """Do something to the last layer's weights where they lie in memory, also in the form that a CPU serves."""
    change(model._synthesizer.generator.head[-1].weight.data)
    model._synthesizer = served(model._synthesizer)
    model._schedules.clear()

"""`prime`'s network as a GPU computes it, on the processor: the same corrections, but for rounding to float16."""

import pytest
import torch
from torch import nn

from synthesis.backends.cuda.channels_last import GPU_PRECISION, ChannelsLastGenerator
from synthesis.generator import Generator
from synthesis.generator_config import GeneratorConfig


@pytest.mark.parametrize(
    ("precision", "at_most"),
    [
        (torch.float32, 1e-5),
        # Measured: 0.0025. Eleven bits in a dozen layers, sqrt(12) * 2^-11 = 0.0017; eight bits would give 0.014.
        (GPU_PRECISION, 5e-3),
    ],
)
@torch.inference_mode()
def test_corrections_are_the_generators(precision: torch.dtype, at_most: float) -> None:
    generator = Generator(GeneratorConfig.prime(n_fft=4096)).eval()
    last = generator.head[-1]
    assert isinstance(last, nn.Conv1d)
    last.weight.normal_(std=0.3)
    features = torch.randn(2, 12, 2049)  # standardised
    expected = generator.double()(features.double())
    found = ChannelsLastGenerator(generator.float(), precision)(features).double()
    assert (found - expected).norm() < at_most * expected.norm()

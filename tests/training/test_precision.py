"""What a network trains in: bfloat16 where it is asked for and the processor has it."""

import pytest
import torch

from training.config import load_config
from training.precision import network_precision


@pytest.mark.parametrize(
    ("asked", "capability", "expected"),
    [
        ("bfloat16", "AVX512", torch.bfloat16),
        ("bfloat16", "AVX2", torch.float32),
        ("bfloat16", "DEFAULT", torch.float32),
        ("float32", "AVX512", torch.float32),
    ],
)
def test_no_processor_emulates_bfloat16(monkeypatch, asked, capability, expected):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    layer, config = torch.nn.Linear(2, 2), load_config("prime", precision=asked)
    with network_precision(config, torch.device("cpu")):
        assert layer(torch.zeros(1, 2)).dtype == expected

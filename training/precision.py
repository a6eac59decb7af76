"""What a network computes in while it trains."""

from __future__ import annotations

import torch

from training.config import TrainingConfig

_WITHOUT_BFLOAT16 = ("DEFAULT", "NO AVX", "AVX2")
"""Processors on which PyTorch emulates it: a layer of `prime` takes 36 times as long as in float32 there (AVX2)."""


def computes_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 is quicker than float32 on this device."""
    return device.type != "cpu" or torch.backends.cpu.get_cpu_capability() not in _WITHOUT_BFLOAT16


def network_precision(config: TrainingConfig, device: torch.device) -> torch.autocast:
    """The context that a network computes in: bfloat16 where it is asked for and the device has it, else float32,
    which rounds less."""
    enabled = config.precision == "bfloat16" and computes_bfloat16(device)
    return torch.autocast(device.type, torch.bfloat16, enabled=enabled)

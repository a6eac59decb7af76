"""How many ears a test looks at."""

import torch


def every(stride: int, device: torch.device) -> slice:
    """All of them on a GPU, where an ear costs microseconds; one of `stride` in Triton's interpreter, where it
    costs seconds."""
    return slice(None, None, 1 if device.type == "cuda" else stride)

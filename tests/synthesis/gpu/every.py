"""How many ears a test looks at."""

import torch

from tests.synthesis.cases import HOPELESS


def every(stride: int, device: torch.device) -> slice:
    """All of them on a GPU, where an ear costs microseconds; one of `stride` in Triton's interpreter, where it
    costs seconds."""
    return slice(None, None, 1 if device.type == "cuda" else stride)


def hopeless_kinds(device: torch.device) -> tuple[str, ...]:
    """All of them on a GPU; in the interpreter six: both paths' silent bands, a notch, a path without length, a
    spectrum of one line, and levels whose squares leave single precision."""
    few = ("primary without a band", "secondary without a band", "60 dB notch", "one sample")
    return HOPELESS if device.type == "cuda" else (*few, "one tone on the coarse grid", "both a millionth")

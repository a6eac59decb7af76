"""Whether the kernels can be used here, decided when a model is loaded."""

from __future__ import annotations

import logging
from functools import lru_cache

import torch

from synthesis.channels_last import for_inference
from synthesis.conventions import N_TAPS
from synthesis.synthesizer import Synthesizer
from synthesis.toeplitz import solve_toeplitz

logger = logging.getLogger(__name__)

FUSED_ON = "cuda"
N_LAUNCHES = 4
"""Of a solve on a grid of 8192 points."""
MOST_DIFFERENCE = 1e-4
"""Relative, between the kernels and the reference on the system that decides; float32 leaves 1e-6 of it."""


def served(synthesizer: Synthesizer) -> Synthesizer:
    """A synthesizer in its fastest form on a CUDA device, changed in place; on any other it stays as it is.

    Its generator takes its form for inference, its Toeplitz systems are solved by `synthesis.gpu.toeplitz`. Where
    Triton is not installed, or the kernels do not compile or do not give what the reference gives, torch goes on
    solving, and a warning says why. They are compiled here, never while a request waits.
    """
    psd = synthesizer.reference_psd
    if psd.device.type == FUSED_ON and psd.dtype == torch.float32:
        synthesizer.generator = for_inference(synthesizer.generator)
        reason = obstacle(psd.device)
        if reason is None:
            from synthesis.gpu import toeplitz

            synthesizer.solve = toeplitz.solve
        else:
            logger.warning("Toeplitz systems are solved by torch's operators, a hundred launches each: %s", reason)
    return synthesizer


@lru_cache(maxsize=8)
def obstacle(device: torch.device) -> str | None:
    """Why the kernels cannot be used on a device; None where they can. Compiles them, which may take a minute."""
    try:
        from synthesis.gpu import toeplitz
    except ImportError as error:
        return f"Triton cannot be imported ({error}); pip install prime-anc[gpu]"
    bins = torch.linspace(0, torch.pi, toeplitz.N_FFT // 2 + 1, dtype=torch.float64)
    symbol = torch.exp(2 * torch.cos(bins) + torch.cos(5 * bins))[None].to(device, torch.float32)
    matched = torch.polar(1 / (1 + bins), -200 * bins)[None].to(device, torch.complex64)
    try:
        found = toeplitz.solve(symbol, matched, N_TAPS, n_iterations=4).value
        expected = solve_toeplitz(symbol, matched, N_TAPS, n_iterations=4).value
        difference = float((found - expected).norm() / expected.norm())
    except Exception as error:  # whatever a compiler, a driver or a device may raise
        return f"{type(error).__name__}: {error}"
    if not difference < MOST_DIFFERENCE:
        return f"found a solution {difference:.1e} from torch's, relative, expected at most {MOST_DIFFERENCE:g}"
    return None

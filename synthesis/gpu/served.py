"""Whether the kernels can be used here, decided when a model is loaded."""

from __future__ import annotations

import logging
from functools import lru_cache

import torch
from torch import Tensor

from synthesis.channels_last import for_inference
from synthesis.conventions import DESIGN_N_FFT, N_TAPS
from synthesis.gauss_newton import FAST, FINE, BeginUpdates, Refining
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import Synthesizer
from synthesis.toeplitz import ToeplitzSolver, solve_toeplitz

logger = logging.getLogger(__name__)

FUSED_ON = "cuda"
N_LAUNCHES, LAUNCHES_TO_BEGIN, LAUNCHES_AROUND_A_SOLVE = 4, 5, 6
"""Of a solve on a grid of 8192 points; of what precedes the updates; and of an update beside its solve."""
MOST_DIFFERENCE = 2e-3
"""Relative, between the kernels and the reference on what decides. float32 leaves 1e-6 of the system's solution and
2e-4 of the updated taps, for the matrix of an update spans 1e4."""


def served(synthesizer: Synthesizer) -> Synthesizer:
    """A synthesizer in its fastest form on a CUDA device, changed in place; on any other it stays as it is.

    Its generator takes its form for inference, its Toeplitz systems are solved by `synthesis.gpu.toeplitz`, its
    updates are made by `synthesis.gpu.refinement`. Where Triton is not installed, or the kernels do not compile or
    do not give what the reference gives, torch goes on computing, and a warning says why. They are compiled here,
    never while a request waits.
    """
    psd = synthesizer.reference_psd
    if psd.device.type == FUSED_ON and psd.dtype == torch.float32:
        synthesizer.generator = for_inference(synthesizer.generator)
        reason = obstacle(psd.device)
        if reason is None:
            from synthesis.gpu import refinement, toeplitz

            synthesizer.solve = toeplitz.solve
            synthesizer.begin_updates = refinement.refining
        else:
            logger.warning("Filters are refined by torch's operators, some hundred launches each: %s", reason)
    return synthesizer


@lru_cache(maxsize=8)
def obstacle(device: torch.device) -> str | None:
    """Why the kernels cannot be used on a device; None where they can. Compiles them, which may take a minute."""
    try:
        from synthesis.gpu import refinement, toeplitz
    except ImportError as error:
        return f"Triton cannot be imported ({error}); pip install prime-anc[gpu]"
    try:
        found = [_solution(toeplitz.solve, device), *_refined(refinement.refining, toeplitz.solve, device)]
        expected = [_solution(solve_toeplitz, device), *_refined(Refining, solve_toeplitz, device)]
        difference = max(float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True))
    except Exception as error:  # whatever a compiler, a driver or a device may raise
        return f"{type(error).__name__}: {error}"
    if not difference < MOST_DIFFERENCE:
        return f"found a solution {difference:.1e} from torch's, relative, expected at most {MOST_DIFFERENCE:g}"
    return None


def _solution(solve: ToeplitzSolver, device: torch.device) -> Tensor:
    """Of a system on a grid of 8192 points."""
    bins = torch.linspace(0, torch.pi, FAST.n_fft // 2 + 1, dtype=torch.float64)
    symbol = torch.exp(2 * torch.cos(bins) + torch.cos(5 * bins))[None].to(device, torch.float32)
    matched = torch.polar(1 / (1 + bins), -200 * bins)[None].to(device, torch.complex64)
    return solve(symbol, matched, N_TAPS, n_iterations=4).value


def _refined(begin: BeginUpdates, solve: ToeplitzSolver, device: torch.device) -> list[Tensor]:
    """Taps and objective after an update in each profile, of paths that are delayed and fall towards treble."""
    bins = torch.linspace(0, torch.pi, DESIGN_N_FFT // 2 + 1, dtype=torch.float64)
    spectra = [torch.polar(level / (1 + bins), -delay * bins)[None] for level, delay in ((1.0, 30), (0.5, 10))]
    primary, secondary = (each.to(device, torch.complex64) for each in spectra)
    psd = torch.full((len(bins),), 1e-4, device=device)
    start = torch.zeros(1, N_TAPS, device=device)
    found = []
    for profile in (FAST, FINE):
        paths = AcousticPaths(primary, secondary)
        updates = begin(paths, start, psd, profile=profile, max_gain_db=30.0, solve=solve, most_updates=1)
        updates.update()
        result = updates.result()
        found += [result.taps, result.objective]
    return found

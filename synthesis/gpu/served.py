"""Whether the kernels can be used here, decided when a model is loaded."""

from __future__ import annotations

import logging
from functools import lru_cache

import torch
from torch import Tensor

from synthesis.channels_last import for_inference
from synthesis.conventions import N_BINS, N_TAPS
from synthesis.gauss_newton import FAST, FINE, BeginUpdates, Refining
from synthesis.generator import Generator, GeneratorConfig
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import Read, Realise, Synthesizer, read_paths, realised_wiener
from synthesis.toeplitz import ToeplitzSolver, solve_toeplitz

logger = logging.getLogger(__name__)

FUSED_ON = "cuda"
N_LAUNCHES = 4
"""Of a solve on a grid of 8192 points."""
LAUNCHES_TO_READ, LAUNCHES_TO_REALISE, LAUNCHES_TO_BEGIN, LAUNCHES_AROUND_A_SOLVE = 2, 4, 5, 6
"""Of what a generator reads, of a Wiener filter and an update beside their solves, of what precedes the updates."""
MOST_DIFFERENCE = 2e-3
"""Relative, between the kernels and the reference on what decides. float32 leaves 1e-6 of the system's solution and
2e-4 of the updated taps, for the matrix of an update spans 1e4."""


def served(synthesizer: Synthesizer) -> Synthesizer:
    """A synthesizer in its fastest form on a CUDA device, changed in place; on any other it stays as it is.

    Its generator takes its form for inference and reads what `synthesis.gpu.features` makes of the paths; Toeplitz
    systems are solved by `synthesis.gpu.toeplitz`, filters realised by `synthesis.gpu.fir_wiener` and updated by
    `synthesis.gpu.refinement`. Where Triton is not installed, or the kernels do not compile or do not give what the
    reference gives, torch goes on computing, and a warning says why. They are compiled here, never while a request
    waits.
    """
    psd = synthesizer.reference_psd
    if psd.device.type == FUSED_ON and psd.dtype == torch.float32:
        synthesizer.generator = for_inference(synthesizer.generator)
        reason = obstacle(psd.device)
        if reason is None:
            from synthesis.gpu import features, fir_wiener, refinement, toeplitz

            synthesizer.solve = toeplitz.solve
            synthesizer.read = features.read
            synthesizer.realise = fir_wiener.realised
            synthesizer.begin_updates = refinement.refining
        else:
            logger.warning("Filters are made by torch's operators, some hundred launches each: %s", reason)
    return synthesizer


@lru_cache(maxsize=8)
def obstacle(device: torch.device) -> str | None:
    """Why the kernels cannot be used on a device; None where they can. Compiles them, which may take a minute."""
    try:
        from synthesis.gpu import features, fir_wiener, refinement, toeplitz
    except ImportError as error:
        return f"Triton cannot be imported ({error}); pip install prime-anc[gpu]"
    try:
        found = _made(toeplitz.solve, features.read, fir_wiener.realised, refinement.refining, device)
        expected = _made(solve_toeplitz, read_paths, realised_wiener, Refining, device)
        difference = max(float((a - b).norm() / b.norm()) for a, b in zip(found, expected, strict=True))
    except Exception as error:  # whatever a compiler, a driver or a device may raise
        return f"{type(error).__name__}: {error}"
    if not difference < MOST_DIFFERENCE:
        return f"found a solution {difference:.1e} from torch's, relative, expected at most {MOST_DIFFERENCE:g}"
    return None


def _made(
    solve: ToeplitzSolver, read: Read, realise: Realise, begin: BeginUpdates, device: torch.device
) -> list[Tensor]:
    """A system's solution; of paths that are delayed and fall towards treble what a generator reads and a Wiener
    filter; taps and objective after an update of that in each profile."""
    bins = torch.linspace(0, torch.pi, FAST.n_fft // 2 + 1, dtype=torch.float64)
    symbol = torch.exp(2 * torch.cos(bins) + torch.cos(5 * bins))[None].to(device, torch.float32)
    matched = torch.polar(1 / (1 + bins), -200 * bins)[None].to(device, torch.complex64)
    found = [solve(symbol, matched, N_TAPS, n_iterations=4).value]

    bins = torch.linspace(0, torch.pi, N_BINS, dtype=torch.float64)
    spectra = [torch.polar(1 / (level + bins), -delay * bins)[None] for level, delay in ((1, 30), (2, 10))]
    paths = AcousticPaths(*(each.to(device, torch.complex64) for each in spectra))
    generator = Generator(GeneratorConfig.prime_log()).to(device)
    ratio = read(generator, paths)
    log_paths = torch.zeros_like(ratio.log_paths)
    taps = realise(generator, paths, log_paths, log_paths, torch.zeros(1, 1, device=device), solve)
    found += [ratio.log_base, ratio.log_paths, ratio.features, taps]
    psd = torch.full((N_BINS,), 1e-4, device=device)
    for profile in (FAST, FINE):
        updates = begin(paths, taps, psd, profile=profile, max_gain_db=30.0, solve=solve, most_updates=1)
        updates.update()
        result = updates.result()
        found += [result.taps, result.objective]
    return found

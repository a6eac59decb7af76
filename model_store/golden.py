"""The golden case: one question with its answer, stored beside the weights.

Digests prove that the numbers on disk are the ones that were published; the golden case proves that this machine,
this version of torch and this code still turn them into the same filter.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from model_store.errors import GoldenMismatch
from synthesis.conventions import N_BINS, N_TAPS
from synthesis.generator import Generator
from synthesis.paths import AcousticPaths
from synthesis.synthesizer import Synthesizer

PRIMARY_SAMPLES = 8192
SECONDARY_SAMPLES = 2048

GOLDEN_TOLERANCE = 1e-2
"""Largest relative l2 error of the taps.

Measured on estimates of 30 ears, float32 against float64 on a CPU, before and after an update: at most 1.7e-3 for
`prime-log`, whose Toeplitz systems have conditions of 1e4, and 1.4e-3 for `prime`, whose full-band base carries 33
dB more gain at 0 Hz than at 25 Hz and hands its rounding on. Convolutions rounded as TF32 rounds them (11-bit
significands) stayed within 1.1e-3 on six ears. 1e-2 leaves six times that for other processors; unrefined filters
in place of refined differ by 0.02 and more.
"""


@dataclass(frozen=True)
class GoldenErrors:
    """Relative l2 errors |found - golden| / |golden| of the two stored filters; NaN if one was not finite."""

    taps: float
    refined_taps: float


@dataclass(frozen=True)
class GoldenCase:
    """One ear's estimates and the filters that a float64 twin on the CPU designs from them.

    Attributes, all float32, all finite:
        primary: impulse response, [8192]; shorter ones are zero-padded.
        secondary: impulse response, [2048].
        coherence: of the estimate's calibration, in [0, 1], [16385]; no filter depends on it, a prediction does.
        taps: control filter before refinement, [2048].
        refined_taps: after one update in the `fast` profile at the default ceiling, [2048].
    """

    primary: Tensor
    secondary: Tensor
    coherence: Tensor
    taps: Tensor
    refined_taps: Tensor

    SHAPES: ClassVar[dict[str, tuple[int, ...]]] = {
        "primary": (PRIMARY_SAMPLES,),
        "secondary": (SECONDARY_SAMPLES,),
        "coherence": (N_BINS,),
        "taps": (N_TAPS,),
        "refined_taps": (N_TAPS,),
    }

    @staticmethod
    def make(
        generator: Generator,
        reference_psd: Tensor,
        band_uncertainty: Tensor,
        primary: Tensor,
        secondary: Tensor,
        coherence: Tensor,
    ) -> GoldenCase:
        """Answer the question (primary [<= 8192], secondary [<= 2048], coherence [16385]) in float64.

        The question is rounded to float32 first, since that is what is stored and asked again, and so are the
        weights and the reference, which are stored so too. The generator is copied, not changed. Raises
        ValueError for a response that is empty or too long, and what `Synthesizer.design` raises for
        unusable paths.
        """
        primary = _padded("primary", primary, PRIMARY_SAMPLES)
        secondary = _padded("secondary", secondary, SECONDARY_SAMPLES)
        twin = Synthesizer(
            copy.deepcopy(generator), reference_psd.detach().clone(), band_uncertainty.detach().clone()
        )
        twin = twin.to(device="cpu", dtype=torch.float64).eval()
        taps, refined_taps = _designs(twin, _paths(primary, secondary, torch.float64, "cpu"))
        return GoldenCase(
            primary,
            secondary,
            coherence.detach().to("cpu", torch.float32),
            taps[0].float(),
            refined_taps[0].float(),
        )

    def paths(self, dtype: torch.dtype, device: torch.device | str) -> AcousticPaths:
        """The question as a batch of one on the design grid."""
        return _paths(self.primary, self.secondary, dtype, device)

    def tensors(self) -> dict[str, Tensor]:
        """The five tensors by name, as they are stored."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def errors(self, taps: Tensor, refined_taps: Tensor) -> GoldenErrors:
        """How far two filters, [2048] or [1, 2048] each, of any type and device, lie from the stored ones."""
        return GoldenErrors(_relative_error(taps, self.taps), _relative_error(refined_taps, self.refined_taps))

    def compare(self, taps: Tensor, refined_taps: Tensor, tolerance: float = GOLDEN_TOLERANCE) -> GoldenErrors:
        """Raise GoldenMismatch unless both filters are within `tolerance`; else return the errors found.

        For filters that were made some other way than by calling a synthesizer, such as a replayed graph.
        """
        found = self.errors(taps, refined_taps)
        for quantity, error in (("taps", found.taps), ("refined_taps", found.refined_taps)):
            if not error <= tolerance:  # so that NaN fails too
                raise GoldenMismatch(quantity, error, tolerance)
        return found

    def check(self, synthesizer: Synthesizer, tolerance: float = GOLDEN_TOLERANCE) -> GoldenErrors:
        """Ask the synthesizer, on its own device and in its own precision, and compare."""
        buffer = synthesizer.reference_psd
        return self.compare(*_designs(synthesizer, self.paths(buffer.dtype, buffer.device)), tolerance)


def _designs(synthesizer: Synthesizer, paths: AcousticPaths) -> tuple[Tensor, Tensor]:
    """Taps [1, 2048] before and after one update."""
    with torch.no_grad():
        return synthesizer.design(paths).taps, synthesizer.design(paths, n_updates=1).taps


def _paths(primary: Tensor, secondary: Tensor, dtype: torch.dtype, device: torch.device | str) -> AcousticPaths:
    return AcousticPaths.from_impulse_responses(primary.to(device, dtype)[None], secondary.to(device, dtype)[None])


def _padded(name: str, response: Tensor, n_samples: int) -> Tensor:
    if response.ndim != 1 or not 0 < len(response) <= n_samples:
        raise ValueError(f"golden {name}: found shape {tuple(response.shape)}, expected [1 to {n_samples}] samples")
    padded = torch.zeros(n_samples)
    padded[: len(response)] = response.detach()
    return padded


def _relative_error(found: Tensor, golden: Tensor) -> float:
    found = found.detach().to("cpu", torch.float64).reshape(-1)
    golden = golden.double()
    if found.shape != golden.shape or not bool(torch.isfinite(found).all()):
        return float("nan")
    return float((found - golden).norm() / golden.norm())

"""Golden case: one ear with the filters that the model designs for it, stored beside the weights.

Digests prove that the stored numbers are those that were published; the golden case proves that machine, backend and
code still design the same filter from them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from model_store.errors import GoldenMismatch
from synthesis.conventions import N_BINS, N_TAPS
from synthesis.design import design
from synthesis.errors import SynthesisError
from synthesis.model import Model
from synthesis.types import DesignOptions, Float32, ModelParameters, Paths, Problem

PRIMARY_SAMPLES = 8192
SECONDARY_SAMPLES = 2048

# Above the gain of any filter, and still finite in float32 on a linear scale.
NO_CEILING_DB = 300.0

# Largest relative l2 error of the taps. Of 30 ears, float32 against float64 on a CPU, before and after an update: at
# most 1.7e-3 for `prime-log`, 1.4e-3 for `prime`; with TF32 convolutions within 1.1e-3 on six ears: two processors
# differ by a third of it. Unrefined in place of refined filters differ by 0.02 and more.
GOLDEN_TOLERANCE = 1e-2


@dataclass(frozen=True)
class GoldenErrors:
    """Relative l2 errors |found - golden| / |golden| of the two stored filters; NaN if not finite."""

    taps: float
    refined_taps: float


@dataclass(frozen=True, eq=False)
class GoldenCase:
    """One ear's estimates and the filters that the CPU core designs from them, as it does those that are scored.

    All arrays are float32 and finite.
    """

    # Impulse response, [8192], zero-padded.
    primary: Float32
    # Impulse response, [2048].
    secondary: Float32
    # Coherence of the calibration, 0 to 1, [16385]; it affects predictions, not filters.
    coherence: Float32
    # Control filter before refinement, [2048], without a ceiling.
    taps: Float32
    # After one update in the `fast` profile, [2048], without a ceiling.
    refined_taps: Float32

    SHAPES: ClassVar[dict[str, tuple[int, ...]]] = {
        "primary": (PRIMARY_SAMPLES,),
        "secondary": (SECONDARY_SAMPLES,),
        "coherence": (N_BINS,),
        "taps": (N_TAPS,),
        "refined_taps": (N_TAPS,),
    }

    @staticmethod
    def make(
        parameters: ModelParameters,
        primary: NDArray[np.floating],
        secondary: NDArray[np.floating],
        coherence: NDArray[np.floating],
    ) -> GoldenCase:
        """Design for primary [<= 8192], secondary [<= 2048] and coherence [16385].

        The responses are first rounded to float32, as they will be stored.

        Raises
        ------
        ValueError
            A response is empty or too long.
        SynthesisError
            No filter can be designed for the paths.
        """
        question = (
            _padded("primary", primary, PRIMARY_SAMPLES),
            _padded("secondary", secondary, SECONDARY_SAMPLES),
            coherence.astype(np.float32),
        )
        return GoldenCase(*question, *_designs(Model.on("cpu", parameters), _problem(*question)))

    @property
    def problem(self) -> Problem:
        """Return the design problem."""
        return _problem(self.primary, self.secondary, self.coherence)

    def arrays(self) -> dict[str, Float32]:
        """Return the five arrays by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def compare(self, taps: Float32, refined_taps: Float32, tolerance: float = GOLDEN_TOLERANCE) -> GoldenErrors:
        """Compare two filters, [2048]; GoldenMismatch if an error exceeds `tolerance`."""
        found = GoldenErrors(_relative_error(taps, self.taps), _relative_error(refined_taps, self.refined_taps))
        for quantity, error in (("taps", found.taps), ("refined_taps", found.refined_taps)):
            if not error <= tolerance:  # NaN fails too
                raise GoldenMismatch(quantity, error, tolerance)
        return found

    def check(self, model: Model) -> GoldenErrors:
        """Compare designs of a model without and with one update; the error of a failed design is NaN."""
        try:
            taps, refined_taps = _designs(model, self.problem)
        except SynthesisError:
            taps = refined_taps = np.full(N_TAPS, np.nan, np.float32)
        return self.compare(taps, refined_taps)


def _designs(model: Model, problem: Problem) -> tuple[Float32, Float32]:
    """Design taps [2048] before and after one update; raises SynthesisError."""
    taps, refined_taps = (design(problem, DesignOptions(n_updates=n), model).taps for n in (0, 1))
    return taps, refined_taps


def _padded(name: str, response: NDArray[np.floating], n_samples: int) -> Float32:
    if response.ndim != 1 or not 0 < len(response) <= n_samples:
        raise ValueError(
            f"golden {name}: its shape is {response.shape}; give an impulse response of 1 to {n_samples} samples"
        )
    padded = np.zeros(n_samples, np.float32)
    padded[: len(response)] = response
    return padded


def _relative_error(found: Float32, golden: Float32) -> float:
    if found.shape != golden.shape or not np.isfinite(found).all():
        return float("nan")
    exact = golden.astype(np.float64)
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def _problem(primary: Float32, secondary: Float32, coherence: Float32) -> Problem:
    return Problem((Paths(primary, secondary, coherence),), max_gain_db=NO_CEILING_DB)

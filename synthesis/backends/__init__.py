"""One seam between the method and the processor.

`base` says what a backend takes and gives. `reference` is the method itself in torch, which training
differentiates and tests run in float64; `cpu` is compiled and releases Python's lock; `cuda` replays recorded
graphs. Nothing here imports torch before a backend that needs it is asked for.
"""

from __future__ import annotations

from synthesis.backends.base import (
    DEFAULT_MAX_GAIN_DB,
    Backend,
    Complex64,
    Condition,
    Design,
    DesignInput,
    DesignOptions,
    Float32,
    ModelParameters,
    Prediction,
    RefinementRecord,
)
from synthesis.backends.methods import METHODS

__all__ = [
    "DEFAULT_MAX_GAIN_DB",
    "METHODS",
    "Backend",
    "Complex64",
    "Condition",
    "Design",
    "DesignInput",
    "DesignOptions",
    "Float32",
    "ModelParameters",
    "Prediction",
    "RefinementRecord",
    "create_backend",
]


def create_backend(device: str, parameters: ModelParameters, *, kernels: bool = True) -> Backend:
    """A backend for `cpu`, `cuda` or `reference` (torch in float32 on the CPU) that holds the model.

    kernels: on a GPU, use Triton's kernels where these pass a check. Raises ValueError for another device.
    """
    if device == "cpu":
        from synthesis.backends.cpu import CpuBackend

        return CpuBackend(parameters)
    if device == "cuda":
        from synthesis.backends.cuda import CudaBackend

        return CudaBackend(parameters, kernels=kernels)
    if device == "reference":
        from synthesis.backends.reference import ReferenceBackend

        return ReferenceBackend(parameters)
    raise ValueError(f"device: {device!r} does not exist; use cpu, cuda or reference")

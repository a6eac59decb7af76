"""Processors that design filters.

`reference` is the method itself in torch, which training differentiates and tests run in float64; `cpu` is compiled
and releases Python's lock; `cuda` replays recorded graphs. Nothing here imports torch before a backend that needs
it is requested.
"""

from __future__ import annotations

from typing import Any

from synthesis.types import Backend, ModelParameters


def backend_class(device: str) -> type[Backend]:
    """The class for `cpu`, `cuda` or `reference` (torch in float32 on the CPU), which says how it may be called.

    Raises ValueError for another device.
    """
    if device == "cpu":
        from synthesis.backends.cpu import CpuBackend

        return CpuBackend
    if device == "cuda":
        from synthesis.backends.cuda import CudaBackend

        return CudaBackend
    if device == "reference":
        from synthesis.backends.reference import ReferenceBackend

        return ReferenceBackend
    raise ValueError(f"device: {device!r} does not exist; use cpu, cuda or reference")


def create_backend(device: str, parameters: ModelParameters) -> Backend:
    """Create a backend of `backend_class(device)` that holds the model, in a `BoundedBackend`."""
    from synthesis.backends.bounded import BoundedBackend  # which imports modules that import this package

    kind: Any = backend_class(device)
    return BoundedBackend(kind(parameters), parameters)

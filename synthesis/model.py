"""A checkpoint on a processor."""

from __future__ import annotations

from functools import cached_property

from synthesis.backends.cpu import CpuBackend
from synthesis.types import Backend, ModelParameters


def backend_class(device: str) -> type[Backend]:
    """Return the backend class of a device.

    Parameters
    ----------
    device
        `cpu`, `cuda` or `reference` (torch in float32 on the CPU).

    Returns
    -------
    type[Backend]
        Class to be created with a model's numbers.

    Raises
    ------
    ValueError
        The device does not exist.
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


class Model:
    """A checkpoint's numbers on one kind of processor; as thread-safe as its backend."""

    def __init__(self, parameters: ModelParameters, backend: Backend) -> None:
        self.parameters = parameters
        self.backend = backend

    @classmethod
    def on(cls, device: str, parameters: ModelParameters) -> Model:
        """Load a model on `cpu`, `cuda` or `reference`; ValueError for another device."""
        return cls(parameters, backend_class(device)(parameters))

    @cached_property
    def core(self) -> CpuBackend:
        """Return the C core, which finds filters under a ceiling for all backends."""
        return self.backend if isinstance(self.backend, CpuBackend) else CpuBackend(self.parameters)

"""Processors that draft and predict filters.

`reference` is the method in torch, which training differentiates and tests run in float64; `cpu` is compiled and
releases Python's lock; `cuda` replays recorded graphs. torch is imported only with a backend that needs it.
"""

from __future__ import annotations

from synthesis.types import Backend


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

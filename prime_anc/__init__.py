"""Filters for active noise control, fitted to an ear by its measured acoustic paths.

    import prime_anc

    ear = prime_anc.calibrate("off.wav", "on.wav", gain=0.35)
    filt = prime_anc.design(ear, k=3)
    prime_anc.export(filt, ear, "chip.h", sections=6, format="q1.23")

Files may be arrays. `Client` asks a running service instead.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prime_anc.client import Client, ClientError, Condition
    from prime_anc.library import calibrate, design, export, hybrid, predict, read, verify
    from prime_anc.measure.files.errors import FileError

# Names, and the modules that hold them.
_MODULES = {
    **dict.fromkeys(("read", "calibrate", "design", "hybrid", "predict", "verify", "export"), "library"),
    **dict.fromkeys(("Client", "ClientError", "Condition"), "client"),
    "FileError": "measure.files.errors",
}
__all__ = [
    "Client",
    "ClientError",
    "Condition",
    "FileError",
    "calibrate",
    "design",
    "export",
    "hybrid",
    "predict",
    "read",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Load a function when it is first used: an import alone costs nothing."""
    if name not in _MODULES:
        raise AttributeError(f"module 'prime_anc' has no attribute {name!r}")
    return getattr(import_module(f"prime_anc.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

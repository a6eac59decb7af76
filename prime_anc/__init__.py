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
    from prime_anc.client import Client
    from prime_anc.library import calibrate, design, export, hybrid, predict, read, verify

_LIBRARY = ("read", "calibrate", "design", "hybrid", "predict", "verify", "export")
__all__ = ["Client", "calibrate", "design", "export", "hybrid", "predict", "read", "verify"]


def __getattr__(name: str) -> Any:
    """Load a function when it is first used: an import alone costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'prime_anc' has no attribute {name!r}")
    return getattr(import_module("prime_anc.library" if name in _LIBRARY else "prime_anc.client"), name)


def __dir__() -> list[str]:
    return sorted(__all__)

"""The service's binary request: a header of 32 bytes, then float32 or complex64, little-endian throughout."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import ArrayLike

_HEADER = struct.Struct("<4sHHIIII8s")
_MAGIC, _VERSION, _RATE_HZ = b"PRME", 1, 48_000
_IMPULSE_RESPONSES, _COHERENCE = 1, 2


def encode(primary: ArrayLike, secondary: ArrayLike, coherence: ArrayLike | None = None) -> bytes:
    """Body of a request: impulse responses where both paths are real, one-sided spectra where both are complex.

    Raises ValueError for paths of two kinds and for arrays that are not one-dimensional.
    """
    paths = [np.asarray(primary), np.asarray(secondary)]
    is_spectrum = [np.iscomplexobj(path) for path in paths]
    if is_spectrum[0] != is_spectrum[1]:
        raise ValueError("primary, secondary: found a spectrum and an impulse response, expected two of a kind")
    arrays = [path.astype("<c8" if is_spectrum[0] else "<f4") for path in paths]
    flags = 0 if is_spectrum[0] else _IMPULSE_RESPONSES
    if coherence is not None:
        arrays.append(np.asarray(coherence).astype("<f4"))
        flags |= _COHERENCE
    for name, array in zip(("primary", "secondary", "coherence"), arrays, strict=False):
        if array.ndim != 1:
            raise ValueError(f"{name}: found {array.ndim} dimensions, expected one")
    payload = b"".join(array.tobytes() for array in arrays)
    header = _HEADER.pack(
        _MAGIC, _VERSION, flags, len(paths[0]), len(paths[1]), _RATE_HZ, zlib.crc32(payload), bytes(8)
    )
    return header + payload

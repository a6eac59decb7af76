"""The service's binary requests: a header of 32 bytes, then float32 or complex64, little-endian throughout."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from prime_anc_client.calibration import Take

_HEADER = struct.Struct("<4sHHIIII8s")
_TAKES_HEADER = struct.Struct("<4sHHIII12s")
_TAKES_ROW = struct.Struct("<dI4s")
_MAGIC, _TAKES_MAGIC, _VERSION, _RATE_HZ = b"PRME", b"PRMT", 1, 48_000
_IMPULSE_RESPONSES, _COHERENCE = 1, 2


def encode(primary: ArrayLike, secondary: ArrayLike, coherence: ArrayLike | None = None) -> bytes:
    """Body of a design: impulse responses where both paths are real, one-sided spectra where both are complex.

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


def encode_takes(takes: Sequence[Take]) -> bytes:
    """Body of a calibration.

    Raises ValueError for a take whose signals are not real, of one dimension and of one length.
    """
    rows, signals = [], []
    for number, take in enumerate(takes):
        x, e = np.asarray(take.x), np.asarray(take.e)
        if x.ndim != 1 or x.shape != e.shape or np.iscomplexobj(x) or np.iscomplexobj(e):
            found = f"x {x.dtype}{list(x.shape)} and e {e.dtype}{list(e.shape)}"
            raise ValueError(f"takes.{number}: found {found}, expected two real signals of one length")
        rows.append(_TAKES_ROW.pack(take.gain, len(x), bytes(4)))
        signals += [x.astype("<f4").tobytes(), e.astype("<f4").tobytes()]
    payload = b"".join(rows + signals)
    header = _TAKES_HEADER.pack(_TAKES_MAGIC, _VERSION, 0, len(rows), _RATE_HZ, zlib.crc32(payload), bytes(12))
    return header + payload

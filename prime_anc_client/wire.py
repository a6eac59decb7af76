"""The service's requests: in binary, a header of 32 bytes, then float32 or complex64, little-endian throughout; in
JSON what the binary form cannot say."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
    arrays = _arrays(primary, secondary, coherence=coherence)
    flags = 0 if np.iscomplexobj(arrays["primary"]) else _IMPULSE_RESPONSES
    flags |= _COHERENCE if "coherence" in arrays else 0
    n_primary, n_secondary = len(arrays["primary"]), len(arrays["secondary"])
    payload = b"".join(array.tobytes() for array in arrays.values())
    header = _HEADER.pack(_MAGIC, _VERSION, flags, n_primary, n_secondary, _RATE_HZ, zlib.crc32(payload), bytes(8))
    return header + payload


def document(
    primary: ArrayLike,
    secondary: ArrayLike,
    coherence: ArrayLike | None = None,
    reference_psd: ArrayLike | None = None,
    **options: object,
) -> dict[str, object]:
    """Members of a design's request in JSON, with the options that are not None. Raises ValueError as `encode`."""
    arrays = _arrays(primary, secondary, coherence=coherence, reference_psd=reference_psd)
    members: dict[str, object] = {"sample_rate": _RATE_HZ}
    for name, array in arrays.items():
        if name not in ("primary", "secondary"):
            members[name] = array.tolist()
        elif np.iscomplexobj(array):
            members[name] = {"complex64": base64.b64encode(array.tobytes()).decode()}
        else:
            members[name] = {"impulse_response": array.tolist()}
    return members | {name: value for name, value in options.items() if value is not None}


def encode_json(members: dict[str, object]) -> bytes:
    """Body of JSON."""
    return json.dumps(members, separators=(",", ":")).encode()


def _arrays(
    primary: ArrayLike, secondary: ArrayLike, **more: ArrayLike | None
) -> dict[str, NDArray[np.float32] | NDArray[np.complex64]]:
    """Those that are not None, in single precision and little-endian. Raises ValueError as `encode`."""
    paths = {"primary": np.asarray(primary), "secondary": np.asarray(secondary)}
    is_spectrum, other_is = (np.iscomplexobj(path) for path in paths.values())
    if is_spectrum != other_is:
        raise ValueError("primary, secondary: found a spectrum and an impulse response, expected two of a kind")
    arrays = {name: path.astype("<c8" if is_spectrum else "<f4") for name, path in paths.items()}
    arrays |= {name: np.asarray(each).astype("<f4") for name, each in more.items() if each is not None}
    for name, array in arrays.items():
        if array.ndim != 1:
            raise ValueError(f"{name}: found {array.ndim} dimensions, expected one")
    return arrays


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

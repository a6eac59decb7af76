"""Encode requests as safetensors of float32.

Arrays become tensors named by their position in the request (`primary`, `conditions.0.primary`, `takes.0.x`), complex
ones with a last dimension of real and imaginary part; all other fields are JSON text in the header.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors.numpy import save

from prime_anc.client.recordings import DriveTake, Recording, Take

MEDIA_TYPE = "application/x-safetensors"

# Sample rate (Hz), the only one that the service accepts.
RATE_HZ = 48_000

# Replaces NaN and infinity, which JSON lacks: infinite in float32, so the service refuses it.
_TOO_LARGE = 1e39


def encode_request(request: Mapping[str, Any]) -> bytes:
    """Write a request as a body.

    Parameters
    ----------
    request
        The request as in JSON, with NumPy arrays for lists of numbers and for paths. Members that
        are None are left out.

    Returns
    -------
    bytes
        Of the media type MEDIA_TYPE.
    """
    tensors: dict[str, NDArray[np.float32]] = {}
    rest = _without_arrays(request, "", tensors)
    return save(tensors, metadata={"request": json.dumps(rest, separators=(",", ":"))})


def _without_arrays(value: Any, place: str, tensors: dict[str, NDArray[np.float32]]) -> Any:
    """Move a value's arrays to the tensors, and return the rest as JSON values."""
    inner = place + "." if place else ""
    if isinstance(value, Mapping):
        members = {name: item for name, item in value.items() if item is not None}
        found = {name: _without_arrays(member, inner + name, tensors) for name, member in members.items()}
        return {name: item for name, item in found.items() if not isinstance(members[name], np.ndarray)}
    if isinstance(value, list | tuple):
        return [_without_arrays(item, f"{inner}{n}", tensors) for n, item in enumerate(value)]
    if isinstance(value, np.ndarray):
        if value.ndim > 1 and value.shape[-1] == 2:
            raise ValueError(f"{place}: an array of the shape {list(value.shape)} reads as a spectrum; give [n]")
        tensors[place] = _narrow(value)
        return None
    if isinstance(value, float | np.floating):
        return float(np.nan_to_num(value, nan=_TOO_LARGE, posinf=_TOO_LARGE, neginf=-_TOO_LARGE))
    return int(value) if isinstance(value, np.integer) else value


@np.errstate(over="ignore")
def _narrow(array: NDArray[Any]) -> NDArray[np.float32]:
    """Convert to single precision; the service refuses infinite values and names the field."""
    if np.iscomplexobj(array):
        return np.ascontiguousarray(array, "<c8").view("<f4").reshape(*array.shape, 2)
    return np.ascontiguousarray(array, "<f4")


def encode(primary: ArrayLike, secondary: ArrayLike, coherence: ArrayLike | None = None, **fields: Any) -> bytes:
    """Encode the request of a design for one condition."""
    arrays = {"primary": primary, "secondary": secondary, "coherence": coherence}
    arrays = {name: np.asarray(item) for name, item in arrays.items() if item is not None}
    return encode_request({"sample_rate": RATE_HZ, **fields, **arrays})


def curve(value: float | Mapping[str, ArrayLike]) -> Any:
    """Convert a curve such as {"frequency_hz": .., "gain_db": ..}, or a number in its place, to JSON numbers."""
    if isinstance(value, Mapping):
        return {name: np.asarray(item, float).tolist() for name, item in value.items()}
    return np.asarray(value).tolist()


def takes(given: Sequence[Take | DriveTake]) -> list[dict[str, Any]]:
    """Build the takes of a calibration."""
    return [signals(take) for take in given]


def signals(take: Take | DriveTake | Recording) -> dict[str, Any]:
    """Return the signals of a recording, and its gain, by name."""
    return {name: value if name == "gain" else np.asarray(value) for name, value in take._asdict().items()}

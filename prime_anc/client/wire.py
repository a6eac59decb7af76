"""Encode requests as safetensors: 8 bytes of length, a JSON header, raw little-endian float32.

Arrays become tensors named by their position in the request (`primary`, `conditions.0.primary`, `takes.0.x`), complex
ones with a last dimension of real and imaginary part; all other fields are JSON text in the header.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prime_anc.client.recordings import DriveTake, Take

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
    header: dict[str, Any] = {"__metadata__": {"request": json.dumps(rest, separators=(",", ":"))}}
    place = 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [place, place + tensor.nbytes]}
        place += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(item.tobytes() for item in tensors.values())


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


def paths(
    primary: ArrayLike,
    secondary: ArrayLike,
    coherence: ArrayLike | None = None,
    uncertainty: ArrayLike | None = None,
    feedback: ArrayLike | None = None,
) -> dict[str, Any]:
    """Build one condition's fields: impulse responses for real paths, one-sided spectra for complex ones.

    Raises
    ------
    ValueError
        Paths are of two kinds, or an array is not one-dimensional.
    """
    given = {
        "primary": primary,
        "secondary": secondary,
        "coherence": coherence,
        "uncertainty": uncertainty,
        "feedback": feedback,
    }
    arrays = {name: vector(name, item) for name, item in given.items() if item is not None}
    kinds = {name: np.iscomplexobj(arrays[name]) for name in ("primary", "secondary", "feedback") if name in arrays}
    if len(set(kinds.values())) > 1:
        raise ValueError(f"{', '.join(kinds)}: spectra and impulse responses are mixed; give paths of one kind")
    return arrays


def vector(name: str, values: ArrayLike) -> NDArray[Any]:
    """Convert to an array of one dimension; ValueError for others."""
    try:
        array = np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{name}: it is no array of numbers ({error})") from error
    if array.ndim != 1:
        raise ValueError(f"{name}: the array has {array.ndim} dimensions; give one")
    return array


def encode(
    primary: ArrayLike,
    secondary: ArrayLike,
    coherence: ArrayLike | None = None,
    uncertainty: ArrayLike | None = None,
    feedback: ArrayLike | None = None,
    **options: Any,
) -> bytes:
    """Encode the request of a design for one condition.

    Raises
    ------
    ValueError
        As for `paths`.
    """
    fields = paths(primary, secondary, coherence, uncertainty, feedback)
    return encode_request({"sample_rate": RATE_HZ, **options, **fields})


def curve(value: float | Mapping[str, ArrayLike]) -> Any:
    """Convert a curve such as {"frequency_hz": .., "gain_db": ..}, or a number in its place, to JSON numbers."""
    if isinstance(value, Mapping):
        return {name: np.asarray(item, float).tolist() for name, item in value.items()}
    return np.asarray(value).tolist()


def takes(given: Sequence[Take | DriveTake]) -> list[dict[str, Any]]:
    """Build the takes of a calibration.

    Raises
    ------
    ValueError
        The signals of a take are not real, of one dimension and of one length.
    """
    return [
        ({} if isinstance(item, DriveTake) else {"gain": item.gain}) | signals(f"takes.{n}", **_signals_of(item))
        for n, item in enumerate(given)
    ]


def _signals_of(take: Take | DriveTake) -> dict[str, ArrayLike]:
    drive = {"drive": take.drive} if isinstance(take, DriveTake) else {}
    return {"x": take.x, "e": take.e, **drive}


def signals(name: str, **given: ArrayLike) -> dict[str, NDArray[Any]]:
    """Build the signals of a recording; raises ValueError as `takes`."""
    arrays = {field: np.asarray(signal) for field, signal in given.items()}
    first = arrays["x"]
    if first.ndim != 1 or any(array.shape != first.shape or np.iscomplexobj(array) for array in arrays.values()):
        found = ", ".join(f"{field} is {array.dtype}{list(array.shape)}" for field, array in arrays.items())
        raise ValueError(f"{name}: {found}; give real signals of the same length")
    return arrays

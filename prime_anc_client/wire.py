"""Bodies of requests: safetensors, 8 bytes of length, a JSON header, raw little-endian float32.

Arrays become tensors named by their place in the request (`primary`, `conditions.0.primary`, `takes.0.x`), complex
ones with a last dimension of real and imaginary part; what else there is, JSON text in the header.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prime_anc_client.calibration import DriveTake, Take

MEDIA_TYPE = "application/x-safetensors"

# Hz; the service knows no other.
RATE_HZ = 48_000

# On |W| in dB: a number, or a curve {"frequency_hz": .., "gain_db": ..}.
Ceiling = float | Mapping[str, ArrayLike]

# In place of NaN and infinity, which JSON lacks: infinite in float32, so that the service refuses it.
_TOO_LARGE = 1e39


def encode_request(request: Mapping[str, Any]) -> bytes:
    """Write a request as a body.

    Parameters
    ----------
    request
        As it would be in JSON, but for `numpy` arrays in the places of lists of numbers and of paths. Members that
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
    """What JSON holds of a value; its arrays are put among the tensors."""
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
    """In single precision; the service refuses what becomes infinite and says where."""
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
    """One condition's fields: impulse responses where the paths are real, one-sided spectra where they are complex.

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
        raise ValueError(f"{', '.join(kinds)}: there are spectra and impulse responses; give paths of one kind")
    return arrays


def vector(name: str, values: ArrayLike) -> NDArray[Any]:
    """An array of one dimension; ValueError for others."""
    array = np.asarray(values)
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
    """Body of a design for one condition.

    Raises
    ------
    ValueError
        As `paths`.
    """
    fields = paths(primary, secondary, coherence, uncertainty, feedback)
    return encode_request({"sample_rate": RATE_HZ, **options, **fields})


def ceiling(max_gain_db: Ceiling | None) -> Any:
    """A ceiling as JSON numbers."""
    if isinstance(max_gain_db, Mapping):
        return {name: np.asarray(item, float).tolist() for name, item in max_gain_db.items()}
    return None if max_gain_db is None else np.asarray(max_gain_db).tolist()


def takes(given: Sequence[Take | DriveTake]) -> list[dict[str, Any]]:
    """The takes of a calibration.

    Raises
    ------
    ValueError
        The signals of a take are not real, of one dimension and of one length.
    """
    return [
        ({} if isinstance(item, DriveTake) else {"gain": item.gain}) | signals(f"takes.{n}", **_signals_of(item))
        for n, item in enumerate(given)
    ]


def encode_takes(given: Sequence[Take | DriveTake], **options: Any) -> bytes:
    """Body of a calibration. Raises ValueError as `takes`."""
    return encode_request({"sample_rate": RATE_HZ, **options, "takes": takes(given)})


def _signals_of(take: Take | DriveTake) -> dict[str, ArrayLike]:
    drive = {"drive": take.drive} if isinstance(take, DriveTake) else {}
    return {"x": take.x, "e": take.e, **drive}


def signals(name: str, **given: ArrayLike) -> dict[str, NDArray[Any]]:
    """The signals of a recording. Raises ValueError as `takes`."""
    arrays = {field: np.asarray(signal) for field, signal in given.items()}
    first = arrays["x"]
    if first.ndim != 1 or any(array.shape != first.shape or np.iscomplexobj(array) for array in arrays.values()):
        found = ", ".join(f"{field} is {array.dtype}{list(array.shape)}" for field, array in arrays.items())
        raise ValueError(f"{name}: {found}; give real signals of the same length")
    return arrays

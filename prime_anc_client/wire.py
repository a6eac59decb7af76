"""Bodies of requests: binary (a header of 32 bytes, then float32 or complex64, all little-endian), and JSON for
what the binary form cannot hold."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prime_anc_client.calibration import DriveTake, Take

_HEADER = struct.Struct("<4sHHIIII8s")
_TAKES_HEADER = struct.Struct("<4sHHIII12s")
_TAKES_ROW = struct.Struct("<dI4s")
_MAGIC, _TAKES_MAGIC, _VERSION, _RATE_HZ = b"PRME", b"PRMT", 1, 48_000
_IMPULSE_RESPONSES, _COHERENCE, _FEEDBACK, _UNCERTAINTY = 1, 2, 8, 16

Ceiling = float | Mapping[str, ArrayLike]
"""On |W| in dB: a number, or a curve {"frequency_hz": .., "gain_db": ..}."""

_TOO_LARGE = 1e39
"""In place of NaN and infinity, which JSON lacks: infinite in float32, so that the service refuses it."""


def encode(
    primary: ArrayLike,
    secondary: ArrayLike,
    coherence: ArrayLike | None = None,
    uncertainty: ArrayLike | None = None,
    feedback: ArrayLike | None = None,
) -> bytes:
    """Body of a design: impulse responses where the paths are real, one-sided spectra where they are complex.

    feedback: as long as the secondary path. Raises ValueError for paths of two kinds and for arrays that are not
    one-dimensional.
    """
    arrays = _arrays(primary, secondary, coherence=coherence, feedback=feedback, uncertainty=uncertainty)
    flags = 0 if np.iscomplexobj(arrays["primary"]) else _IMPULSE_RESPONSES
    flags |= _COHERENCE if "coherence" in arrays else 0
    flags |= _FEEDBACK if "feedback" in arrays else 0
    flags |= _UNCERTAINTY if "uncertainty" in arrays else 0
    n_primary, n_secondary = len(arrays["primary"]), len(arrays["secondary"])
    payload = b"".join(array.tobytes() for array in arrays.values())
    header = _HEADER.pack(_MAGIC, _VERSION, flags, n_primary, n_secondary, _RATE_HZ, zlib.crc32(payload), bytes(8))
    return header + payload


def document(
    primary: ArrayLike,
    secondary: ArrayLike,
    coherence: ArrayLike | None = None,
    uncertainty: ArrayLike | None = None,
    feedback: ArrayLike | None = None,
    reference_psd: ArrayLike | None = None,
    max_gain_db: Ceiling | None = None,
    taps: ArrayLike | None = None,
    **options: object,
) -> dict[str, object]:
    """A request in JSON, with the options that are not None; taps: its filter. Raises ValueError as `encode`."""
    more = {"coherence": coherence, "uncertainty": uncertainty, "reference_psd": reference_psd, "taps": taps}
    members = _members(_arrays(primary, secondary, **more))
    if feedback is not None:
        members |= _feedback(primary, feedback)
    if taps is not None:
        members["fir"] = members.pop("taps")
    return {"sample_rate": _RATE_HZ} | members | _options(max_gain_db, options)


def condition_document(
    primary: ArrayLike,
    secondary: ArrayLike,
    coherence: ArrayLike | None,
    uncertainty: ArrayLike | None,
    feedback: ArrayLike | None,
    weight: float,
    label: str,
) -> dict[str, object]:
    """One of several conditions in JSON. Raises ValueError as `encode`."""
    members = _members(_arrays(primary, secondary, coherence=coherence, uncertainty=uncertainty))
    if feedback is not None:
        members |= _feedback(primary, feedback)
    return members | {"weight": _numbers(np.asarray(weight)), "label": label}


def joint_document(
    conditions: Sequence[dict[str, object]],
    reference_psd: ArrayLike | None,
    max_gain_db: Ceiling | None,
    **options: object,
) -> dict[str, object]:
    """A request for one filter that serves several conditions."""
    psd = {} if reference_psd is None else {"reference_psd": _narrow(np.asarray(reference_psd), "<f4")}
    head: dict[str, object] = {"sample_rate": _RATE_HZ, "conditions": list(conditions)}
    return head | _members(psd) | _options(max_gain_db, options)


def take_document(state: str, x: ArrayLike, e: ArrayLike) -> dict[str, object]:
    """A recording in one state in JSON. Raises ValueError as `encode_takes`."""
    return {"state": state} | _signal_fields(state, x=x, e=e)


def _options(max_gain_db: Ceiling | None, options: dict[str, object]) -> dict[str, object]:
    limit: dict[str, object] = {}
    if isinstance(max_gain_db, Mapping):
        limit["max_gain_db"] = {name: _numbers(np.asarray(each)) for name, each in max_gain_db.items()}
    elif max_gain_db is not None:
        limit["max_gain_db"] = _numbers(np.asarray(max_gain_db))
    return limit | {name: value for name, value in options.items() if value is not None}


def _members(arrays: dict[str, Any]) -> dict[str, object]:
    """Arrays as fields of a request."""
    members: dict[str, object] = {}
    for name, array in arrays.items():
        if name not in ("primary", "secondary"):
            members[name] = _numbers(array)
        elif np.iscomplexobj(array):
            members[name] = {"complex64": base64.b64encode(array.tobytes()).decode()}
        else:
            members[name] = {"impulse_response": _numbers(array)}
    return members


def _feedback(primary: ArrayLike, feedback: ArrayLike) -> dict[str, object]:
    """The feedback path as a field; it is of the kind of the other paths."""
    return {"feedback": _members(_arrays(primary, feedback))["secondary"]}


def _numbers(values: NDArray[Any]) -> Any:
    """The array as numbers that JSON can hold."""
    return np.nan_to_num(values.astype(float), nan=_TOO_LARGE, posinf=_TOO_LARGE, neginf=-_TOO_LARGE).tolist()


def encode_json(members: Mapping[str, object]) -> bytes:
    """A JSON body."""
    return json.dumps(members, separators=(",", ":")).encode()


def _arrays(
    primary: ArrayLike, secondary: ArrayLike, **more: ArrayLike | None
) -> dict[str, NDArray[np.float32] | NDArray[np.complex64]]:
    """The arrays that are given, in single precision and little-endian. Raises ValueError as `encode`."""
    paths = {"primary": np.asarray(primary), "secondary": np.asarray(secondary)}
    is_spectrum, other_is = (np.iscomplexobj(path) for path in paths.values())
    if is_spectrum != other_is:
        raise ValueError("primary, secondary: one is a spectrum and one an impulse response; give two of a kind")
    arrays = {name: _narrow(path, "<c8" if is_spectrum else "<f4") for name, path in paths.items()}
    arrays |= {name: _narrow(np.asarray(each), "<f4") for name, each in more.items() if each is not None}
    for name, array in arrays.items():
        if array.ndim != 1:
            raise ValueError(f"{name}: the array has {array.ndim} dimensions; give one")
    return arrays


@np.errstate(over="ignore")
def _narrow(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """In single precision; the service refuses what becomes infinite and says where."""
    return array.astype(dtype)


def encode_takes(takes: Sequence[Take]) -> bytes:
    """Body of a calibration without drive.

    Raises ValueError for a take whose signals are not real, of one dimension and of one length.
    """
    rows, signals = [], []
    for number, take in enumerate(takes):
        x, e = _signals(f"takes.{number}", x=take.x, e=take.e).values()
        rows.append(_TAKES_ROW.pack(take.gain, len(x), bytes(4)))
        signals += [x.tobytes(), e.tobytes()]
    payload = b"".join(rows + signals)
    header = _TAKES_HEADER.pack(_TAKES_MAGIC, _VERSION, 0, len(rows), _RATE_HZ, zlib.crc32(payload), bytes(12))
    return header + payload


def takes_document(takes: Sequence[Take | DriveTake], **options: object) -> dict[str, object]:
    """A calibration in JSON, with the options that are not None. Raises ValueError as `encode_takes`."""
    sent = []
    for number, take in enumerate(takes):
        drive = {"drive": take.drive} if isinstance(take, DriveTake) else {}
        gain = {} if isinstance(take, DriveTake) else {"gain": _numbers(np.asarray(take.gain))}
        sent.append(gain | _signal_fields(f"takes.{number}", x=take.x, e=take.e, **drive))
    return {"sample_rate": _RATE_HZ, "takes": sent} | _options(None, options)


def _signal_fields(name: str, **signals: ArrayLike) -> dict[str, object]:
    """The signals of a recording as fields of a request."""
    return {
        field: {"float32": base64.b64encode(signal.tobytes()).decode()}
        for field, signal in _signals(name, **signals).items()
    }


def _signals(name: str, **signals: ArrayLike) -> dict[str, NDArray[Any]]:
    """The signals of a recording in single precision."""
    given = {field: np.asarray(signal) for field, signal in signals.items()}
    first = given["x"]
    if first.ndim != 1 or any(each.shape != first.shape or np.iscomplexobj(each) for each in given.values()):
        found = ", ".join(f"{field} is {each.dtype}{list(each.shape)}" for field, each in given.items())
        raise ValueError(f"{name}: {found}; give real signals of the same length")
    return {field: _narrow(each, "<f4") for field, each in given.items()}

"""Read MATLAB 5 variables, fields of structs, and audio objects of the ITA-Toolbox."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from prime_anc.measure.files.arrays import check_size, from_arrays
from prime_anc.measure.files.channels import Measurement
from prime_anc.measure.files.errors import FileError

_ITA = "ITA_TOOLBOX_AUDIO_OBJECT"


def read(file: Path) -> Measurement:
    """Read a .mat or .ita file; a field of a struct is named as in MATLAB, ir.P."""
    from scipy.io import loadmat

    check_size(file)
    # The parser raises many exceptions for damaged files.
    try:
        variables: dict[str, Any] = loadmat(str(file), appendmat=False, squeeze_me=True, struct_as_record=False)
    except Exception as error:
        raise FileError(
            f"{file}: it is no readable MATLAB 5 file ({type(error).__name__}: {error}); save it with -v7"
        ) from error
    if _ITA in variables or file.suffix.lower() == ".ita":
        return _ita(file, variables.get(_ITA))
    return from_arrays(
        file,
        {name: item for key, value in variables.items() if key[:2] != "__" for name, item in _fields(key, value)},
    )


def _fields(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a variable, or the fields of a struct or of an array of them, or the items of a cell array."""
    if hasattr(value, "_fieldnames"):
        for field in value._fieldnames:
            yield from _fields(f"{name}.{field}", getattr(value, field))
    elif isinstance(value, np.ndarray) and value.dtype == object:
        for n, item in enumerate(value.flat, 1):
            yield from _fields(f"{name}[{n}]", item)
    else:
        yield name, value


def _ita(file: Path, audio: Any) -> Measurement:
    if not all(hasattr(audio, name) for name in ("data", "channelNames", "samplingRate")):
        raise FileError(f"{file}: it holds no {_ITA} with data, channelNames and samplingRate")
    names = [str(name) for name in np.atleast_1d(audio.channelNames)]
    data = np.asarray(audio.data)
    data = data[:, None] if data.ndim == 1 else data
    if data.shape[1] != len(names):
        raise FileError(f"{file}: {data.shape[1]} channels but {len(names)} names")
    if data.dtype.kind not in "fiuc" or not isinstance(audio.samplingRate, int | float):
        raise FileError(f"{file}: its data or its samplingRate, {audio.samplingRate!r}, are no numbers")
    kind = np.complex128 if np.iscomplexobj(data) else np.float64
    columns = {name: item.astype(kind) for name, item in zip(names, data.T, strict=True)}
    rows = np.atleast_1d(np.asarray(getattr(audio, "channelUserData", ()), object))
    # Labels are used only if there is one per channel.
    labels = {
        name: str(np.atleast_1d(row)[-1]).strip()
        for name, row in zip(names, rows if len(rows) == len(names) else [()] * len(names), strict=True)
        if np.size(row)
    }
    contents = Measurement(file, columns, float(audio.samplingRate))
    return replace(contents, comment=str(getattr(audio, "comment", "")), labels=labels)

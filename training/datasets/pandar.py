"""Reader of PANDAR, the earphone path database of RWTH Aachen's IKS (Liebich, Fabry, Jax, Vary, 2019).

A ``.ita`` file is a MATLAB 5 file that holds one ITA-Toolbox audio object: six impulse responses of 8192
samples, ``Secondary``, ``Feedback`` and ``Primary`` of both ears. Two traits of the database matter here:

- ``Primary`` is a relative transfer function whose time axis is circular: its second half is negative time.
  All 8192 samples in file order are used as the causal path, in truth, calibration and scoring alike.
- Ages, genders and dates in the person files are copies of person 1's, and a Primary row carries the right
  ear's fit label. Only the file's number and the Secondary rows' labels are read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import loadmat

from training.datasets.path_pairs import (
    DatasetError,
    Ear,
    PathDataset,
    PathPair,
    check_sample_rate,
    fingerprint,
    read_bytes,
)

N_SAMPLES = 8192
PRIMARY_TAPS = 8192
SECONDARY_TAPS = 2048
N_FFT = 32_768
LICENCE = "MIT"
ATTRIBUTION = (
    "PANDAR: Paths for Active Noise Cancellation Development And Research, version 1.0. "
    "Copyright (c) 2019 RWTH Aachen University, Institute of Communication Systems and Data Processing "
    "(IKS); S. Liebich, J. Fabry, P. Jax, P. Vary, 2019."
)
NOTES = (
    "All 8192 samples of a primary path, in file order, are the causal path; late taps carry division noise "
    "and negative time."
)

_MAT_VARIABLE = "ITA_TOOLBOX_AUDIO_OBJECT"
_EARS: tuple[tuple[Ear, str], ...] = (("left", "L"), ("right", "R"))
# From the folder itself up to the folder above the database.
_LEVELS = ("", "{kind}/", "acoustic_booth/{kind}/", "*/acoustic_booth/{kind}/", "*/*/acoustic_booth/{kind}/")


def read_pandar(folder: str | Path) -> PathDataset:
    """Read both ears of every person that the folder holds.

    Args:
        folder: any level of the database: the folder above ``PANDAR_database_1.0``, that folder itself,
            ``BoseQC20``, ``acoustic_booth`` or ``persons``.

    Returns:
        Originals at 48 kHz, 8192 samples each, left ear before right, persons ascending.

    Raises:
        DatasetError: no person file, the same person twice, an unreadable file, another sampling rate,
            another shape, a missing channel, NaN or infinite samples.
    """
    return _read(Path(folder), kind="persons", file_kind="person", label="person")


def read_handling(folder: str | Path) -> PathDataset:
    """Read the handling cases: 101 closed and pressed, 102 closed, 103 and 104 open.

    They show how a design behaves when the earphone is touched or taken off; they are no listeners, and no
    split uses them. Arguments and errors as `read_pandar`.
    """
    return _read(Path(folder), kind="handling", file_kind="handling", label="handling")


def _read(folder: Path, kind: str, file_kind: str, label: str) -> PathDataset:
    files = _find_files(folder, kind, file_kind)
    contents = {number: (file, read_bytes(file)) for number, file in files.items()}
    pairs = [
        pair
        for number, (file, content) in sorted(contents.items())
        for pair in _pairs_of(file, content, listener=f"{label}-{number:02d}")
    ]
    return PathDataset(
        name="pandar",
        pairs=tuple(pairs),
        primary_taps=PRIMARY_TAPS,
        secondary_taps=SECONDARY_TAPS,
        n_fft=N_FFT,
        licence=LICENCE,
        attribution=ATTRIBUTION,
        fingerprint=fingerprint((file.name, content) for file, content in contents.values()),
        notes=NOTES,
    )


def _find_files(folder: Path, kind: str, file_kind: str) -> dict[int, Path]:
    if not folder.is_dir():
        raise DatasetError(f"{folder}: found no such folder, expected a level of the PANDAR database")
    for level in _LEVELS:
        files = sorted(folder.glob(level.format(kind=kind) + f"*_{file_kind}_*.ita"))
        if files:
            break
    else:
        raise DatasetError(
            f"{folder}: found no *_{file_kind}_*.ita file, expected a level of the PANDAR database "
            f"(from the folder above PANDAR_database_1.0 down to acoustic_booth/{kind})"
        )
    by_number: dict[int, Path] = {}
    for file in files:
        match = re.search(rf"_(\d+)_{file_kind}_", file.name)
        if match is None:
            raise DatasetError(f"{file}: found no number in the name, expected *_NNN_{file_kind}_*.ita")
        number = int(match.group(1))
        if number in by_number:
            raise DatasetError(
                f"{folder}: found {file_kind} {number} twice ({by_number[number]} and {file}), expected once"
            )
        by_number[number] = file
    return by_number


def _pairs_of(file: Path, content: bytes, listener: str) -> list[PathPair]:
    """The left and the right pair of one file."""
    audio = _audio_object(file, len(content))
    check_sample_rate(_scalar(audio, "samplingRate", file), str(file))
    names = [str(name) for name in np.atleast_1d(_attribute(audio, "channelNames", file))]
    data = np.asarray(_attribute(audio, "data", file))
    if data.shape != (N_SAMPLES, len(names)):
        raise DatasetError(
            f"{file}: found data of shape {data.shape}, expected ({N_SAMPLES}, {len(names)}) "
            f"for the channels {', '.join(names)}"
        )
    if data.dtype.kind not in "fiu":
        raise DatasetError(f"{file}: found data of type {data.dtype}, expected real time samples")
    rows = np.atleast_1d(_attribute(audio, "channelUserData", file))
    if len(rows) != len(names):
        raise DatasetError(
            f"{file}: found {len(rows)} rows of channelUserData, expected one per channel ({len(names)})"
        )
    pairs = []
    for ear, suffix in _EARS:
        secondary, primary = (_channel(names, kind + suffix, file) for kind in ("Secondary", "Primary"))
        pairs.append(
            PathPair(
                listener=listener,
                ear=ear,
                condition="original",
                fit=_fit(rows[secondary], str(getattr(audio, "comment", ""))),
                primary=_samples(data[:, primary], file, names[primary]),
                secondary=_samples(data[:, secondary], file, names[secondary]),
            )
        )
    return pairs


def _audio_object(file: Path, n_bytes: int) -> Any:
    # loadmat meets damaged files with whatever its parser trips over (ValueError, TypeError, KeyError,
    # struct.error, zlib.error, NotImplementedError for MATLAB 7.3, ...), so no narrower net holds.
    try:
        variables = loadmat(
            str(file),
            appendmat=False,
            squeeze_me=True,
            struct_as_record=False,
            variable_names=[_MAT_VARIABLE],
        )
    except Exception as error:
        raise DatasetError(
            f"{file}: found {n_bytes} bytes that are no readable MATLAB 5 file "
            f"({type(error).__name__}: {error}), expected an ITA-Toolbox audio object"
        ) from error
    if _MAT_VARIABLE not in variables:
        raise DatasetError(f"{file}: found a MATLAB file without {_MAT_VARIABLE}, expected that variable")
    return variables[_MAT_VARIABLE]


def _attribute(audio: Any, name: str, file: Path) -> Any:
    if not hasattr(audio, name):
        raise DatasetError(f"{file}: found an audio object without {name}, expected that field")
    return getattr(audio, name)


def _scalar(audio: Any, name: str, file: Path) -> float:
    value = np.asarray(_attribute(audio, name, file))
    if value.size != 1 or value.dtype.kind not in "fiu":
        raise DatasetError(f"{file}: found {name} = {value!r}, expected one number")
    return float(value)


def _channel(names: list[str], name: str, file: Path) -> int:
    if name not in names:
        raise DatasetError(f"{file}: found the channels {', '.join(names)}, expected {name} among them")
    return names.index(name)


def _samples(values: Any, file: Path, channel: str) -> Any:
    """The channel, after an error message that can name the file (`PathPair` knows only the listener)."""
    if not np.isfinite(values).all():
        n_bad = int((~np.isfinite(values)).sum())
        raise DatasetError(f"{file}: found {n_bad} NaN or infinite samples in {channel}, expected none")
    if not np.any(values):
        raise DatasetError(f"{file}: found only zeros in {channel}, expected an impulse response")
    return values


def _fit(row: Any, comment: str) -> str:
    """The last entry of a Secondary row; handling files tell pressed from closed only in their comment."""
    entries = np.atleast_1d(row)
    fit = str(entries[-1]).strip() if entries.size else ""
    if fit == "closed" and "pressed" in comment.lower():
        return "closed and pressed"
    return fit or "unknown"

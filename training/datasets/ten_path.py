"""Ten-path: a folder of path pairs, one file or couple of files each.

A pair NN (any number of digits) is one of

- ``NN.npz`` with the arrays ``primary`` and ``secondary`` (and ``sample_rate``, where it is not 48000),
- ``NN_primary.wav`` and ``NN_secondary.wav``, one channel each,
- ``NN.csv`` with the columns primary and secondary, with or without one line of headings.

The paper's ten paths belong to a competition and are not public; without them `simulated.simulated_ten_path` stands
in.
"""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from file_formats.errors import FileError
from file_formats.measurements import paths_at_48_khz
from training.datasets.index import read_measurement
from training.datasets.path_pairs import (
    DatasetError,
    PathDataset,
    PathPair,
    cut_response,
    fingerprint,
    read_bytes,
)

PRIMARY_TAPS = 2048
SECONDARY_TAPS = 2048
N_FFT = 8192

_EXPECTED = "NN.npz, NN_primary.wav + NN_secondary.wav or NN.csv"
_Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


def read_ten_path(folder: str | Path) -> PathDataset:
    """Read every pair that the folder holds, as listeners ``path-NN`` with one ear (``mono``).

    Responses longer than 8192 samples are cut there when no more than -40 dB of their energy goes.

    Raises:
        DatasetError: no such folder, no pair, half a pair, the same number in two formats, an unreadable file,
            missing columns or arrays, NaN or infinite samples, a response too long.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DatasetError(f"{folder}: this folder does not exist; give one of pairs ({_EXPECTED})")
    pairs = []
    notes: set[str] = set()
    contents: list[tuple[str, bytes]] = []
    for number, files in sorted(_find_files(folder).items()):
        primary, secondary = _pair(files, notes)
        names = " and ".join(str(file) for file in files)
        pairs.append(
            PathPair(
                listener=f"path-{number:02d}",
                ear="mono",
                condition="original",
                fit="unknown",
                primary=cut_response(primary, f"primary path of {names}"),
                secondary=cut_response(secondary, f"secondary path of {names}"),
            )
        )
        contents.extend((file.name, read_bytes(file)) for file in files)
    return PathDataset(
        name="ten-path",
        pairs=tuple(pairs),
        primary_taps=PRIMARY_TAPS,
        secondary_taps=SECONDARY_TAPS,
        n_fft=N_FFT,
        licence="as stated by the owner of the folder",
        attribution="acoustic paths supplied by the user",
        fingerprint=fingerprint(contents),
        notes="; ".join(sorted(notes)),
    )


def _find_files(folder: Path) -> dict[int, list[Path]]:
    """The files of every number: one ``.npz`` or ``.csv``, or the primary and the secondary ``.wav``."""
    found: dict[int, list[Path]] = {}
    for file in sorted(folder.iterdir(), key=lambda file: file.name.lower()):
        match = re.fullmatch(r"(\d+)(?:\.(?:npz|csv)|_(?:primary|secondary)\.wav)", file.name.lower())
        if match is not None and file.is_file():
            found.setdefault(int(match.group(1)), []).append(file)
    if not found:
        raise DatasetError(f"{folder}: there is no pair of paths; give {_EXPECTED}")
    for number, files in found.items():
        kinds = sorted(file.name.lower().lstrip("0123456789") for file in files)
        if kinds not in ([".npz"], [".csv"], ["_primary.wav", "_secondary.wav"]):
            raise DatasetError(
                f"{folder}: found {', '.join(file.name for file in files)} for pair {number}, "
                f"expected one of {_EXPECTED}"
            )
    return found


def _pair(files: list[Path], notes: set[str]) -> _Pair:
    """Primary and secondary path: of two files with one channel each, of two columns or of two named arrays."""
    if files[0].suffix.lower() == ".csv":
        return _from_csv(files[0])
    found = [read_measurement(file) for file in files]
    if len(files) == 1 and len(found[0].channels) < 2:
        raise DatasetError(f"{files[0]}: it holds one array; primary and secondary are needed")
    try:
        ends = {"primary": found[0], "secondary": found[-1]}
        samples, said = paths_at_48_khz({path: each.response(each.name_of(path)) for path, each in ends.items()})
    except FileError as error:
        raise DatasetError(str(error)) from error
    notes.update(note for each in found for note in each.notes)
    notes.update(said)
    return samples["primary"], samples["secondary"]


def _from_csv(file: Path) -> _Pair:
    lines = read_bytes(file).decode(errors="replace").splitlines()
    if lines and re.search("[a-df-z]", lines[0].lower()):  # an "e" may belong to a number
        lines = lines[1:]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty file is refused below
            table = np.loadtxt(lines, delimiter=",", ndmin=2)
    except ValueError as error:
        raise DatasetError(f"{file}: cannot be read as comma-separated numbers ({error})") from error
    if table.shape[1] != 2 or not len(table):
        raise DatasetError(
            f"{file}: found a table of {table.shape[0]} rows and {table.shape[1]} columns, "
            "expected the two columns primary and secondary"
        )
    return table[:, 0], table[:, 1]

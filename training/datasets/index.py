"""Read a maker's measurements from a table of files, paths and ears.

The table is ``index.csv`` in the data set's folder, or any other CSV file. It has a heading and a row per
measurement:

    listener,ear,condition,primary,secondary,feedback
    anna,left,,anna_left_primary.wav,anna_left_secondary.wav,
    anna,left,pressed,anna.mat#P_pressed,anna.mat#S_pressed,anna.mat#F_pressed

- listener: unit that splits keep together, e.g. a person with all measurements of all days.
- ear: left, right or mono.
- condition (may be absent): names one of several measurements of the ear, e.g. a seating or a direction; `pressed`,
  `slightly loose`, `loose` and `open` are ways of wearing that a controller has to bear.
- primary, secondary, feedback (may be absent): a file that `measure.files.measurements` reads, relative to the
  table. ``FILE#CHANNEL`` names one of its channels. Without it the file has one channel, or one of that name
  (``primary``; in ITA files ``PrimaryL`` or ``PrimaryR``, by the ear).

Responses are brought to 48 kHz and to at most 8192 samples; files that state no rate are assumed to have it. A
spectrum becomes the response of 8192 samples whose transform it is, with negative time at its end.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from prime_anc.measure.files.channels import Measurement
from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.measurements import paths_at_48_khz, read
from prime_anc.measure.files.resampling import Response
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from training.datasets.path_pairs import (
    DatasetError,
    DatasetKind,
    EarSide,
    Float64,
    PathDataset,
    PathPair,
    cut_response,
    fingerprint,
    read_bytes,
)

INDEX_FILE = "index.csv"
# Samples of the estimates of primary and secondary path, and points of the Fourier grid.
LENGTHS: dict[DatasetKind, tuple[int, int, int]] = {"index": (8192, 2048, 32_768), "ten-path": (2048, 2048, 8192)}

# Fits by condition, with the names of PANDAR.
FITS = {"": "normal", "pressed": "closed and pressed", "open": "open"} | {n: n for n in ("slightly loose", "loose")}

_EARS: dict[str, EarSide] = {"left": "left", "right": "right", "mono": "mono"}
_REQUIRED = ("listener", "ear", "primary", "secondary")
_COLUMNS = ("listener", "ear", "condition", "primary", "secondary", "feedback")


def read_index(folder: str | Path, name: DatasetKind = "index") -> PathDataset:
    """Read every measurement that a table lists, ordered by listener, then ear, then row.

    Parameters
    ----------
    folder
        With an ``index.csv``, or the table itself.
    name
        ``index``, or ``ten-path`` for paths as short as the paper's ten.

    Raises
    ------
    DatasetError
        No table, a column missing or unknown, an empty table, an unknown ear, the same measurement twice, a file that
        cannot be read, a channel that is not there, a response too long.
    """
    table = Path(folder)
    table = table / INDEX_FILE if table.is_dir() else table
    content = read_bytes(table)
    contents = {table.name: content}
    files: dict[Path, Measurement] = {}
    notes: set[str] = set()
    pairs = []
    for line, row in _rows(table, content):
        ear = _EARS.get(row["ear"].lower())
        if ear is None:
            raise DatasetError(f"{table}, line {line}: found the ear {row['ear']!r}, expected left, right or mono")
        found: dict[str, Response] = {}
        for path in ("primary", "secondary", "feedback"):
            if row.get(path):
                file = table.parent / row[path].partition("#")[0]
                if file not in files:
                    contents[row[path].partition("#")[0]] = read_bytes(file)
                    files[file] = read_measurement(file)
                found[path] = _response(files[file], path, ear, row[path].partition("#")[2])
        responses, said = paths_of_ear(found)
        notes |= {*said, *(note for item in files.values() for note in item.notes)}
        pairs.append(
            PathPair(
                listener=row["listener"],
                ear=ear,
                condition="original",
                fit=FITS.get(row.get("condition", "").lower(), "unknown"),
                primary=responses["primary"],
                secondary=responses["secondary"],
                label=row.get("condition", ""),
                feedback=responses.get("feedback"),
            )
        )
    return PathDataset(
        name=name,
        pairs=tuple(sorted(pairs, key=lambda pair: (pair.listener, pair.ear))),
        primary_taps=LENGTHS[name][0],
        secondary_taps=LENGTHS[name][1],
        n_fft=LENGTHS[name][2],
        licence="as stated by the owner of the folder",
        attribution="acoustic paths supplied by the user",
        fingerprint=fingerprint(contents.items()),
        notes="; ".join(sorted(notes)),
    )


def _rows(table: Path, content: bytes) -> list[tuple[int, dict[str, str]]]:
    """Read line number and cells by column; separators are commas, or semicolons if the heading has them."""
    text = content.decode("utf-8-sig", errors="replace")
    heading = text.partition("\n")[0]
    reader = csv.DictReader(io.StringIO(text), delimiter=";" if ";" in heading else ",", restval="")
    columns = [name.strip().lower() for name in reader.fieldnames or ()]
    missing = [name for name in _REQUIRED if name not in columns]
    unknown = [name for name in columns if name not in _COLUMNS]
    if missing or unknown:
        raise DatasetError(
            f"{table}: found the columns {', '.join(columns) or 'none'}, expected {', '.join(_COLUMNS)} "
            "(condition and feedback may be absent)"
        )
    reader.fieldnames = columns
    rows = []
    for row in reader:
        if None in row:
            raise DatasetError(f"{table}, line {reader.line_num}: found more cells than columns")
        cells = {name: value.strip() for name, value in row.items()}
        empty = [name for name in _REQUIRED if not cells[name]]
        if empty:
            raise DatasetError(f"{table}, line {reader.line_num}: found no {' and no '.join(empty)}")
        rows.append((reader.line_num, cells))
    if not rows:
        raise DatasetError(f"{table}: there is a heading and no row; add a row per measurement")
    return rows


def read_measurement(file: Path) -> Measurement:
    """Read a measurement, at 48 kHz if no rate is stated; raises DatasetError for an unusable file."""
    try:
        return read(file, SAMPLE_RATE_HZ)
    except FileError as error:
        raise DatasetError(str(error)) from error


def _response(found: Measurement, path: str, ear: EarSide, channel: str) -> Response:
    """Read one path of a file."""
    try:
        return found.response(found.select(channel) if channel else found.name_of(path, path + ear[0]))
    except FileError as error:
        raise DatasetError(str(error) if channel else f"{error}, or write FILE#CHANNEL in the table") from error


def paths_of_ear(found: Mapping[str, Response]) -> tuple[dict[str, Float64], tuple[str, ...]]:
    """Bring paths to 48 kHz with notes, as `paths_at_48_khz`; DatasetError for one that is too long."""
    try:
        samples, notes = paths_at_48_khz(found)
    except FileError as error:
        raise DatasetError(str(error)) from error
    return {
        path: cut_response(sample, f"{path} path in {found[path].what}") for path, sample in samples.items()
    }, notes

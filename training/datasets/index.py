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
from pathlib import Path

from prime_anc.measure.files.channels import Measurement
from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.measurements import paths_at_48_khz
from prime_anc.measure.files.resampling import Response
from training.datasets.path_pairs import (
    DatasetError,
    DatasetKind,
    EarSide,
    PathDataset,
    PathPair,
    cut_response,
    fingerprint,
    read_bytes,
    read_file,
)

INDEX_FILE = "index.csv"

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
    pairs = []
    for line, row in _rows(table, content):
        ear = _EARS.get(row["ear"].lower())
        if ear is None:
            raise DatasetError(f"{table}, line {line}: found the ear {row['ear']!r}, expected left, right or mono")
        found: dict[str, Response] = {}
        for path in ("primary", "secondary", "feedback"):
            if row.get(path):
                file, _, channel = row[path].partition("#")
                if table.parent / file not in files:
                    files[table.parent / file], contents[file] = read_file(table.parent / file)
                found[path] = _response(files[table.parent / file], path, ear, channel)
        try:
            samples, _ = paths_at_48_khz(found)
        except FileError as error:
            raise DatasetError(str(error)) from error
        paths = {
            path: cut_response(sample, f"{path} path in {found[path].what}") for path, sample in samples.items()
        }
        pairs.append(
            PathPair(
                listener=row["listener"],
                ear=ear,
                condition="original",
                fit=FITS.get(row.get("condition", "").lower(), "unknown"),
                primary=paths["primary"],
                secondary=paths["secondary"],
                label=row.get("condition", ""),
                feedback=paths.get("feedback"),
            )
        )
    return PathDataset(
        name=name,
        pairs=tuple(sorted(pairs, key=lambda pair: (pair.listener, pair.ear))),
        licence="as stated by the owner of the folder",
        attribution="acoustic paths supplied by the user",
        fingerprint=fingerprint(contents.items()),
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


def _response(found: Measurement, path: str, ear: EarSide, channel: str) -> Response:
    """Read one path of a file."""
    try:
        return found.response(found.select(channel) if channel else found.name_of(path, path + ear[0]))
    except FileError as error:
        raise DatasetError(str(error) if channel else f"{error}, or write FILE#CHANNEL in the table") from error

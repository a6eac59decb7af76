"""Read tables of numbers from text.

Lines before the numbers are statements (`heads`), names of the columns or remarks. A line among the numbers that is
neither numbers nor a remark is an error with its line number, since a missing sample would shift all that follow.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.heads import Head, read_head
from prime_anc.measure.files.names import MARK, names_in

MAX_BYTES = 40_000_000

_MINUS = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d"), "-")
_NUMERIC = re.compile(r'[\d\s.,;"+\-eEdD]*\d[\d\s.,;"+\-eEdD]*')
# A cell in place of a number, as spreadsheets write it.
_MISSING = re.compile(r"[+-]?(nan|inf(inity)?|null|none|#?n/?a|#\S+[!?]|[\d.,]\S*)", re.IGNORECASE)
# Numbers on either side of a remark or an empty line that make two responses.
_BLOCK = 16


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers in columns, and what the head states."""

    values: NDArray[np.float64]
    # Names of the columns; empty if no line names them.
    names: tuple[str, ...]
    head: Head


def read_table(file: Path) -> Table:
    """Read a table of numbers from a text file.

    Parameters
    ----------
    file : Path
        In UTF-8, UTF-16 with a byte order mark, or Windows-1252.

    Returns
    -------
    Table

    Raises
    ------
    FileError
        There are no numbers, a cell among them is none, rows have different widths, or a comma may be a decimal sign
        as well as a separator.
    """
    lines = _lines(file)
    numeric = [n for n, line in enumerate(lines) if _NUMERIC.fullmatch(line)]
    if not numeric:
        raise FileError(f"{file}: it holds no numbers; export one number a line, or columns of numbers")
    separator, decimal = _layout(file, [lines[n] for n in numeric])
    heading, remarks = lines[: numeric[0]], []
    rows: list[list[float]] = []
    starts = [0]
    for number, line in enumerate(lines[numeric[0] :], numeric[0] + 1):
        text = line.strip()
        if not text or (MARK.match(text) and any(map(str.isalpha, text)) and not _MISSING.fullmatch(text)):
            remarks.append(line)
            starts.append(len(rows))
            continue
        row = _row(line, separator, decimal)
        if row is None or (rows and len(row) != len(rows[0])):
            raise _unreadable(file, number, line)
        rows.append(row)
    if sum(np.diff([*starts, len(rows)]) > _BLOCK) > 1:
        raise FileError(
            f"{file}: it holds several blocks of numbers; save one response in each file, or as columns"
        )
    width = len(rows[0])
    for number, line in enumerate(heading, 1):
        cells = _cells(line, separator)
        is_remark = "//" in line or (MARK.match(line.strip()) and not _MISSING.fullmatch(line.strip()))
        if len(cells) == width and any(map(_MISSING.fullmatch, cells)) and not is_remark:
            raise _unreadable(file, number, line)
    values, head = np.array(rows), read_head(file, [*heading, *remarks])
    if width == 1:
        _check_count(file, values[:, 0], numeric[0] + 1, head.n_samples)
    return Table(values * head.scale, names_in(heading, separator, width), head)


def _lines(file: Path) -> list[str]:
    if file.stat().st_size > MAX_BYTES:
        raise FileError(f"{file}: it has more than {MAX_BYTES // 1_000_000} MB of text; save it as WAV")
    content = file.read_bytes()
    is_wide = content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    try:
        text = content.decode("utf-16" if is_wide else "utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("cp1252", errors="replace")
    if "\0" in text:
        raise FileError(f"{file}: it is no readable text; save it as UTF-8")
    # Only these characters separate lines in an editor.
    return re.split(r"\r\n|\r|\n", text.translate(_MINUS))


def _layout(file: Path, lines: Sequence[str]) -> tuple[str | None, str]:
    """Return separator of cells (None: white space) and decimal sign of numeric lines."""
    text = "\n".join(line.strip() for line in lines)
    if ";" in text or re.search(r"[^\s,][ \t]+[^\s,]", text):
        return (";" if ";" in text else None), ("," if "," in text and "." not in text else ".")
    if "," not in text:
        return None, "."
    if "." in text or re.search(r",[ \t]*[-+]|, |,[^\n]*,", text):
        return ",", "."
    if re.search(r",(?:0\d|\d{6}|\d+[eE])", text) or any("," not in line for line in lines):
        return None, ","
    raise FileError(
        f"{file}: its commas may be decimal signs or separators, as in {lines[0].strip()[:40]!r}; write decimal "
        "points, or separate columns by semicolons"
    )


def _cells(line: str, separator: str | None) -> list[str]:
    """Split a line into cells; an empty cell after the last separator is dropped."""
    cells = [cell.strip().strip('"').strip() for cell in line.strip(" ").split(separator)]
    return cells[:-1] if separator and len(cells) > 1 and not cells[-1] else cells


def _row(line: str, separator: str | None, decimal: str) -> list[float] | None:
    """Read the numbers of a line; None if a cell is no finite number."""
    cells = [re.sub("[dD]", "e", cell) for cell in _cells(line, separator)]
    if decimal == ",":
        cells = [cell.replace(",", ".") for cell in cells]
    try:
        row = [float(cell) for cell in cells]
    except ValueError:
        return None
    return row if np.isfinite(row).all() else None


def _unreadable(file: Path, number: int, line: str) -> FileError:
    return FileError(
        f"{file}, line {number}: {line.strip()[:60]!r} is no row of numbers as the first, and leaving it out would "
        "shift what follows; write the numbers with decimal points and no groups of thousands, or begin a remark with #"
    )


def _check_count(file: Path, values: NDArray[np.float64], line: int, n_samples: int | None) -> None:
    """Raise FileError for a column that begins with its length or rate, or that is not as long as its head says."""
    first, rest = values[0], float(np.abs(values[2:]).max(initial=0))
    if len(values) > _BLOCK and (
        first == len(values) - 1 or (first >= _BLOCK and first % 1 == 0 and first > 1000 * rest)
    ):
        raise FileError(
            f"{file}, line {line}: {first:g} is how many numbers follow, or their rate, no sample; remove the line, "
            "and give the rate with --rate"
        )
    if n_samples not in (None, len(values)):
        raise FileError(f"{file}: its head states {n_samples} samples, but {len(values)} follow; export it again")

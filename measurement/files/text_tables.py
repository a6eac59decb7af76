"""Read tables of numbers from text: separators, number format and header.

Comments and a header precede the numbers. A line among the numbers that is neither numbers nor a comment is an error
with its line number, since a missing sample would shift all that follow.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from measurement.files.errors import FileError
from measurement.files.table_heads import read_head

MAX_BYTES = 40_000_000

_MINUS = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d"), "-")
# Separators of thousands, besides whichever of point and comma is not the decimal sign.
_GROUPS = "'\u2019\u00a0\u2009\u202f "
_COMMENT = re.compile(r"\*|#|//|;|%|!")
_SPREADSHEET_ERROR = re.compile(r"#\S*[!?]|#(N/?[AVD]|NV)", re.IGNORECASE)
_NUMERIC = re.compile(rf'[\d\s.,;"+\-eEdD{_GROUPS}]*\d[\d\s.,;"+\-eEdD{_GROUPS}]*')
_MISSING = re.compile(
    r"[+-]?(nan|inf(inity)?|n/?a|null|none|nil|error|missing|-+|\?+|#.*|[\d.,].*|[oil][.,]\d.*)", re.IGNORECASE
)


# A comment among numbers that names the next response.
_ANOTHER = re.compile(
    r"(?:(?:channel|ch|kanal|canal|response|ir|data|column) ?[\w.]{0,3}|left|right|links|rechts|primary.*|secondary.*"
    r"|feedback.*|[psf](?:z|_hat)?)[:=]?",
    re.IGNORECASE,
)


def _pattern(decimal: str) -> re.Pattern[str]:
    group = "," if decimal == "." else "."
    thousands = rf"[1-9]\d{{0,2}}(?:(?P<group>[{group}{_GROUPS}])\d{{3}})(?:(?P=group)\d{{3}})*(?:[{decimal}]\d*)?"
    return re.compile(rf"[+-]?(?:{thousands}|(?:\d+(?:[{decimal}]\d*)?|[{decimal}]\d+)(?:[eEdD][+-]?\d+)?)")


_PATTERNS = {decimal: _pattern(decimal) for decimal in ".,"}


@dataclass(frozen=True)
class Layout:
    """Format of a table: separator of cells (None: white space) and decimal sign."""

    separator: str | None
    decimal: str

    def cells(self, line: str) -> list[str]:
        """Split a line into cells; an empty cell after the last separator is dropped."""
        found = [cell.strip().strip('"').strip() for cell in line.strip(" ").split(self.separator)]
        return found[:-1] if self.separator and len(found) > 1 and not found[-1] else found

    def numbers(self, line: str) -> list[float] | None:
        """Parse the numbers of a line; None if a cell is not a finite number."""
        found = [self.number(cell) for cell in self.cells(line)]
        return None if not found or None in found else found  # type: ignore[return-value]  # no None is left

    def number(self, cell: str) -> float | None:
        """Parse the number of a cell, or return None."""
        match = _PATTERNS[self.decimal].fullmatch(cell)
        if match is None:
            return None
        plain = cell.replace(match["group"], "") if match["group"] else cell
        value = float(plain.replace(self.decimal, ".").translate({ord("d"): "e", ord("D"): "e"}))
        return value if np.isfinite(value) else None


@dataclass(frozen=True, eq=False)
class Table:
    """Numbers in columns, and the header's statements."""

    values: NDArray[np.float64]
    # Names of the columns; empty without a header.
    names: tuple[str, ...]
    # Sample rate that the head states.
    rate_hz: float | None
    # Time of the first sample that the head states.
    start_s: float
    notes: tuple[str, ...]


def read_table(file: Path) -> Table:
    """Read a table of numbers from a text file.

    Parameters
    ----------
    file : Path
        In UTF-8, UTF-16 or, without a byte order mark, any other code that agrees with ASCII.

    Returns
    -------
    Table

    Raises
    ------
    FileError
        If there are no numbers, a cell among them is none, rows have different widths, or a comma may be a decimal
        sign as well as a separator.
    """
    lines = _lines(file)
    numeric = [n for n, line in enumerate(lines) if line.strip() and _NUMERIC.fullmatch(line)]
    if not numeric:
        raise FileError(f"{file}: it holds no numbers; export one number a line, or columns of numbers")
    heading = list(enumerate(lines[: numeric[0]], 1))
    layout = _layout(file, [lines[n] for n in numeric], [line for _, line in heading])
    rows: list[list[float]] = []
    blocks: list[int] = []
    comments = [line for _, line in heading]
    is_within = False
    for number, line in enumerate(lines[numeric[0] :], numeric[0] + 1):
        if not line.strip() or _is_comment_among_numbers(line):
            if rows and _ANOTHER.fullmatch(_COMMENT.sub("", line.strip()).strip()):
                raise FileError(
                    f"{file}, line {number}: {line.strip()!r} begins another response; save one in each file, or as "
                    "columns"
                )
            comments += [line] if line.strip() else []
            is_within &= bool(line.strip())
            continue
        found = layout.numbers(line)
        if found is None:
            raise _unreadable(file, number, line)
        if rows and len(found) != len(rows[0]):
            raise FileError(
                f"{file}, line {number}: it has {len(found)} numbers, the first row has {len(rows[0])}; "
                "export the table again"
            )
        rows.append(found)
        blocks = [*blocks[:-1], blocks[-1] + 1] if is_within else [*blocks, 1]
        is_within = True
    width = len(rows[0])
    for number, line in heading:
        if not _is_comment(line) and "//" not in line and _is_broken_row(layout, line, width):
            raise _unreadable(file, number, line)
    values = np.array(rows)
    if width == 1:
        _check_column(file, values[:, 0], numeric[0] + 1, blocks)
    said = read_head(file, comments, layout.number, float(np.abs(values).max()), len(rows))
    if said.n_samples is not None and width == 1 and len(rows) != said.n_samples:
        raise FileError(
            f"{file}: its head states {said.n_samples} samples, but {len(rows)} follow; export it again"
        )
    return Table(values * said.scale, _names(heading, layout, width), said.rate_hz, said.start_s, said.notes)


def _check_column(file: Path, values: NDArray[np.float64], line: int, blocks: Sequence[int]) -> None:
    """Raise FileError for a column that begins with its length or rate, or that holds several responses."""
    rest = float(np.abs(values[2:]).max(initial=0))
    first = values[0]
    if len(values) > 16 and (first == len(values) - 1 or (first >= 16 and first % 1 == 0 and first > 1000 * rest)):
        raise FileError(
            f"{file}, line {line}: {first:g} is how many numbers follow, or their rate, no sample; remove the line, "
            "and give the rate with --rate"
        )
    if 1 < len(blocks) <= 64 and blocks[0] > 16 and len(set(blocks)) == 1:
        raise FileError(
            f"{file}: it holds {len(blocks)} blocks of {blocks[0]} numbers; save one response in each file, or as "
            "columns"
        )


def _lines(file: Path) -> list[str]:
    if file.stat().st_size > MAX_BYTES:
        raise FileError(f"{file}: it has more than {MAX_BYTES // 1_000_000} MB of text; save it as WAV")
    content = file.read_bytes()
    marks = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
    marks |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
    encoding = next((name for mark, name in marks.items() if content.startswith(mark)), "utf-8")
    if encoding == "utf-8" and b"\0" in content[:64]:
        encoding = "utf-16-be" if content[:1] == b"\0" else "utf-16-le"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError:
        if encoding != "utf-8":
            raise FileError(f"{file}: it is no readable text; save it as UTF-8") from None
        text = content.decode("cp1252", errors="replace")
    if "\0" in text:
        raise FileError(f"{file}: it is no readable text; save it as UTF-8")
    # Only these characters separate lines in an editor.
    return re.split(r"\r\n|\r|\n", text.translate(_MINUS).replace("\ufeff", ""))


def _unreadable(file: Path, number: int, line: str) -> FileError:
    return FileError(
        f"{file}, line {number}: {line.strip()[:60]!r} is no number, and leaving it out would shift what follows; "
        "write the number, or begin a comment with #"
    )


def _is_comment(line: str) -> bool:
    return bool(_COMMENT.match(line.strip())) and not _SPREADSHEET_ERROR.fullmatch(line.strip())


def _is_comment_among_numbers(line: str) -> bool:
    """Return whether a comment among numbers contains words; a lone number or asterisks may be a sample."""
    text = _COMMENT.sub("", line.strip(), count=1)
    return _is_comment(line) and any(map(str.isalpha, text)) and not _NUMERIC.fullmatch(text)


def _is_broken_row(layout: Layout, line: str, width: int) -> bool:
    """Return whether a line before the numbers looks like a first row with an unreadable cell."""
    cells = [cell for cell in layout.cells(line) if cell]
    if width == 1:
        return len(cells) == 1 and bool(_MISSING.fullmatch(cells[0]))
    return len(cells) == width and any(
        layout.number(cell) is not None or _MISSING.fullmatch(cell) for cell in cells
    )


def _layout(file: Path, lines: Sequence[str], heading: Sequence[str]) -> Layout:
    """Choose the layout that reads all numeric lines, or most of them."""
    candidates = list(_candidates(lines))
    n_read = []
    for layout in candidates:
        rows = [layout.numbers(line) for line in lines]
        widths = [len(row) for row in rows if row is not None]
        n_read.append(max(map(widths.count, set(widths)), default=0))
    possible = [layout for layout, n in zip(candidates, n_read, strict=True) if n == len(lines)]
    if len(possible) > 1:
        clear = possible if possible[0].separator == possible[1].separator else _clear(possible, lines, heading)
        if len(clear) != 1:
            raise FileError(
                f"{file}: its commas may be decimal signs or separators, as in {lines[0].strip()[:40]!r}; write "
                "decimal points, or separate columns by semicolons"
            )
        possible = clear
    return possible[0] if possible else candidates[int(np.argmax(n_read))]


def _candidates(lines: Sequence[str]) -> Iterator[Layout]:
    """Yield the layouts that the characters in the numeric lines allow."""
    text = "\n".join(lines)
    has_comma, has_point = "," in text, "." in text
    decimals = ",." if has_comma and has_point else "," if has_comma else "."
    if ";" in text:
        separators: tuple[str | None, ...] = (";",)
    elif has_comma and not re.search(r",(?=[^\s])", text):  # a space follows every comma: none is decimal
        yield Layout(",", ".")
        return
    elif "\t" in text:
        separators = ("\t",) if not re.search(r"\S +\S", text) else ("\t", None)
    else:
        separators = (None,)
        if has_comma:
            yield Layout(",", ".")
    for separator in separators:
        yield from (Layout(separator, decimal) for decimal in decimals)
    if has_comma != has_point:  # several groups of thousands
        yield Layout(separators[0], "." if has_comma else ",")


def _clear(possible: Sequence[Layout], lines: Sequence[str], heading: Sequence[str]) -> list[Layout]:
    """Keep the layouts that the numbers or the header support, if commas may be separators or decimal signs.

    In 0,0028 the comma is decimal, in -3,-4 it separates.
    """
    by_comma = [layout for layout in possible if layout.separator == ","]
    others = [layout for layout in possible if layout.separator != "," and layout.decimal == ","]
    width = len(by_comma[0].cells(lines[0])) if by_comma else 0
    fractions = re.findall(r",\s*([+-]?[\d]+(?:[eEdD][+-]?\d+)?)", "\n".join(lines))
    for line in heading:
        cells = by_comma[0].cells(line) if width else []
        if len(cells) == width and all(re.match(r"[^\W\d_]", cell) for cell in cells):
            return by_comma
    if any("." in line for line in lines) or any(fraction[0] in "+-" for fraction in fractions):
        return by_comma
    if any(re.match(r"0\d|\d{6}|\d+[eEdD]", fraction) for fraction in fractions):
        return others
    return [*by_comma, *others]


def _names(heading: Sequence[tuple[int, str]], layout: Layout, width: int) -> tuple[str, ...]:
    """Return the last line before the numbers with as many names as columns; a comment must name a quantity."""
    for _, line in reversed(heading):
        if "//" in line.strip()[2:]:
            continue
        is_comment = _is_comment(line)
        text = _COMMENT.sub("", line.strip(), count=1).strip(" ") if is_comment else line.strip(" \r\n")
        if width == 1 and re.search(r"\d", text):  # a remark: names of samples contain no number
            continue
        for cells in _splits(text, layout) if is_comment else (*_splits(text, layout), [text.strip()]):
            if len(cells) == width and (not is_comment or any(map(quantity, cells))):
                if any(cells) and (width > 1 or quantity(cells[0]) or not is_comment):
                    return tuple(cells)
                break
    return ()


def _splits(text: str, layout: Layout) -> Iterator[list[str]]:
    """Yield ways to split a line into names, the table's layout first."""
    for separator in (layout.separator, ";", "\t", ","):
        if separator and separator in text:
            yield [cell.strip().strip('"').strip() for cell in text.strip("\n").split(separator)]
    yield re.split(r"\s{2,}|\t", text.strip())
    yield [match_.strip() for match_ in re.findall(r"[^\s,;(\[]+(?:\s*[(\[][^)\]]*[)\]])?", text)]


_STEMS = {
    "coherence": ("coh", "koh", "coer", "γ", "gamma", "msc", "когер", "コヒーレンス", "相干"),
    "phase": ("phas", "fase", "faza", "faze", "fáz", "phi", "φ", "фаз", "位相", "相位", "angle", "winkel", "vaihe"),
    "imaginary": ("imag", "immag", "мним", "虚部"),
    "real": ("real", "reell", "réel", "reel", "вещ", "действ", "実部", "实部"),
    "frequency": ("freq", "fréq", "frek", "frec", "hertz", "частот", "周波数", "频率", "頻率", "주파수", "częst",
                  "czest", "taaj", "omega", "ω"),
    "time": ("time", "zeit", "temps", "tiemp", "tempo", "czas", "врем", "時間", "时间", "aika"),
    "level": ("spl", "level", "pegel", "niveau", "nivel", "livel", "nivå", "niva", "taso", "poziom", "уров",
              "レベル", "声压级"),
    "magnitude": ("mag", "betrag", "ampl", "gain", "abs", "modul", "módul", "verst", "ampi", "амплит", "модул",
                  "усил", "振幅", "幅"),
    "other": ("delay", "laufzeit", "thd", "distort", "klirr", "excess", "uncert"),
    "index": ("index", "idx", "row", "zeile", "unnamed", "number", "nummer", "номер", "番号", "序号"),
}  # fmt: skip
_EXACT = {
    "imaginary": ("im",),
    "real": ("re",),
    "phase": ("ph", "arg", "deg", "degrees"),
    "frequency": ("f", "hz", "khz"),
    "time": ("t", "ms", "tid", "sec", "second", "seconds", "sekunden"),
    "level": ("db", "dbfs", "dbspl", "dbv", "dbu", "dbpa"),
    "magnitude": ("h", "lin"),
    "index": ("n", "no", "nr", "i", "k", "sample", "samples", "bin", "line", "point", "id"),
}
_UNITS = {
    "dB": ("db", "dbfs", "dbspl", "dbv", "dbu", "dbpa", "дб"),
    "linear": ("lin", "linear", "linéaire", "lineal", "lineare", "pa", "v", "mv", "abs", "ratio", "линейная"),
    "degrees": ("deg", "degree", "degrees", "°", "grad", "gradi", "grados", "degré", "degrés", "градусы", "градус",
                "град", "度"),
    "radians": ("rad", "radian", "radians", "radiant", "radianes", "radianti", "рад", "радиан", "радианы", "弧度"),
    "kHz": ("khz", "кгц"),
    "Hz": ("hz", "гц", "hertz"),
    "ms": ("ms", "мс", "msec"),
    "us": ("us", "µs", "μs", "usec"),
}  # fmt: skip


_DERIVED = (
    *(
        "step",
        "sprung",
        "power",
        "leistung",
        "energ",
        "squared",
        "quadrat",
        "envelope",
        "hüll",
        "schroeder",
        "decay",
    ),
    *("etc", "psd", "spectrum", "spektrum", "magnitude", "betrag", "phase", "coherence", "kohärenz", "imag"),
)


def quantity(name: str) -> str:
    """Classify a column's name as one of `_STEMS`, or nothing.

    Names are those that programs write in English and other languages, without case and units.
    """
    words = _words(name)
    for kind, stems in _STEMS.items():
        if any(word.startswith(stems) for word in words):
            return kind
    return next((kind for kind, exact in _EXACT.items() if any(word in exact for word in words)), "")


def is_no_response(name: str) -> bool:
    """Return whether a name, of a column or an array, denotes something derived from samples."""
    words = _words(name)
    return unit(name) == "dB" or "|" in name or any(word.startswith(_DERIVED) for word in words)


def unit(name: str) -> str:
    """Return the unit that a column's name states, one of `_UNITS`, or nothing."""
    words = _words(name)
    return next((kind for kind, known in _UNITS.items() if any(word in known for word in words)), "")


def _words(name: str) -> list[str]:
    return re.findall(r"°|[^\W\d_]+", name.lower().replace("\u2126", "ω"))

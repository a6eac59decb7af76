"""What the names of columns and arrays mean: quantities and units, in English; the line that names columns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_STEMS = {
    "coherence": ("coh", "gamma", "msc"),
    "phase": ("phas", "angle", "arg"),
    "imaginary": ("imag",),
    "real": ("real",),
    "frequency": ("freq", "hertz", "omega"),
    "time": ("time",),
    "level": ("spl", "level"),
    "magnitude": ("mag", "ampl", "gain", "abs", "modul"),
    "other": ("delay", "thd", "distort", "excess", "uncert"),
    "index": ("index", "idx", "row", "unnamed", "number"),
    "channel": ("primary", "secondary", "feedback", "outer", "error", "response", "left", "right", "drive", "channel"),
}  # fmt: skip
_EXACT = {
    "imaginary": ("im",),
    "real": ("re",),
    "phase": ("ph", "deg", "degrees"),
    "frequency": ("f", "hz", "khz"),
    "time": ("t", "ms"),
    "level": ("db", "dbfs", "dbspl", "dbv", "dbu", "dbpa"),
    "magnitude": ("h", "lin"),
    "index": ("n", "no", "i", "k", "sample", "bin"),
    "channel": ("p", "s", "x", "e", "ir", "samples", "taps", "pressure"),
}
_UNITS = {
    "dB": _EXACT["level"],
    "linear": ("lin", "linear", "pa", "v", "mv", "abs", "ratio"),
    "degrees": ("deg", "degree", "degrees", "°"),
    "radians": ("rad", "radian", "radians"),
    "kHz": ("khz",),
    "Hz": ("hz", "hertz"),
    "ms": ("ms", "msec"),
    "us": ("us", "µs", "μs", "usec"),
}
# Beginnings of words for what is computed from the samples of a response.
_DERIVED = (
    *("step", "power", "energ", "squared", "envelope", "schroeder", "decay", "etc", "psd", "spectrum"),
    *("magnitude", "phase", "coherence", "imag"),
)

# Beginning of a marked line.
MARK = re.compile(r"^(?:\*|#|//|;|%|!)")
# A name has at most this many words, with its unit; a longer text is a remark, and any second word above one column.
_WORDS = 4
_WORD = re.compile(r"[^\s(\[]+\s*(?:[(\[][^)\]]*[)\]])?")


def _words(name: str) -> list[str]:
    return re.findall(r"°|[^\W\d_]+", re.sub(r"\([tf]\)", "", name.lower()))  # h(t) is no time


def quantity(name: str) -> str:
    """Classify a name as one of `_STEMS`, or nothing."""
    words = _words(name)
    for kind, stems in _STEMS.items():
        if any(word.startswith(stems) for word in words):
            return kind
    return next((kind for kind, exact in _EXACT.items() if any(word in exact for word in words)), "")


def unit(name: str) -> str:
    """Return the unit that a name states, one of `_UNITS`, or nothing."""
    words = _words(name)
    return next((kind for kind, known in _UNITS.items() if any(word in known for word in words)), "")


def is_no_response(name: str) -> bool:
    """Return whether a name denotes something derived from the samples of a response."""
    return unit(name) == "dB" or "|" in name or any(word.startswith(_DERIVED) for word in _words(name))


def names_in(heading: Sequence[str], separator: str | None, width: int) -> tuple[str, ...]:
    """Return the last line before the numbers that names as many columns.

    Names are known quantities; the line before the numbers may have any, if it separates them as the numbers are.
    """
    lines = [line.strip() for line in heading if line.strip() and "//" not in line.strip()[2:]]
    for n, line in enumerate(reversed(lines)):
        text = MARK.sub("", line, count=1).strip()
        is_last = n == 0 and text == line and (separator or "\t") in text
        if width == 1 and not _WORD.fullmatch(text):
            continue
        for cells in _splits(text, separator):
            is_short = all(len(re.findall(r"[^\W\d_]+", cell)) <= _WORDS for cell in cells)
            if len(cells) == width and is_short and (is_last or all(map(quantity, cells))):
                return tuple(cells)
    return ()


def _splits(text: str, separator: str | None) -> Iterator[list[str]]:
    """Yield ways to split a line into names, the table's separator first."""
    for mark in dict.fromkeys((separator, ";", "\t", ",")):
        if mark and mark in text:
            yield [cell.strip().strip('"').strip() for cell in text.split(mark)]
    yield re.split(r"\s{2,}|\t", text)
    yield [cell.strip() for cell in re.findall(r"[^\s,;(\[]+(?:\s*[(\[][^)\]]*[)\]])?", text)]

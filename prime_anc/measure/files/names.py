"""What the names of columns and arrays mean, in English, and which line of a head names the columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

_QUANTITIES = {
    "frequency": "f freq frequency frequencies omega hz khz hertz",
    "level": "level spl mag magn magnitude abs db dbspl dbfs dbv dbu dbpa",
    "amplitude": "ampl amplitude gain",
    "phase": "phase ph angle arg deg degrees °",
    "real": "re real",
    "imaginary": "im imag imaginary",
    "time": "t time ms",
    "index": "n no i k index idx sample bin row number unnamed",
    "coherence": "coh coherence",
}
_KIND_OF = {word: kind for kind, words in _QUANTITIES.items() for word in words.split()}
_MAGNITUDES = "db dbspl dbfs dbv dbu dbpa lin linear pa v mv"
_UNITS = {
    "frequency": "hz khz hertz rad s",
    "level": _MAGNITUDES,
    "amplitude": _MAGNITUDES,
    "phase": "deg degree degrees ° rad radian radians",
    "time": "s ms us µs μs sec seconds",
}
# Words that say nothing of the quantity.
_EMPTY = {"of", "h", "response", "part", "value", "wrapped", "unwrapped"}
# Beginnings of words for what is computed from the samples of a response.
_DERIVED = (
    *("step", "power", "energ", "squared", "envelope", "schroeder", "decay", "etc", "psd", "spectrum"),
    *("magnitude", "phase", "coherence", "imag", "thd", "distort"),
)
# Beginning of a marked line.
MARK = re.compile(r"^(?:\*|#|//|;|%|!)")
# A name of a column: a word and a unit in brackets.
_NAME = re.compile(r"[^\s,;(\[]+(?:\s*[(\[][^)\]]*[)\]])?")
# Words of the longest name, with its unit.
_MOST_WORDS = 4


def _words(name: str) -> list[str]:
    # The t of h(t) is no time, and `dB re 20 uPa` means dB.
    return re.findall(r"°|[^\W\d_]+", re.sub(r"\([tf]\)|\bre\.? ?\d.*", "", name.lower()))


def quantity(name: str) -> tuple[str, str]:
    """Return the quantity that a name means, one of `_QUANTITIES` or nothing, and its unit or nothing."""
    words = _words(name)
    for kind in dict.fromkeys(_KIND_OF[word] for word in words if word in _KIND_OF):
        known = _UNITS.get(kind, "").split()
        if all(word in known or word in _EMPTY or _KIND_OF.get(word) == kind for word in words):
            return kind, next((word for word in words if word in known), "")
    return "", ""


def is_no_response(name: str) -> bool:
    """Return whether a name denotes something derived from the samples of a response."""
    words = _words(name)
    return "|" in name or any(word.startswith("db") or word.startswith(_DERIVED) for word in words)


def names_in(heading: Sequence[str], separator: str | None, width: int) -> tuple[str, ...]:
    """Return the last line before the numbers that names as many columns.

    All names are known quantities, or it is the line before the numbers, not marked, whose names are separated as the
    numbers are; of a single column it is one word.
    """
    lines = [line.strip() for line in heading if line.strip() and "//" not in line.strip()[2:]]
    for n, line in enumerate(reversed(lines)):
        text = MARK.sub("", line, count=1).strip()
        is_last = n == 0 and text == line and (width == 1 or (separator or "\t") in text)
        cells = [cell.strip().strip('"').strip() for cell in re.split(separator or r"[;\t,]|\s{2,}", text)]
        if width > 1 and len(cells) != width:
            cells = _NAME.findall(text)
        is_short = all(len(_words(cell)) <= (_MOST_WORDS if width > 1 else 1) for cell in cells)
        if len(cells) == width and is_short and (is_last or all(quantity(cell)[0] for cell in cells)):
            return tuple(cells)
    return ()

"""Read the lines around the numbers of a text file: sample rate, time of the first sample, length, peak value.

Keywords are those that programs write in English and other languages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from measurement.files.errors import FileError

# Parses a cell with the table's decimal sign.
Number = Callable[[str], float | None]

_VALUE = r"(?P<value>[+-]?(?:\d{1,3}(?:[.,'\u2019\u00a0\u202f ]\d{3})+(?!\d)|\d*[.,]?\d+)(?:[eE][+-]?\d+)?)"
_UNIT = r"\s*(?P<unit>khz|hz|кгц|гц|ms|мс|[uµμ]s|ns|s\b|sec|sek|seg)?"
_SAMPLING = re.compile(
    r"(?:sampe?l\w*[ _-]?(?:rate|fre[qk]\w*|interval\w*|period\w*|time)|\bf_?s|\bsr|\bdt|\bts|control filter at"
    r"|abtast\w+|échantillonnage|echantillonnage|muestreo|campionamento|amostragem|bemonstering\w*|pr[óo]bkowani\w*"
    r"|дискретизации|näytteenotto\w*|vzorkov\w*|örnekleme\w*|サンプリング\w*|サンプルレート|标本化周波数|標本化周波数"
    r"|采样\w*|取樣\w*|採樣\w*|샘플링\w*)"
    r"(?P<before>[^\d\w+-]*(?:\([^)\d]*\)|\[[^\]\d]*\]|is|of|hz|khz)?[^\d\w+-]*)" + _VALUE + _UNIT,
    re.IGNORECASE,
)
_START = re.compile(
    r"(?:\bstart[ _-]?time|\bt_?0\b|startzeit|time of (?:the )?first sample)[^\d\w+-]*(?:\([^)\d]*\)|is)?[^\d\w+-]*"
    + _VALUE
    + _UNIT,
    re.IGNORECASE,
)
_CHANGES = re.compile(
    r"\b(?:gain|scal\w*|factor|offset|delay|latency|shift\w*|sensitivity|calibrat\w*|verstärkung|skalierung)\b"
    r"[^\d\w+-]*[+-]?\d",
    re.IGNORECASE,
)
_SECONDS = {"ms": 1e-3, "мс": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
# Range of a rate without a unit; intervals are below 1.
_LIKELY_HZ = (1000.0, 1e6)
# Order of REW's lines `number // meaning` in any language.
_REW_ORDER = ("peak value", "peak index", "response length", "sample interval", "start time")
# Relative difference of numbers that are equal up to rounding.
_ALMOST = 1e-3


@dataclass(frozen=True)
class Head:
    """Values stated by the lines."""

    # Sample rate.
    rate_hz: float | None
    # Time of the first sample.
    start_s: float
    # Number of samples that follow.
    n_samples: int | None
    # Factor for the samples.
    scale: float
    # Statements that changed the samples, and those not used.
    notes: tuple[str, ...]


def rate_of(interval_s: float) -> float:
    """Convert an interval to a sample rate, rounded to a whole number if near one; 0 if there is none."""
    rate_hz = 1 / interval_s if interval_s > 1e-9 else 0.0
    return float(round(rate_hz)) if abs(rate_hz - round(rate_hz)) < 1e-5 * rate_hz else rate_hz


def read_head(file: Path, lines: Sequence[str], number: Number, largest: float, n_rows: int) -> Head:
    """Read the statements that affect how the numbers are interpreted.

    Parameters
    ----------
    file : Path
        For messages.
    lines : sequence of str
        Those before the numbers, and comments among them.
    number : callable
        Reads a number with the table's decimal sign, or returns None.
    largest : float
        Largest magnitude among the samples.
    n_rows : int
        How many rows of numbers there are.

    Returns
    -------
    Head

    Raises
    ------
    FileError
        If the lines contradict one another, or say that the samples are no response, or normalised by an unknown value.
    """
    rates: list[float] = []
    starts: list[float] = []
    unused: list[str] = []
    stated: list[tuple[float, str]] = []
    for line in lines:
        before, _, meaning = line.partition("//")
        value = _first(number(before.strip()), _decimal(before.strip())) if meaning else None
        if value is not None:
            stated.append((value, meaning.strip()))
        elif match := _SAMPLING.search(line):
            if (rate := _rate(match, number)) is not None:
                rates.append(rate)
        elif match := _START.search(line):
            start = _first(number(match["value"]), _decimal(match["value"]))
            starts += [start * _SECONDS.get((match["unit"] or "").lower(), 1.0)] if start is not None else []
        elif _CHANGES.search(line):
            unused.append(line.strip(" *#%;/!"))
        if "is the min phase version" in line.lower():
            raise FileError(
                f"{file}: it holds the minimum-phase version; export the impulse response that was measured"
            )
    by_meaning, unknown = _rew(stated, n_rows)
    if "sample interval" in by_meaning:
        rates.append(rate_of(by_meaning["sample interval"]))
    if "start time" in by_meaning:
        starts.append(by_meaning["start time"])
    for values, what in ((rates, "sample rates"), (starts, "start times")):
        if values and max(values) - min(values) > _ALMOST * abs(max(values)):
            raise FileError(
                f"{file}: its head states several {what}, {', '.join(f'{v:g}' for v in values)}; keep one"
            )
    scale = _scale(file, " ".join(lines).lower(), by_meaning.get("peak value"), largest)
    notes = []
    if scale != 1:
        notes.append(f"normalised, hence multiplied by the peak value that the head states, {scale:g}")
    if unused := [*unused, *unknown]:
        notes.append(f"not used: {'; '.join(item[:60] for item in unused[:4])}")
    length = by_meaning.get("response length")
    return Head(
        rates[0] if rates else None,
        starts[0] if starts else 0.0,
        None if length is None else round(length),
        scale,
        tuple(notes),
    )


def _rate(match: re.Match[str], number: Number) -> float | None:
    """Return the rate of a sampling frequency or interval by its unit or, without one, its size, or None."""
    around = f"{match['before']} {match['unit'] or ''}".lower()
    text = match["value"]
    found = [item for item in (_grouped(text), number(text), _decimal(text)) if item is not None]
    if not found:
        return None
    seconds = next((second for name, second in _SECONDS.items() if name in around), None)
    if seconds is None and re.search(r"\bs(ec|ek|eg)?\b", around):
        seconds = 1.0
    if seconds is not None:
        return rate_of(found[-1] * seconds)
    scale = 1000.0 if "k" in around or "к" in around else 1.0
    likely = [item * scale for item in found if _LIKELY_HZ[0] <= item * scale <= _LIKELY_HZ[1]]
    if not likely and found[-1] < 0.1 and scale == 1:
        return rate_of(found[-1])
    return likely[0] if likely else found[-1] * scale


def _first(*found: float | None) -> float | None:
    return next((item for item in found if item is not None), None)


def _grouped(text: str) -> float | None:
    """Parse a number with groups of thousands, or return None."""
    is_grouped = re.fullmatch(r"\d{1,3}([.,'\u2019\u00a0\u202f ])\d{3}(\1\d{3})*", text)
    return float(re.sub(r"\D", "", text)) if is_grouped else None


def _decimal(text: str) -> float | None:
    """Parse a number with a decimal point or comma, or return None."""
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None


def _rew(stated: Sequence[tuple[float, str]], n_rows: int) -> tuple[dict[str, float], list[str]]:
    """Return REW's values by the English names of their meanings, and the other lines."""
    named = {key: value for value, meaning in stated for key in _REW_ORDER if key in meaning.lower()}
    rest = stated
    if "sample interval" not in named and len(stated) >= len(_REW_ORDER):
        in_order = dict(zip(_REW_ORDER, (value for value, _ in stated), strict=False))
        if round(in_order["response length"]) == n_rows and 1e-6 < in_order["sample interval"] < 1e-3:
            named, rest = in_order, stated[len(_REW_ORDER) :]
    return named, [
        f"{value:g} {meaning}" for value, meaning in rest if not any(key in meaning.lower() for key in _REW_ORDER)
    ]


def _scale(file: Path, text: str, peak: float | None, largest: float) -> float:
    """Return the factor that undoes REW's normalisation to 1."""
    if "is not normali" in text or (peak is None and "is normali" not in text):
        return 1.0
    if peak and "is normali" in text:
        return abs(peak)
    if peak and abs(largest - 1) < _ALMOST:  # a header in another language
        return abs(peak)
    if peak and abs(largest - abs(peak)) < 0.01 * abs(peak):
        return 1.0
    raise FileError(f"{file}: its head does not say by what it is normalised; export it again, not normalised")

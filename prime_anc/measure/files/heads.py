"""Read the statements around the numbers of a text: rate, start, delay, length, scale and level."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prime_anc.measure.files.errors import FileError

_VALUE = r"(?P<value>[+-]?\d*[.,]?\d+(?:e[+-]?\d+)?)\s*"
_NUMBER = r"[^\d\w+-]*(?:\([^)\d]*\)|is|of|by)?[^\d\w+-]*" + _VALUE
_UNIT = r"(?P<unit>khz|hz|ms|[uµμ]s|s\b|sec|samples?)?"
_SAMPLING = re.compile(
    r"(?:sampl\w*[ _-]?(?:rate|freq\w*|interval|period|time)|\bf_?s|\bsr|\bdt|\bts|control filter at)"
    r"(?P<before>(?:[^\d\w+-]|_)*(?:\([^)\d]*\)|\[[^\]\d]*\]|k?hz)?)" + _NUMBER + _UNIT + r"(?![\d.,]|\s*dB)",
    re.IGNORECASE,
)
_START = re.compile(
    r"(?:\bstart[ _-]?time|\bt_?0\b|time of (?:the )?first sample)" + _NUMBER + _UNIT, re.IGNORECASE
)
# A line that states a delay other than 0: its name, with a number directly after it or a unit of time in the line.
_LATE = re.compile(
    r"(?=.*[1-9]).*\b(?:delay|latency|shift\w*|time of flight)\b(?:"
    + _NUMBER
    + r"|.*\b(?:ms|[uµμ]s|s|samples?)\b)|"
    r".*[1-9]\d*\s*(?:ms|[uµμ]s|s)\b.*\b(?:delay|latency|shift\w*|time of flight)\b",
    re.IGNORECASE,
)
_TIME = re.compile(r"(?<![\w.,])" + _VALUE + r"(?P<unit>ms|[uµμ]s|s|sec)\b", re.IGNORECASE)
# Words by which a delay was taken out of the numbers, as by REW.
_REMOVED = re.compile(
    r"estimated IR delay|(?<!not )(?<!not been )\b(?:remov|compensat|subtract|taken off)", re.IGNORECASE
)
_MINIMUM_PHASE = re.compile(r"\bmin(?:imum|imal)?\.?[\s_-]*phas\w*|hilbert|excess[\s_-]*phas\w*", re.IGNORECASE)
_NORMALISED = re.compile(r"\bnormali[sz]ed\b", re.IGNORECASE)
_DENIED_BEFORE = re.compile(r"\b(?:not?|non|without|isn't)\b", re.IGNORECASE)
_DENIED_AFTER = re.compile(r"\W*(?:no|off|none|false)\b", re.IGNORECASE)
# Statements of a level: `gain: 20 dB`, `dBFS to SPL: 94`, or REW's `100.0 // Data offset (dB)`.
_LEVEL = re.compile(
    r"^[+-]?[\d.,]+ *// *.*\b(?:gain|offset|sensitivity)|"
    r"\b(?:gain|scal\w*|factor|offset|sensitivity|attenuat\w*|calibrat\w*)\b(?: by)?[^\d\w+-]*[+-]?\d|"
    r"\d *dB (?:of )?(?:gain|offset|attenuation)|"
    r"\bdB ?FS\b.*\bSPL\b.*\d|\d.*\bdB ?FS\b.*\bSPL\b|\bSPL\b.*\d.*\bdB ?FS\b",
    re.IGNORECASE,
)
_SECONDS = {"s": 1.0, "sec": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6}
# REW's lines `number // meaning`.
_REW = re.compile(
    r"(?P<value>[+-]?[\d.,]+(?:e[+-]?\d+)?) *// *(?P<key>peak value|response length|sample interval|start time)",
    re.IGNORECASE,
)
# Relative difference of numbers that are equal up to rounding.
_ALMOST = 1e-3


@dataclass(frozen=True)
class Head:
    """Values that the lines state."""

    # Sample rate; None if none is stated.
    rate_hz: float | None = None
    # Time of the first sample; it includes a delay that was removed.
    start_s: float = 0.0
    # Number of samples that follow.
    n_samples: int | None = None
    # Factor for the samples.
    scale: float = 1.0
    # Statements of gain, sensitivity or offset.
    level: str = ""
    notes: tuple[str, ...] = ()


def rate_of(interval_s: float) -> float:
    """Convert an interval to a sample rate, rounded to a whole number if near one; 0 if there is none."""
    rate_hz = 1 / interval_s if interval_s > 1e-9 else 0.0
    return float(round(rate_hz)) if abs(rate_hz - round(rate_hz)) < 1e-5 * rate_hz else rate_hz


def read_head(file: Path, lines: Sequence[str]) -> Head:
    """Read the statements by which numbers have to be interpreted.

    Parameters
    ----------
    file : Path
        For messages.
    lines : sequence of str
        Those before the numbers, and remarks among them.

    Returns
    -------
    Head

    Raises
    ------
    FileError
        The lines contradict one another, or the numbers are no measured response, or normalised by an unknown value,
        or it is not clear what a delay means.
    """
    stated: dict[str, list[float]] = {"sample rates": [], "start times": [], "delays": []}
    rew: dict[str, float] = {}
    levels: list[str] = []
    for line in lines:
        text = line.strip(" *#%;/!\t")
        if _is_stated(_MINIMUM_PHASE, line):
            raise FileError(
                f"{file}: {text[:60]!r}: its phase was computed from the level, and has lost the delay; export the "
                "phase, or the impulse response, that was measured"
            )
        if match := _REW.match(text):
            rew[match["key"].lower()] = _number(match)
        elif match := _SAMPLING.search(line):
            stated["sample rates"].append(_rate(match))
        elif match := _START.search(line):
            stated["start times"].append(_number(match) * _SECONDS.get((match["unit"] or "s").lower(), 1.0))
        elif _LATE.match(line):
            times = list(_TIME.finditer(line))
            if len(times) != 1 or not _REMOVED.search(line):
                raise FileError(
                    f"{file}: it is not clear whether {text[:60]!r} is part of the numbers; write `Delay 0.25 ms "
                    "removed` for one to be added, or leave the line out"
                )
            stated["delays"].append(_number(times[0]) * _SECONDS[times[0]["unit"].lower()])
        elif _LEVEL.search(text):
            levels.append(text[:60])
    stated["sample rates"] += [rate_of(rew["sample interval"])] if "sample interval" in rew else []
    stated["start times"] += [rew["start time"]] if "start time" in rew else []
    for what, values in stated.items():
        if values and max(values) - min(values) > _ALMOST * abs(max(values)):
            listed = ", ".join(f"{value:g}" for value in values)
            raise FileError(f"{file}: its head states several {what}, {listed}; keep one")
    rate, start, delay = (values[0] if values else None for values in stated.values())
    scale, notes = 1.0, [f"delayed by {1e3 * delay:g} ms, which its head says was removed"] if delay else []
    if any(_is_stated(_NORMALISED, line) for line in lines):
        scale = abs(rew.get("peak value", 0.0))
        if not scale:
            raise FileError(
                f"{file}: its head does not say by what it is normalised; export it again, not normalised"
            )
        notes.append(f"normalised, hence multiplied by the peak value that the head states, {scale:g}")
    notes += [f"not used: {'; '.join(levels)}"] if levels else []
    length = round(rew["response length"]) if "response length" in rew else None
    return Head(rate, (start or 0.0) + (delay or 0.0), length, scale, "; ".join(levels), tuple(notes))


def _is_stated(what: re.Pattern[str], line: str) -> bool:
    """Return whether a line says something, in any wording, and does not deny it."""
    match = what.search(line)
    if match is None or _DENIED_BEFORE.search(line[: match.start()]):
        return False
    return _DENIED_AFTER.match(line[match.end() :]) is None


def _number(match: re.Match[str]) -> float:
    return float(match["value"].replace(",", "."))


def _rate(match: re.Match[str]) -> float:
    """Return the rate of a sampling frequency or interval, by its unit or, without one, its size."""
    around = f"{match['before']} {match[0]}".lower()
    value, unit = _number(match), (match["unit"] or "").lower()
    seconds = _SECONDS.get(unit, 1.0 if re.search(r"\(s|second|\[s", around) else None)
    if seconds is not None or (not unit and value < 0.1):
        return rate_of(value * (seconds or 1.0))
    return value * (1000.0 if "khz" in around else 1.0)

"""Interpret the named columns of a table: samples of channels, or a frequency response."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.files.channels import Measurement
from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.heads import rate_of
from prime_anc.measure.files.spectra import response_of
from prime_anc.measure.files.text import Table, read_table
from prime_anc.measure.files.units import check_unaltered, hertz, magnitude, radians
from prime_anc.measure.files.vocabulary import is_no_response, quantity, unit

Float64 = NDArray[np.float64]

# The columns of an .frd file, which has no head.
_FRD = ("frequency (Hz)", "level (dB)", "phase (deg)")
_SPECTRAL = ("level", "magnitude", "phase", "real", "imaginary")


def read(file: Path) -> Measurement:
    """Read a text file by the names of its columns.

    Raises
    ------
    FileError
        A quantity is missing, duplicated or without its unit, or several columns have no names.
    """
    table = read_table(file)
    width = table.values.shape[1]
    names = table.names or (_FRD if file.suffix.lower() == ".frd" and width == 3 else ())
    if not names and width == 1:
        names = ("response",)
    if not names:
        raise FileError(
            f"{file}: no line names its {width} columns; write a first line that does, for example `frequency_Hz, "
            "level_dB, phase_deg` or `time_s, response`"
        )
    if len(set(names)) < width:
        raise FileError(f"{file}: two of its columns have the same name; name them apart")
    kinds = [quantity(name) for name in names]
    if "time" in kinds:
        return _timed(file, table, names, kinds)
    if width > 1 and ("frequency" in kinds or any(kind in _SPECTRAL for kind in kinds)):
        return _spectrum(file, table, names, kinds)
    if width == 1 and (kinds[0] not in ("", "channel", "index", "magnitude") or is_no_response(names[0])):
        raise FileError(f"{file}: its only column is {names[0]!r}; export samples, or a frequency beside them")
    used = [n for n, kind in enumerate(kinds) if width == 1 or (kind != "index" and names[n])]
    found = {names[n]: table.values[:, n] for n in used}
    return _measurement(file, table, found, _unused(names, used))


def _measurement(file: Path, table: Table, found: dict[str, Float64], notes: tuple[str, ...]) -> Measurement:
    head = table.head
    return Measurement(file, found, head.rate_hz, head.start_s, (*head.notes, *notes), level=head.level)


def _unused(names: Sequence[str], used: Sequence[int]) -> tuple[str, ...]:
    rest = ", ".join(repr(name) for n, name in enumerate(names) if n not in used)
    return (f"not used: column {rest}",) if rest else ()


def _rises(column: Float64) -> bool:
    return len(column) > 1 and bool((np.diff(column) > 0).all())


def _timed(file: Path, table: Table, names: Sequence[str], kinds: list[str]) -> Measurement:
    """Read samples at the times of a column."""
    used = [n for n, kind in enumerate(kinds) if kind not in ("time", "index")]
    wrong = [names[n] for n in used if is_no_response(names[n]) or kinds[n] not in ("magnitude", "channel", "")]
    if kinds.count("time") > 1 or wrong:
        raise FileError(f"{file}: {', '.join(wrong) or 'time'} is no impulse response; export time and its samples")
    place = kinds.index("time")
    time = table.values[:, place] * {"ms": 1e-3, "us": 1e-6}.get(unit(names[place]), 1.0)
    if not _rises(time):
        raise FileError(f"{file}: its times do not rise; export it again")
    interval = (time[-1] - time[0]) / (len(time) - 1)
    late = (time - time[0]) / interval - np.arange(len(time))
    if np.abs(late).max() > 0.5:
        raise FileError(f"{file}: its times are not evenly spaced; export it again")
    rate_hz = float(round(1 / interval)) if interval < 1e-3 else rate_of(interval)
    stated = table.head.rate_hz
    if stated is not None and abs(stated - rate_hz) > 1e-3 * rate_hz:
        raise FileError(
            f"{file}: its head states {stated:g} Hz, but its times are {1e6 * interval:.4g} microseconds apart; export "
            "it again"
        )
    # Times are rounded by their distance from the even grid.
    start = time[0] * rate_hz + late.mean()
    if abs(start - round(start)) <= max(1e-3, 2 * late.std()):
        start = round(start)
    found = _measurement(
        file, table, {names[n]: table.values[:, n] for n in used}, ("samples at times of a column",)
    )
    return found.at(rate_hz, table.head.start_s + float(start) / rate_hz)


def _spectrum(file: Path, table: Table, names: Sequence[str], kinds: list[str]) -> Measurement:
    """Read a response at the frequencies of a column."""
    kinds = ["level" if kind == "magnitude" else kind for kind in kinds]
    wanted = ("real", "imaginary") if {"real", "imaginary"} <= set(kinds) else ("level", "phase")
    for kind in ("frequency", *wanted):
        if (n := kinds.count(kind)) != 1:
            raise FileError(
                f"{file}: its columns are {', '.join(names)}: {'no' if not n else f'{n} columns of'} {kind}; export "
                "frequency, level in dB and phase in degrees, of one response"
            )
        check_unaltered(file, kind, names[kinds.index(kind)])
    places = [kinds.index(kind) for kind in ("frequency", *wanted)]
    name = [names[n] for n in places]
    frequency, first, second = table.values[:, places].T
    frequency = frequency * hertz(name[0])
    if wanted[0] == "real":
        absolute, angle = np.hypot(first, second), np.arctan2(second, first)
    else:
        absolute, angle = magnitude(file, name[1], first), radians(file, name[2], second)
    samples = response_of(file, frequency, absolute, angle, table.head.start_s)
    notes = (f"{wanted[0]} and {wanted[1]} interpolated over frequency", *_unused(names, places))
    return _measurement(file, table, {"response": samples}, notes).at(48_000.0, 0.0)

"""Columns of a table by their names: samples of channels, or a frequency response.

A name is one quantity, a unit and nothing else: `SPL (dB)`, `phase_deg`, `Freq[kHz]`. A name with any other word, as
`phase lag`, is that of something else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.files.channels import Measurement
from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.heads import rate_of
from prime_anc.measure.files.names import is_no_response, quantity
from prime_anc.measure.files.spectra import response_of
from prime_anc.measure.files.text import Table, read_table

Float64 = NDArray[np.float64]

# The columns of an .frd file, which has no head.
_FRD = ("frequency (Hz)", "level (dB)", "phase (deg)")
# Columns that are no samples of a channel, and units of a column of frequencies or times.
_SPECTRAL = {"frequency", "level", "phase", "real", "imaginary"}
_SCALES = {"khz": 1000.0, "rad": 1 / (2 * np.pi), "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6}
# Higher than any level in air, dB re 20 micropascals.
_LARGEST_LEVEL_DB = 200.0


def read(file: Path) -> Measurement:
    """Read a text file by the names of its columns.

    Raises
    ------
    FileError
        A quantity is missing, duplicated or without its unit, or several columns have no names.
    """
    table = read_table(file)
    width = table.values.shape[1]
    names = table.names or {3: _FRD if file.suffix.lower() == ".frd" else (), 1: ("response",)}.get(width, ())
    if not names:
        raise FileError(
            f"{file}: no line names its {width} columns; write a first line that does, for example `frequency_Hz, "
            "level_dB, phase_deg` or `time_s, response`"
        )
    if len(set(names)) < width:
        raise FileError(f"{file}: two of its columns have the same name; name them apart")
    kinds = [quantity(name)[0] for name in names]
    if "time" in kinds:
        return _timed(file, table, names, kinds)
    if width > 1 and _SPECTRAL & set(kinds):
        return _spectrum(file, table, names, kinds)
    return _samples(file, table, names, kinds, 0.0, table.head.rate_hz)


def _samples(
    file: Path, table: Table, names: Sequence[str], kinds: Sequence[str], start_s: float, rate_hz: float | None
) -> Measurement:
    """Return the columns that hold samples of channels."""
    wrong = [name for name, kind in zip(names, kinds, strict=True) if kind in _SPECTRAL or is_no_response(name)]
    if wrong:
        raise FileError(f"{file}: {', '.join(wrong)} is no impulse response; export samples, or a frequency beside")
    used = [n for n, kind in enumerate(kinds) if len(kinds) == 1 or (kind not in ("index", "time") and names[n])]
    channels = {names[n]: table.values[:, n] for n in used}
    rest = [repr(names[n]) for n, kind in enumerate(kinds) if n not in used and kind != "time"]
    notes = (*table.head.notes, *([f"not used: column {', '.join(rest)}"] if rest else []))
    return Measurement(file, channels, rate_hz, table.head.start_s + start_s, notes, level=table.head.level)


def _timed(file: Path, table: Table, names: Sequence[str], kinds: Sequence[str]) -> Measurement:
    """Read samples at the times of a column."""
    if kinds.count("time") > 1:
        raise FileError(f"{file}: it has several columns of times; keep one")
    place = kinds.index("time")
    time = table.values[:, place] * _scale(names[place])
    interval = (time[-1] - time[0]) / max(len(time) - 1, 1)
    if len(time) < 2 or not (np.diff(time) > 0).all():
        raise FileError(f"{file}: its times do not rise; export it again")
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
    return _samples(file, table, names, kinds, float(start) / rate_hz, rate_hz)


def _spectrum(file: Path, table: Table, names: Sequence[str], kinds: Sequence[str]) -> Measurement:
    """Read a response at the frequencies of a column."""
    kinds = ["level" if kind == "amplitude" else kind for kind in kinds]
    wanted = ("real", "imaginary") if {"real", "imaginary"} <= set(kinds) else ("level", "phase")
    for kind in ("frequency", *wanted):
        if (n := kinds.count(kind)) != 1:
            which = f"{n} are" if n else "none is"
            raise FileError(
                f"{file}: its columns are {', '.join(names)}: {which} {kind}; export frequency, level in dB and phase "
                "in degrees, of one response"
            )
    places = [kinds.index(kind) for kind in ("frequency", *wanted)]
    frequency, first, second = table.values[:, places].T
    if wanted[0] == "real":
        absolute, angle = np.hypot(first, second), np.arctan2(second, first)
    else:
        absolute, angle = _magnitude(file, names[places[1]], first), _radians(file, names[places[2]], second)
    head = table.head
    samples = response_of(file, frequency * _scale(names[places[0]]), absolute, angle, head.start_s)
    notes = [*head.notes, f"{wanted[0]} and {wanted[1]} interpolated over frequency"]
    if rest := [repr(name) for n, name in enumerate(names) if n not in places]:
        notes.append(f"not used: column {', '.join(rest)}")
    return Measurement(file, {"response": samples}, 48_000.0, 0.0, tuple(notes), level=head.level)


def _scale(name: str) -> float:
    """Return the factor that brings a column of frequencies or times to hertz or seconds."""
    return _SCALES.get(quantity(name)[1], 1.0)


def _magnitude(file: Path, name: str, values: Float64) -> Float64:
    """Read a magnitude; a name that says level or SPL means dB."""
    unit = quantity(name)[1]
    is_db = unit.startswith("db") or (not unit and re.search("level|spl", name.lower()) is not None)
    if not is_db and unit and values.min() >= 0:
        return values
    if not is_db or values.max() > _LARGEST_LEVEL_DB:
        raise FileError(
            f"{file}: {name!r} holds {values.min():g} to {values.max():g}, which may be linear or in dB; name the unit "
            "in the head, level_dB or linear"
        )
    return np.asarray(10 ** (values / 20))


def _radians(file: Path, name: str, values: Float64) -> Float64:
    """Read a phase in radians; only degrees jump by more than 180 where they are wrapped."""
    unit = quantity(name)[1]
    if not values.any():
        raise FileError(f"{file}: its phase is 0 everywhere; export the phase that was measured")
    if unit.startswith("rad"):
        return values
    if unit or np.abs(np.diff(values)).max() > 180:
        return np.deg2rad(values)
    raise FileError(
        f"{file}: {name!r} may be in degrees or in radians; name the unit in the head, phase_deg or phase_rad"
    )

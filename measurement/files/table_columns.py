"""Interpret the columns of a table: samples of channels, or a frequency response.

The header decides. Without one, only unambiguous numbers are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from measurement.files.errors import FileError
from measurement.files.table_heads import rate_of
from measurement.files.text_tables import Table, is_no_response, quantity, unit
from synthesis.conventions import SAMPLE_RATE_HZ

Float64 = NDArray[np.float64]
Complex128 = NDArray[np.complex128]

# Bins of an interpolated response: 5.9 Hz apart, 8192 samples long.
N_SPECTRUM_BINS = 4097
INTERPOLATED = f"interpolated to {N_SPECTRUM_BINS} frequencies, held below the first and above the last"
# Phase (radians): one that stays within this up to 8 kHz is not in degrees.
_SMALL_ANGLE = 3.15
_SPECTRAL = ("level", "magnitude", "phase", "real", "imaginary")
# Higher than any level in air, dB re 20 micropascals.
_LARGEST_LEVEL_DB = 200.0
# Positive numbers without a unit up to this are linear; levels in dB would rise higher.
_SAFELY_LINEAR = 4.0
# Shortest delay of a path: a phase without a unit that would mean less in degrees is ambiguous.
_LEAST_DELAY_S = 50e-6
_LAST_BAND_HZ = 7800.0
_ROWS_PER_OCTAVE = 11.0
# Larger steps between rows miss details of a path.
_FINE_STEP_HZ = 25.0
_ALTERED = re.compile(
    r"conj|negat|\bminus|^-|invers|invert|recipr|^1 ?/|\bstd\b|deviat|abweich|\berr(or)?\b|\bdelta\b|\bdiff|toler",
)
_ALTERED_LEVEL = re.compile(
    r"atten|atténu|atenua|affaibl|loss|dämpf|daempf|isolat|perte|pérdida|perdita|затух|減衰|%|percent|prozent"
    r"|\blog|\bln\b|neper|\bnp\b|\bbels?\b|[(\[]b[)\]]|\bmdb\b|\bcdb\b"
)
_ALTERED_PHASE = re.compile(
    r"\blag|nacheil|retard|excess|\bmin|cycle|turn|revol|umdreh|\bpi\b|π|mrad|milli|\bgons?\b|%|percent"
)
# Words by which a column is not the level or phase itself; `_POWER` only if it is not in dB.
_POWER = re.compile(r"power|energ|leistung|squar|quadr|psd|\^ ?2|²")


@dataclass(frozen=True, eq=False)
class Channels:
    """Samples, or one spectrum from 0 to 24 kHz, by name."""

    by_name: Mapping[str, NDArray[np.float64] | NDArray[np.complex128]]
    # Sample rate; None if none is stated.
    rate_hz: float | None
    start_s: float = 0.0
    notes: tuple[str, ...] = field(default=())


def channels(file: Path, table: Table) -> Channels:
    """Interpret columns by their names or, without names, by their numbers.

    Raises
    ------
    FileError
        A quantity is missing or duplicated, or the numbers are ambiguous.
    """
    names = table.names or _names_by_numbers(file, table.values)
    kinds = [quantity(name) for name in names]
    columns = dict(enumerate(table.values.T))
    spectral = [n for n, kind in enumerate(kinds) if kind in _SPECTRAL]
    if len(names) == 1:
        if kinds[0] not in ("", "index", "magnitude") or is_no_response(names[0]):
            raise FileError(f"{file}: its only column is {names[0]!r}; export samples, or a frequency beside them")
        return Channels({names[0]: columns[0]}, table.rate_hz, table.start_s)
    if "time" in kinds:
        return _timed(file, table, names, kinds)
    is_spectrum = "frequency" in kinds and (len(spectral) > 0 or _rises(columns[kinds.index("frequency")]))
    if is_spectrum or any(kind not in ("magnitude",) for kind in map(kinds.__getitem__, spectral)):
        return _spectrum(file, table, names, kinds)
    counting = [n for n, kind in enumerate(kinds) if (kind == "index" or not names[n]) and _counts(columns[n])]
    others = {names[n] or f"channel {n + 1}": column for n, column in columns.items() if n not in counting}
    if len(others) < len(names) - len(counting):
        raise FileError(f"{file}: two of its columns have the same name; name them apart")
    return Channels(others, table.rate_hz, table.start_s, _unused(names, counting))


def _names_by_numbers(file: Path, values: Float64) -> tuple[str, ...]:
    """Name columns without names."""
    first, width = values[:, 0], values.shape[1]
    if width == 1:
        return ("response",)
    if not _rises(first):
        if width == 2:
            return ("outer", "error")
        raise FileError(f"{file}: the first of {width} columns does not rise; it must be time or frequency")
    if _counts(first) and width > 2 and _rises(values[:, 1]) and values[-1, 1] > 1000:
        return ("index", *_names_by_numbers(file, values[:, 1:]))
    if width == 2:
        if first[-1] - first[0] > 1000 and not _counts(first):
            raise FileError(
                f"{file}: frequency and level without phase are not enough; export the phase in degrees as third "
                "column"
            )
        if _counts(first):
            raise _unnamed(file, "row numbers or frequencies")
        return ("time", "response")
    if width > 4 or (width == 4 and not _is_coherence(values[:, 3])):
        raise _unnamed(file, "anything")
    level, phase = values[:, 1], values[:, 2]
    if _counts(first) and max(np.ptp(level), np.ptp(phase)) < 20:
        raise _unnamed(file, "row numbers and samples")
    if _is_coherence(phase) or _follows(phase, level):
        raise FileError(f"{file}: its third column is no phase; export the phase in degrees as third column")
    if np.abs(level).max() <= _SMALL_ANGLE and np.abs(phase).max() <= _SMALL_ANGLE:
        raise _unnamed(file, "real and imaginary parts")
    return ("frequency", "level", "phase", "coherence")[:width]


def _unnamed(file: Path, meaning: str) -> FileError:
    return FileError(
        f"{file}: without a head its columns may be {meaning}; write a first line that names them, for example "
        "frequency_Hz, level_dB, phase_deg or time_s, response"
    )


def _rises(column: Float64) -> bool:
    return len(column) > 1 and bool((np.diff(column) > 0).all())


def _counts(column: Float64) -> bool:
    """Return whether a column holds row numbers."""
    return len(column) > 1 and column[0] in (0, 1) and bool((np.diff(column) == 1).all())


def _is_coherence(column: Float64) -> bool:
    return bool((column >= 0).all() and (column <= 1.001).all() and column.any())


def _follows(column: Float64, other: Float64) -> bool:
    """Return whether a column is nearly a shifted copy of another, such as a level measured elsewhere."""
    if not (np.ptp(column) and np.ptp(other)):
        return False
    slope = np.std(column) / np.std(other)
    return bool(np.corrcoef(column, other)[0, 1] > 0.9 and 0.5 < slope < 2)


def _unused(names: tuple[str, ...], places: list[int]) -> tuple[str, ...]:
    listed = ", ".join(repr(names[n]) for n in places)
    return (f"not used: column {listed}",) if places else ()


def _timed(file: Path, table: Table, names: tuple[str, ...], kinds: list[str]) -> Channels:
    """Read samples at the times of a column."""
    if kinds.count("time") > 1 or any(kind not in ("time", "index", "magnitude", "") for kind in kinds):
        raise FileError(f"{file}: its columns are {', '.join(names)}; export time and samples, or a spectrum")
    place = kinds.index("time")
    time = table.values[:, place] * {"ms": 1e-3, "us": 1e-6}.get(unit(names[place]), 1.0)
    if not _rises(time):
        raise FileError(f"{file}: its times do not rise; export it again")
    interval = (time[-1] - time[0]) / (len(time) - 1)
    late = (time - time[0]) / interval - np.arange(len(time))
    if np.abs(late).max() > 0.5:
        raise FileError(f"{file}: its times are not evenly spaced; export it again")
    rate_hz = round(1 / interval) if interval < 1e-3 else rate_of(interval)
    # Times are rounded by their distance from the even grid.
    samples = time[0] * rate_hz + late.mean()
    if abs(samples - round(samples)) <= max(1e-3, 2 * late.std()):
        samples = round(samples)
    counting = [n for n, kind in enumerate(kinds) if kind == "index" and _counts(table.values[:, n])]
    if altered := [name for n, name in enumerate(names) if n != place and is_no_response(name)]:
        raise FileError(f"{file}: {altered[0]!r} is no impulse response; export the samples of one")
    if table.rate_hz is not None and abs(table.rate_hz - rate_hz) > 1e-3 * rate_hz:
        raise FileError(
            f"{file}: its head states {table.rate_hz:g} Hz, but its times are {1e6 * interval:.4g} microseconds apart; "
            "export it again"
        )
    found = {names[n]: table.values[:, n] for n in range(len(names)) if n != place and n not in counting}
    notes = ("samples at times of a column", *_unused(names, counting))
    return Channels(found, float(rate_hz), float(samples) / float(rate_hz), notes)


def _spectrum(file: Path, table: Table, names: tuple[str, ...], kinds: list[str]) -> Channels:
    """Read a response at the frequencies of a column."""
    wanted = ("real", "imaginary") if "real" in kinds and "imaginary" in kinds else ("level", "phase")
    places = {
        kind: [n for n, item in enumerate(kinds) if item == kind or (kind == "level" and item == "magnitude")]
        for kind in ("frequency", *wanted)
    }
    for kind, found in places.items():
        if len(found) != 1:
            which = "no" if not found else f"{len(found)} columns of"
            raise FileError(
                f"{file}: its columns are {', '.join(names)}: {which} {kind}; export frequency, level in dB and phase "
                "in degrees, of one response"
            )
    frequency, first, second = (table.values[:, found[0]] for found in places.values())
    name = {kind: names[found[0]] for kind, found in places.items()}
    frequency = frequency * _hertz(name["frequency"])
    if not _rises(frequency) or frequency[0] < 0:
        raise FileError(f"{file}: its frequencies do not rise; sort the rows")
    if frequency[0] > 100 or frequency[-1] < _LAST_BAND_HZ:
        raise FileError(
            f"{file}: it covers {frequency[0]:g} to {frequency[-1]:g} Hz; export at least 50 Hz to 8 kHz, or name "
            "the unit in the head"
        )
    _check_steps(file, frequency)
    for kind, column in name.items():
        _check_unaltered(file, kind, column)
    if wanted[0] == "real":
        magnitude, angle = np.hypot(first, second), np.unwrap(np.arctan2(second, first))
        said = "real and imaginary part"
    else:
        magnitude, is_level = _magnitude(file, name["level"], first)
        angle, is_radians = _angle(file, name["phase"], frequency, second)
        said = f"{'level' if is_level else 'linear magnitude'} and phase{' in radians' if is_radians else ''}"
    used = [n for found in places.values() for n in found]
    rest = [n for n in range(len(names)) if n not in used]
    samples = np.fft.irfft(_interpolated(frequency, magnitude, angle))
    if is_noncausal(samples):
        raise FileError(
            f"{file}: its phase rises with frequency, as if sound came before it was played; export the phase of "
            "exp(-j w t0) for a delay t0, and measure from before the sound"
        )
    notes = (f"{said} {INTERPOLATED}", *_unused(names, rest))
    return Channels({"response": samples}, float(SAMPLE_RATE_HZ), notes=notes)


def is_noncausal(samples: Float64) -> bool:
    """Return whether a periodic response, as of a spectrum, has much of its energy before time zero."""
    late = samples[-(len(samples) // 8) :]
    return bool(late @ late > 0.25 * (samples @ samples))


def _check_steps(file: Path, frequency: Float64) -> None:
    """Raise FileError for rows that are too far apart."""
    used = frequency[(frequency >= 100) & (frequency <= 8000)]
    if len(used) < 2:
        used = frequency
    allowed = np.maximum(_FINE_STEP_HZ, used[:-1] * (2 ** (1 / _ROWS_PER_OCTAVE) - 1))
    if (wide := np.diff(used) > allowed).any():
        first = used[:-1][wide][0]
        raise FileError(
            f"{file}: between {first:g} and {used[1:][wide][0]:g} Hz it has no row; export at least 12 rows for each "
            "octave, or the impulse response"
        )


def _check_unaltered(file: Path, kind: str, name: str) -> None:
    """Raise FileError for a column that is named as something other than the quantity itself."""
    text = name.lower().replace("_", " ").strip()
    pattern = {"level": _ALTERED_LEVEL, "phase": _ALTERED_PHASE}.get(kind)
    is_power = kind == "level" and unit(name) != "dB" and _POWER.search(text)
    if _ALTERED.search(text) or (pattern and pattern.search(text)) or is_power:
        raise FileError(
            f"{file}: {name!r} is not the {kind} of a response itself; export frequency, level in dB and phase in "
            "degrees"
        )


def _hertz(name: str) -> float:
    if any(word in name.lower() for word in ("omega", "ω", "rad")):
        return float(1 / (2 * np.pi))
    return 1000.0 if unit(name) == "kHz" else 1.0


def _magnitude(file: Path, name: str, values: Float64) -> tuple[Float64, bool]:
    """Read a magnitude, and whether the column is in dB."""
    stated, is_named_level = unit(name), quantity(name) == "level"
    if stated != "dB":
        is_positive = bool((values >= 0).all())
        if stated == "linear" or (is_positive and values.max() <= _SAFELY_LINEAR and not is_named_level):
            if not is_positive:
                raise FileError(f"{file}: {name!r} holds negative numbers; a linear magnitude has none")
            return values, False
        # Levels that are all above 0 dB are sound pressure levels.
        if is_positive and (not is_named_level or values.min() < 1):
            raise FileError(
                f"{file}: {name!r} may be linear or in dB; name the unit in the head, level_dB or linear"
            )
    if values.max() > _LARGEST_LEVEL_DB:
        raise FileError(
            f"{file}: {name!r} holds {values.max():g}, which is no level in dB; name the unit in the head"
        )
    return 10 ** (values / 20), True


def _angle(file: Path, name: str, frequency: Float64, values: Float64) -> tuple[Float64, bool]:
    """Read a phase in radians, unwrapped, and whether the column is in radians."""
    stated, largest = unit(name), float(np.abs(values).max())
    if not largest:
        raise FileError(f"{file}: its phase is 0 everywhere; export the phase that was measured")
    if stated not in ("degrees", "radians"):
        unwrapped = np.unwrap(np.deg2rad(values))
        delay_s = abs(unwrapped[-1] - unwrapped[0]) / (2 * np.pi * (frequency[-1] - frequency[0]))
        is_flat = largest > _SMALL_ANGLE and np.abs(np.diff(values)).max() < 180 and delay_s < _LEAST_DELAY_S
        if largest <= 1 or _SMALL_ANGLE < largest < 90 or is_flat:
            raise FileError(
                f"{file}: {name!r} may be in degrees or in radians; name the unit in the head, phase_deg or phase_rad"
            )
        stated = "radians" if largest <= _SMALL_ANGLE else "degrees"
    is_radians = stated == "radians"
    return np.unwrap(values if is_radians else np.deg2rad(values)), is_radians


def _interpolated(frequency: Float64, magnitude: Float64, angle: Float64) -> Complex128:
    """Interpolate a spectrum from 0 to 24 kHz: levels in dB and unwrapped phase linearly over frequency."""
    wanted = np.linspace(0, SAMPLE_RATE_HZ / 2, N_SPECTRUM_BINS)
    turn = np.interp(wanted, frequency, angle)
    beyond = wanted > frequency[-1]
    # Extrapolate as a delay: phase in proportion to frequency.
    slope = (angle[-1] - angle[len(angle) // 2]) / (frequency[-1] - frequency[len(angle) // 2])
    turn[beyond] = angle[-1] + slope * (wanted[beyond] - frequency[-1])
    level = np.log(np.maximum(magnitude, 1e-12 * magnitude.max()))
    spectrum: Complex128 = np.exp(np.interp(wanted, frequency, level) + 1j * turn)
    spectrum[0], spectrum[-1] = spectrum[0].real, spectrum[-1].real
    return spectrum

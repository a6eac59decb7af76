"""Read NumPy files, and interpret named arrays beside their rate, times or frequencies."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.files.channels import Measurement, plain
from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.heads import rate_of

# Largest file: two minutes of four channels at 48 kHz, and more.
MAX_BYTES = 200_000_000
_RATES = (
    *("fs", "sr", "rate", "fsamp", "fsample", "fsampling", "samplerate", "samplingrate", "samplefrequency"),
    *("samplingfrequency", "samplefreq", "samplingfreq", "datasamplingrate"),
)
_INTERVALS = ("dt", "ts", "sampleinterval", "samplinginterval", "sampleperiod", "samplingperiod")
_FREQUENCIES = ("f", "freq", "freqs", "frequency", "frequencies", "freqvector", "frequencyvector", "faxis")
_TIMES = ("t", "time", "times", "timevector", "taxis", "timeaxis")
# Numbers that change what samples mean, and the value with which they do not.
_NEUTRAL = dict.fromkeys(("t0", "start", "starttime", "offset", "delay", "shift", "latency"), 0.0)
_NEUTRAL |= dict.fromkeys(("scale", "scaling", "scalefactor", "factor", "sensitivity", "calibration"), 1.0)
# The delay of a SOFA file, in samples of its responses, under the names that programs give it.
_DELAY = re.compile(r"(?:^|\.)data[._]?delay$", re.IGNORECASE)


def read(file: Path) -> Measurement:
    """Read an .npz or .npy file."""
    check_size(file)
    try:
        with file.open("rb") as opened:
            loaded = np.load(opened, allow_pickle=False)
            arrays = {"samples": loaded} if isinstance(loaded, np.ndarray) else dict(loaded.items())
    except (OSError, ValueError, EOFError, SyntaxError, zipfile.BadZipFile, zlib.error, NotImplementedError,
            RuntimeError) as error:  # fmt: skip
        raise FileError(f"{file}: it is no readable NumPy file ({error})") from error
    return from_arrays(file, arrays)


def check_size(file: Path) -> None:
    """Raise FileError for a file too large for memory, before reading it."""
    if file.stat().st_size > MAX_BYTES:
        raise FileError(f"{file}: it has more than {MAX_BYTES // 1_000_000} MB; save the responses alone")


def from_arrays(file: Path, arrays: Mapping[str, Any]) -> Measurement:
    """Extract named rows of numbers, their rate, start and delays.

    The longest dimension of an array is time; indices along the others, from 1, are part of the name: h[2], h[1,2].

    Raises
    ------
    FileError
        There are no rows, or it is not clear what a number beside them means.
    """
    channels: dict[str, NDArray[Any]] = {}
    delays: dict[str, float] = {}
    scalars: dict[str, float] = {}
    unused: list[str] = []
    late = {_struct(name): np.asarray(item, float) for name, item in arrays.items() if _DELAY.search(name)}
    for name, values in ((name, np.asarray(item)) for name, item in arrays.items() if not _DELAY.search(name)):
        if values.dtype.kind == "c":
            raise FileError(f"{file}: {name} is complex, as a spectrum; save impulse responses")
        if values.dtype.kind not in "fiu":
            unused.append(name)
        elif values.size == 1 or _own(name) in _NEUTRAL:
            change = np.abs(values - _NEUTRAL.get(_own(name), 0.0))
            scalars[name] = float(values.flat[np.argmax(change)])
        elif values.size:
            rows, places = _rows(name, values)
            channels |= rows
            if _struct(name) in late:
                delays |= dict(zip(rows, _delays(file, late[_struct(name)], places), strict=True))
    rate_hz, others = _rate(file, scalars)
    start_s = 0.0
    times = {name for name, item in channels.items() if plain(name) in _TIMES and _is_even(item)}
    if times and channels.keys() - times:
        rate_hz, start_s = _rate_of_times(file, channels[min(times)], rate_hz)
        channels = {name: item for name, item in channels.items() if name not in times}
    axes = [name for name, item in channels.items() if plain(name) in _FREQUENCIES and (np.diff(item) > 0).all()]
    if channels.keys() - axes:
        lengths = {len(channels.pop(name)) for name in axes}
        unused += axes
        if wrong := [name for name, item in channels.items() if len(item) in lengths]:
            raise FileError(f"{file}: {wrong[0]} seems to hold values at frequencies; save impulse responses")
    if not channels:
        raise FileError(f"{file}: it holds no row of numbers; found {', '.join(arrays) or 'nothing'}")
    notes = [f"not used: {', '.join(others + unused)}"] if others or unused else []
    notes += ["delayed by its Data_Delay"] if any(delays.values()) else []
    return Measurement(file, channels, rate_hz, start_s, tuple(notes), delays=delays)


def _struct(name: str) -> str:
    return name.rpartition(".")[0]


def _own(name: str) -> str:
    """Return the name of a field without its struct, index or plural."""
    return plain(re.sub(r"\[.*", "", name.rpartition(".")[2])).removesuffix("s")


def _rate(file: Path, scalars: Mapping[str, float]) -> tuple[float | None, list[str]]:
    """Return the rate that numbers state, and the others, which change nothing."""
    rates = {name: rate for name, value in scalars.items() if (rate := stated_rate(name, value)) is not None}
    if len(set(rates.values())) > 1:
        raise FileError(f"{file}: {', '.join(rates)} state different sample rates; keep one")
    others = {name: value for name, value in scalars.items() if name not in rates}
    for name, value in others.items():
        if not rates or value != _NEUTRAL.get(_own(name), value):
            raise FileError(
                f"{file}: it is not known what {name} = {value:g} means; store the rate as sample_rate, apply anything "
                f"else to the samples, and leave {name} out"
            )
    return next(iter(rates.values()), None), [f"{name} = {value:g}" for name, value in others.items()]


def _rate_of_times(file: Path, seconds: NDArray[Any], stated_hz: float | None) -> tuple[float, float]:
    """Return the rate and the start that an array of times means."""
    rate_hz = rate_of(float(seconds[-1] - seconds[0]) / (len(seconds) - 1))
    if stated_hz is not None and abs(rate_hz - stated_hz) > 1e-3 * rate_hz:
        raise FileError(
            f"{file}: its times mean {rate_hz:g} Hz, which does not fit the sample rate of {stated_hz:g} Hz; keep one"
        )
    return stated_hz or rate_hz, float(seconds[0])


def _is_even(values: NDArray[Any]) -> bool:
    """Return whether numbers rise evenly, as times do."""
    step = np.diff(values)
    return len(step) > 1 and bool(step[0] > 0 and np.ptp(step) <= 1e-3 * step[0])


def _rows(name: str, values: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], tuple[int, ...]]:
    """Split an array into rows along its longest dimension, the last one of equal length; also the others' shape."""
    along = values.ndim - 1 - int(np.argmax(values.shape[::-1]))
    rows = np.moveaxis(values, along, -1).astype(np.float64)
    named = {}
    for place in np.ndindex(rows.shape[:-1]):
        index = ",".join(str(n + 1) for n, size in zip(place, rows.shape, strict=False) if size > 1)
        named[f"{name}[{index}]" if index else name] = rows[place]
    return named, rows.shape[:-1]


def _delays(file: Path, late: NDArray[np.float64], places: tuple[int, ...]) -> list[float]:
    """Return the delay of each row; those of SOFA have the shape of the responses' first dimensions, or one row."""
    try:
        late = np.broadcast_to(late.squeeze() if late.ndim > len(places) else late, places)
    except ValueError:
        raise FileError(
            f"{file}: its delays have the shape {late.shape}, its responses {places}; shift the responses, and leave "
            "the delays out"
        ) from None
    return [float(delay) for delay in late.flat]


def stated_rate(name: str, value: float) -> float | None:
    """Return the sample rate if the name of a number is that of one, else None."""
    own = plain(name.rpartition(".")[2])
    unit = next((unit for unit in ("khz", "hz") if own.endswith(unit)), "")
    if own in _RATES or own.removesuffix(unit) in _RATES:
        return value * (1000 if unit == "khz" else 1)
    return rate_of(value) if own in _INTERVALS else None

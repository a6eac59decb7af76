"""Times and frequencies beside the arrays of a file, which state their rate and start."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measurement.files.channels import Measurement, plain
from measurement.files.errors import FileError
from measurement.files.heads import rate_of

_FREQUENCIES = ("f", "freq", "freqs", "frequency", "frequencies", "freqvector", "frequencyvector", "faxis")
_TIMES = ("t", "time", "times", "timevector", "taxis", "timeaxis")


def _is_axis(values: NDArray[Any]) -> bool:
    """Return whether numbers rise evenly, as times and frequencies do."""
    step = np.diff(values)
    return not np.iscomplexobj(values) and len(step) > 1 and bool(step[0] > 0 and np.ptp(step) <= 1e-3 * step[0])


def with_times(contents: Measurement) -> Measurement:
    """Convert an array of times beside samples to their rate and start."""
    named = {name for name, item in contents.channels.items() if plain(name) in _TIMES and _is_axis(item)}
    if not named or len(contents.channels) == 1:
        return contents
    rest = {name: item for name, item in contents.channels.items() if name not in named}
    seconds = contents.channels[min(named)]
    rate_hz = rate_of(float(seconds[-1] - seconds[0]) / (len(seconds) - 1))
    _check_rates(contents, rate_hz, min(named))
    return replace(contents, channels=rest).at(contents.rate_hz or rate_hz, float(seconds[0]))


def _check_rates(contents: Measurement, rate_hz: float, name: str) -> None:
    if contents.rate_hz is not None and abs(rate_hz - contents.rate_hz) > 1e-3 * rate_hz:
        raise FileError(
            f"{contents.file}: {name} means {rate_hz:g} Hz, which does not fit the sample rate of "
            f"{contents.rate_hz:g} Hz; keep one"
        )


def with_frequencies(contents: Measurement) -> Measurement:
    """Convert frequencies beside spectra to their rate; spectra run from 0 Hz to half of it."""
    file, channels = contents.file, contents.channels
    axes = {
        name: item
        for name, item in channels.items()
        if plain(name) in _FREQUENCIES and not np.iscomplexobj(item) and (np.diff(item) > 0).all()
    }
    rest = {name: item for name, item in channels.items() if name not in axes}
    for name, values in rest.items():
        fits = [len(axis) == len(values) for axis in axes.values()]
        if np.iscomplexobj(values):
            largest = float(np.abs(values).max())
            is_whole = np.allclose(values[1:], values[:0:-1].conj(), atol=1e-9 * largest)
            is_even = all(axis[0] == 0 and _is_axis(axis) for axis in axes.values())
            is_wrong = is_whole or abs(values[0].imag) > 1e-6 * largest or not (all(fits) and is_even)
        else:
            is_wrong = any(fits)
        if is_wrong:
            raise FileError(
                f"{file}: {name} is no impulse response, and no complex spectrum at even steps from 0 Hz to half the "
                "sample rate; save impulse responses"
            )
    if not axes or not rest:
        return contents
    if not any(map(np.iscomplexobj, rest.values())):
        return replace(contents, channels=rest, notes=(*contents.notes, f"not used: {', '.join(axes)}"))
    axis = next(iter(axes))
    top_hz = 2 * float(axes[axis][-1])
    _check_rates(contents, top_hz, axis)
    return replace(contents, channels=rest).at(contents.rate_hz or top_hz, contents.start_s)

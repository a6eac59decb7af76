"""Times and frequencies beside the samples in a file of arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.files.channels import Measurement, plain
from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.heads import rate_of

_FREQUENCIES = ("f", "freq", "freqs", "frequency", "frequencies", "freqvector", "frequencyvector", "faxis")
_TIMES = ("t", "time", "times", "timevector", "taxis", "timeaxis")


def without_times(contents: Measurement) -> Measurement:
    """Replace an array of times by the rate and the start that it means."""
    times = {name: item for name, item in contents.channels.items() if plain(name) in _TIMES and _is_even(item)}
    rest = {name: item for name, item in contents.channels.items() if name not in times}
    if not times or not rest:
        return contents
    name, seconds = next(iter(times.items()))
    rate_hz = rate_of(float(seconds[-1] - seconds[0]) / (len(seconds) - 1))
    if contents.rate_hz is not None and abs(rate_hz - contents.rate_hz) > 1e-3 * rate_hz:
        raise FileError(
            f"{contents.file}: {name} means {rate_hz:g} Hz, which does not fit the sample rate of "
            f"{contents.rate_hz:g} Hz; keep one"
        )
    return replace(contents, channels=rest).at(contents.rate_hz or rate_hz, float(seconds[0]))


def _is_even(values: NDArray[Any]) -> bool:
    """Return whether numbers rise evenly, as times do."""
    step = np.diff(values)
    return len(step) > 1 and bool(step[0] > 0 and np.ptp(step) <= 1e-3 * step[0])


def without_frequencies(contents: Measurement) -> Measurement:
    """Leave out an array of frequencies; raise FileError where others are values at them."""
    axes = [name for name, item in contents.channels.items() if plain(name) in _FREQUENCIES and _rises(item)]
    rest = {name: item for name, item in contents.channels.items() if name not in axes}
    if not axes or not rest:
        return contents
    for name, item in rest.items():
        if any(len(item) == len(contents.channels[axis]) for axis in axes):
            raise FileError(f"{contents.file}: {name} seems to hold values at frequencies; save impulse responses")
    return replace(contents, channels=rest, notes=(*contents.notes, f"not used: {', '.join(axes)}"))


def _rises(values: NDArray[Any]) -> bool:
    return bool((np.diff(values) > 0).all())

"""Read curves over frequency and spectra of noise."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.files import measurements
from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.text import read_table
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.curve import Curve

Json = dict[str, Any]


def curve(text: str, kind: type[Curve], or_number: bool) -> float | Json:
    """Read a curve from a file of two columns, frequency in Hz and values, or a number in its place."""
    if or_number:
        with suppress(ValueError):
            return float(text)
    table = _two_columns(text, kind.column())
    return {"frequency_hz": table[:, 0].tolist(), kind.VALUES: table[:, 1].tolist()}


def _two_columns(file: Path | str, second: str) -> NDArray[np.float64]:
    """Read rows of frequency in Hz and another value; raises FileError."""
    try:
        table = read_table(Path(file)).values
    except OSError as error:
        raise FileError(f"{str(file)!r} is neither a number nor a readable file: {error}") from error
    if table.shape[1] != 2:
        raise FileError(f"{file}: it has {table.shape[1]} columns; frequency in Hz and {second} are needed")
    return table


def reference_psd(file: Path, n_bins: int) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Read a power spectrum from a recording or a table.

    A recording's first channel is analysed by Welch's method. Power densities in dB are interpolated linearly over log
    frequency and held beyond the ends.

    Returns
    -------
    tuple[NDArray[np.float64], tuple[str, ...]]
        Mean square per bin, one-sided, [n_bins], and notes.
    """
    n_fft = 2 * (n_bins - 1)
    if file.suffix.lower() not in measurements.AUDIO:
        table = _two_columns(file, "power density in dB")
        if not ((np.diff(table[:, 0]) > 0).all() and table[0, 0] > 0):
            raise FileError(f"{file}: frequencies must be above 0 Hz and rise")
        hz = np.maximum(np.arange(n_bins) * (SAMPLE_RATE_HZ / n_fft), table[0, 0])
        return 10 ** (np.interp(np.log(hz), np.log(table[:, 0]), table[:, 1]) / 10), ()
    from scipy.signal import welch

    samples, notes = measurements.first_channel(file)
    if len(samples) < n_fft:
        raise FileError(f"{file}: it has {len(samples)} samples; record at least {n_fft}, four seconds at best")
    _, density = welch(samples, SAMPLE_RATE_HZ, "hann", n_fft, detrend=False)
    return density * (SAMPLE_RATE_HZ / n_fft), tuple(f"{file}: {note}" for note in notes)

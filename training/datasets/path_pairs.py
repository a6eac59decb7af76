"""Pairs of impulse responses, the common form of all data sets of acoustic paths."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

MAX_PATH_SAMPLES = 8192  # a quarter of the 32768-point grid, so that p * w (10239 samples) does not wrap
MAX_CUT_ENERGY = 1e-4  # largest share of a response's energy beyond that, -40 dB

EarSide = Literal["left", "right", "mono"]
Condition = Literal["original", "gain_delay", "tilt", "tail"]
DatasetKind = Literal["pandar", "ten-path", "index", "simulated"]


class DatasetError(ValueError):
    """Unusable data on disk, or a request that a data set cannot meet.

    The message states the file or quantity, the value found and the value expected.
    """


@dataclass(frozen=True, eq=False)
class PathPair:
    """One ear of one listener: the true primary and secondary path."""

    # Identity that splits keep together, e.g. ``person-02``.
    listener: str
    # ``left``, ``right`` or ``mono``.
    ear: EarSide
    # ``original`` as measured, or the name of a secondary-path variant (`variants.py`).
    condition: Condition
    # Fit of the earphone as stated by the data set (``normal``, ``loose``, ``unknown``, ...).
    fit: str
    # Impulse response outer microphone -> error microphone at 48 kHz, float64 [n <= 8192].
    primary: Float64
    # Impulse response loudspeaker -> error microphone at 48 kHz, float64 [n <= 8192].
    secondary: Float64
    # The drawn parameters of a variant; empty for an original.
    variant: dict[str, float] = field(default_factory=dict)
    # One of several measurements of the ear (a seating, a direction); empty if there is one.
    label: str = ""
    # Impulse response loudspeaker -> outer microphone, as `secondary`; None if not measured.
    feedback: Float64 | None = None

    def __post_init__(self) -> None:
        """Reject unusable responses.

        Raises
        ------
        DatasetError
            A response is not one-dimensional, too long, not finite or all zero.
        """
        for name in ("primary", "secondary", "feedback"):
            if getattr(self, name) is not None:
                usable = checked_response(getattr(self, name), f"{name} path of {self.listener} ({self.place})")
                object.__setattr__(self, name, usable)

    @property
    def place(self) -> str:
        """Return ear and label: the ear's name in rows, equal for neighbours in an interpolation."""
        return f"{self.ear}, {self.label}" if self.label else self.ear

    @property
    def name(self) -> str:
        """Return listener, ear, label and condition in one word, unique within a data set and its variants."""
        return f"{self.listener}/{self.place}/{self.condition}"


@dataclass(frozen=True, eq=False)
class PathDataset:
    """Original pairs of one data set, with their provenance."""

    # Reader of the data.
    name: DatasetKind
    # Originals only, ordered by listener, then ear.
    pairs: tuple[PathPair, ...]
    # Length of a primary path's calibration estimate, in samples.
    primary_taps: int
    # Length of a secondary path's calibration estimate, in samples.
    secondary_taps: int
    # Fourier grid of the paper for this data set.
    n_fft: int
    # Licence of the data.
    licence: str
    # Attribution required when the data, or products of it, are passed on.
    attribution: str
    # Sha256 over the names and bytes of the files read (of the parameters, if simulated).
    fingerprint: str
    # True if the pairs are not measured.
    is_simulated: bool = False
    # Remarks for readers of a result.
    notes: str = ""

    def __post_init__(self) -> None:
        """Reject a data set that contains a pair twice, which would count twice in means.

        Raises
        ------
        DatasetError
            There is no pair, or two of the same listener, ear, label and condition.
        """
        if not self.pairs:
            raise DatasetError(f"data set {self.name}: there is no pair of paths")
        names = [pair.name for pair in self.pairs]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise DatasetError(f"data set {self.name}: {', '.join(repeated)} occurs twice")

    @property
    def listeners(self) -> tuple[str, ...]:
        """Return the listeners, ascending."""
        return tuple(sorted({pair.listener for pair in self.pairs}))

    def of(self, listeners: Iterable[str]) -> tuple[PathPair, ...]:
        """Return the original pairs of some listeners, in the data set's order.

        Raises
        ------
        DatasetError
            The data set does not contain a listener.
        """
        wanted = set(listeners)
        unknown = sorted(wanted.difference(self.listeners))
        if unknown:
            raise DatasetError(
                f"data set {self.name}: there is no listener {', '.join(unknown)}; "
                f"use some of {', '.join(self.listeners)}"
            )
        return tuple(pair for pair in self.pairs if pair.listener in wanted)


def checked_response(values: Any, what: str) -> Float64:
    """Convert an impulse response to a contiguous float64 vector.

    Parameters
    ----------
    values
        Anything array-like.
    what
        Name of the quantity (and its file) for the error message.

    Returns
    -------
    Float64
        Float64 [n], 1 <= n <= 8192.

    Raises
    ------
    DatasetError
        Not numeric, not one-dimensional, empty, longer than 8192, NaN or infinite, all zero.
    """
    try:
        response = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DatasetError(f"{what}: these are {type(values).__name__} values, not real numbers") from error
    if response.ndim != 1 or not 1 <= response.size <= MAX_PATH_SAMPLES:
        raise DatasetError(
            f"{what}: found shape {response.shape}, expected one dimension of 1 to {MAX_PATH_SAMPLES} samples"
        )
    if not np.isfinite(response).all():
        n_bad = int((~np.isfinite(response)).sum())
        raise DatasetError(f"{what}: {n_bad} samples are NaN or infinite")
    if not response.any():
        raise DatasetError(f"{what}: all samples are zero")
    return response


def cut_response(response: Float64, what: str) -> Float64:
    """Cut to 8192 samples; DatasetError if more than -40 dB of the energy lies beyond."""
    if response.ndim == 1 and response.size > MAX_PATH_SAMPLES and np.isfinite(response).all():
        energy = response**2
        if energy[MAX_PATH_SAMPLES:].sum() > MAX_CUT_ENERGY * energy.sum():
            share_db = 10 * np.log10(energy[MAX_PATH_SAMPLES:].sum() / energy.sum())
            raise DatasetError(
                f"{what}: found {response.size} samples with {share_db:.1f} dB of their energy after "
                f"{MAX_PATH_SAMPLES}, expected less than -40 dB there"
            )
        response = response[:MAX_PATH_SAMPLES]
    return checked_response(response, what)


def read_bytes(file: Path) -> bytes:
    """Read a whole file.

    Raises
    ------
    DatasetError
        The system refuses (no permission, deleted since it was listed, ...).
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise DatasetError(f"{file}: cannot be read ({error.strerror})") from error


def fingerprint(named_contents: Iterable[tuple[str, bytes]]) -> str:
    """Compute sha256 (hexadecimal) over names and contents, in ascending order of name.

    Lengths are included, so that no two different lists share a byte stream.
    """
    digest = hashlib.sha256()
    for name, content in sorted(named_contents):
        for part in (name.encode(), content):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def named_seed(seed: int, *names: str) -> list[int]:
    """Return entropy for `numpy.random.default_rng` from a seed and names.

    Such a draw depends only on its listener and ear, not on the rest of a folder or batch.
    """
    identity = hashlib.sha256("/".join(names).encode()).digest()
    return [seed, *(int.from_bytes(identity[i : i + 4], "little") for i in range(0, 16, 4))]

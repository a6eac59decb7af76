"""Pairs of impulse responses, the common form of all data sets of acoustic paths."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.files.channels import Measurement
from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.measurements import read
from prime_anc.method.conventions import SAMPLE_RATE_HZ

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
            if getattr(self, name) is None:
                continue
            response = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            what = f"{name} path of {self.listener} ({self.place})"
            if response.ndim != 1 or not 1 <= response.size <= MAX_PATH_SAMPLES:
                expected = f"one dimension of 1 to {MAX_PATH_SAMPLES} samples"
                raise DatasetError(f"{what}: found shape {response.shape}, expected {expected}")
            if n_bad := np.count_nonzero(~np.isfinite(response)):
                raise DatasetError(f"{what}: {n_bad} samples are NaN or infinite")
            if not response.any():
                raise DatasetError(f"{what}: all samples are zero")
            object.__setattr__(self, name, response)

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
    # Licence of the data.
    licence: str
    # Attribution required when the data, or products of it, are passed on.
    attribution: str
    # Sha256 over the names and bytes of the files read (of the parameters, if simulated).
    fingerprint: str
    # True if the pairs are not measured.
    is_simulated: bool = False

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
    def primary_taps(self) -> int:
        """Return the samples of a primary path's calibration estimate; a secondary path's has 2048."""
        return 2048 if self.name == "ten-path" else MAX_PATH_SAMPLES

    @property
    def n_fft(self) -> int:
        """Return the paper's Fourier grid for the data set."""
        return 4 * self.primary_taps

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


def cut_response(response: Float64, what: str) -> Float64:
    """Cut to 8192 samples; DatasetError if more than -40 dB of the energy lies beyond."""
    energy = response**2
    share = energy[MAX_PATH_SAMPLES:].sum() / max(energy.sum(), np.finfo(float).tiny)
    if not share <= MAX_CUT_ENERGY:  # also NaN
        raise DatasetError(
            f"{what}: found {response.size} samples with {10 * np.log10(share):.1f} dB of their energy after "
            f"{MAX_PATH_SAMPLES}, expected less than -40 dB there"
        )
    return response[:MAX_PATH_SAMPLES]


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


def read_file(file: Path) -> tuple[Measurement, bytes]:
    """Read a measurement, at 48 kHz if no rate is stated, and the bytes of its file.

    Raises
    ------
    DatasetError
        The file cannot be used.
    """
    content = read_bytes(file)
    try:
        return read(file, SAMPLE_RATE_HZ), content
    except FileError as error:
        raise DatasetError(str(error)) from error


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

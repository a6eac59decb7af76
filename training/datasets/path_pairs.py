"""What every data set of acoustic paths comes down to: pairs of impulse responses, each with its origin."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from synthesis.conventions import SAMPLE_RATE_HZ

MAX_PATH_SAMPLES = 8192  # a quarter of the 32768-point grid, so that p * w (10239 samples) does not wrap
MAX_CUT_ENERGY = 1e-4  # -40 dB of a response's energy may lie beyond

EarSide = Literal["left", "right", "mono"]
Condition = Literal["original", "gain_delay", "tilt", "tail"]
DatasetKind = Literal["pandar", "ten-path", "index", "simulated"]


class DatasetError(ValueError):
    """Data on disk that cannot be used, or a request that a data set cannot meet.

    The message names the file or quantity, what was found and what was expected.
    """


@dataclass(frozen=True, eq=False)
class PathPair:
    """One ear of one listener: the true primary and secondary path.

    Attributes:
        listener: identity that splits keep together, e.g. ``person-02``.
        ear: ``left``, ``right`` or ``mono``.
        condition: ``original`` as measured, or the name of a secondary-path variant (`variants.py`).
        fit: how the earphone sat, as the data set says (``normal``, ``loose``, ``unknown``, ...).
        primary: impulse response outer microphone -> error microphone at 48 kHz, float64 [n <= 8192].
        secondary: impulse response loudspeaker -> error microphone at 48 kHz, float64 [n <= 8192].
        variant: the drawn parameters of a variant; empty for an original.
        label: which of several measurements of the ear (a seating, a direction); empty where there is one.
        feedback: impulse response loudspeaker -> outer microphone, as `secondary`; None if not measured.
    """

    listener: str
    ear: EarSide
    condition: Condition
    fit: str
    primary: NDArray[np.float64]
    secondary: NDArray[np.float64]
    variant: dict[str, float] = field(default_factory=dict)
    label: str = ""
    feedback: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        """Refuse responses that no later step could use.

        Raises:
            DatasetError: a response is not one-dimensional, too long, not finite or all zero.
        """
        for name in ("primary", "secondary", "feedback"):
            if getattr(self, name) is not None:
                usable = checked_response(getattr(self, name), f"{name} path of {self.listener} ({self.place})")
                object.__setattr__(self, name, usable)

    @property
    def place(self) -> str:
        """Ear and label: what rows call the ear, and what neighbours in an interpolation have in common."""
        return f"{self.ear}, {self.label}" if self.label else self.ear

    @property
    def name(self) -> str:
        """Listener, ear, label and condition in one word, unique within a data set and its variants."""
        return f"{self.listener}/{self.place}/{self.condition}"


@dataclass(frozen=True, eq=False)
class PathDataset:
    """The original pairs of one data set and what must be said of them.

    Attributes:
        name: which reader it came from.
        pairs: originals only, ordered by listener, then ear.
        primary_taps: length of a primary path's calibration estimate, in samples.
        secondary_taps: length of a secondary path's calibration estimate, in samples.
        n_fft: Fourier grid of the paper for this data set.
        licence: licence of the data.
        attribution: whom to name when the data, or something made of it, is passed on.
        fingerprint: sha256 over the names and bytes of the files read (of the parameters, if simulated).
        is_simulated: true where no measurement is behind the pairs.
        notes: what a reader of a result must know about the data.
    """

    name: DatasetKind
    pairs: tuple[PathPair, ...]
    primary_taps: int
    secondary_taps: int
    n_fft: int
    licence: str
    attribution: str
    fingerprint: str
    is_simulated: bool = False
    notes: str = ""

    def __post_init__(self) -> None:
        """Refuse a data set that holds a pair twice: it would count twice in every mean.

        Raises:
            DatasetError: no pair at all, or two of the same listener, ear, label and condition.
        """
        if not self.pairs:
            raise DatasetError(f"data set {self.name}: there is no pair of paths")
        names = [pair.name for pair in self.pairs]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise DatasetError(f"data set {self.name}: {', '.join(repeated)} occurs twice")

    @property
    def listeners(self) -> tuple[str, ...]:
        """The identities in the data set, ascending."""
        return tuple(sorted({pair.listener for pair in self.pairs}))

    def of(self, listeners: Iterable[str]) -> tuple[PathPair, ...]:
        """The original pairs of the named listeners, in the data set's order.

        Raises:
            DatasetError: a listener that the data set does not hold.
        """
        wanted = set(listeners)
        unknown = sorted(wanted.difference(self.listeners))
        if unknown:
            raise DatasetError(
                f"data set {self.name}: there is no listener {', '.join(unknown)}; "
                f"use some of {', '.join(self.listeners)}"
            )
        return tuple(pair for pair in self.pairs if pair.listener in wanted)


def checked_response(values: Any, what: str) -> NDArray[np.float64]:
    """An impulse response as a contiguous float64 vector.

    Args:
        values: anything array-like.
        what: name of the quantity (and its file) for the error message.

    Returns:
        Float64 [n], 1 <= n <= 8192.

    Raises:
        DatasetError: not numeric, not one-dimensional, empty, longer than 8192, NaN or infinite, all zero.
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


def cut_response(response: NDArray[np.float64], what: str) -> NDArray[np.float64]:
    """The first 8192 samples, checked, or DatasetError where more than -40 dB of the energy lies beyond."""
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


def check_sample_rate(rate_hz: float, what: str) -> None:
    """Refuse any sampling rate but 48 kHz: the method's bands, taps and delays are stated at that rate.

    Raises:
        DatasetError: another rate.
    """
    if rate_hz != SAMPLE_RATE_HZ:
        raise DatasetError(f"{what}: found a sampling rate of {rate_hz:g} Hz, expected {SAMPLE_RATE_HZ} Hz")


def read_bytes(file: Path) -> bytes:
    """The whole file.

    Raises:
        DatasetError: the system refuses (no permission, gone since it was listed, ...).
    """
    try:
        return file.read_bytes()
    except OSError as error:
        raise DatasetError(f"{file}: cannot be read ({error.strerror})") from error


def fingerprint(named_contents: Iterable[tuple[str, bytes]]) -> str:
    """Sha256 (hexadecimal) over names and contents, in ascending order of name.

    Names and contents enter with their lengths, so that no two different lists share a byte stream.
    """
    digest = hashlib.sha256()
    for name, content in sorted(named_contents):
        for part in (name.encode(), content):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()


def named_seed(seed: int, *names: str) -> list[int]:
    """Entropy for `numpy.random.default_rng` from a seed and names.

    A draw seeded so belongs to its listener and ear: whatever else a folder or a batch holds does not alter it.
    """
    identity = hashlib.sha256("/".join(names).encode()).digest()
    return [seed, *(int.from_bytes(identity[i : i + 4], "little") for i in range(0, 16, 4))]

"""Recordings of a calibration or a verification."""

from __future__ import annotations

from typing import NamedTuple

from numpy.typing import ArrayLike


class Take(NamedTuple):
    """A recording of both microphones at 48 kHz, 3072 to 2880000 real samples."""

    # Gain in place of the control filter; 0 with the loudspeaker off.
    gain: float
    # Reference microphone, [n].
    x: ArrayLike
    # Error microphone, [n].
    e: ArrayLike


class DriveTake(NamedTuple):
    """A recording while the loudspeaker plays `drive` alone, which also yields the feedback path."""

    # Loudspeaker signal, after any inversion of the chain, [n].
    drive: ArrayLike
    # As in `Take`.
    x: ArrayLike
    # As in `Take`.
    e: ArrayLike


class Recording(NamedTuple):
    """Both microphones at 48 kHz, real [n], at least 36864 samples: reference x, error e."""

    x: ArrayLike
    e: ArrayLike

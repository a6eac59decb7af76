"""Read recordings of both microphones into the takes of a request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prime_anc.measure.files import measurements
from prime_anc.measure.files.errors import FileError

Json = dict[str, Any]

# Channels of recordings, and their fields in a take.
BOTH = (measurements.MICROPHONES, ("x", "e"))
DRIVEN = (measurements.DRIVEN, ("drive", "x", "e"))
# Largest signal of the loudspeaker, over full scale, that a declared gain may mean: recordings are often scaled.
LOUDEST_PLAYED = 2.0


def recording(file: Path, names: Sequence[str] = BOTH[1]) -> tuple[Json, tuple[str, ...]]:
    """Read the signals of a recording by name, BOTH's or DRIVEN's, with notes."""
    fields, notes, _ = _recorded(file, *(DRIVEN if "drive" in names else BOTH))
    return fields, notes


def takes(
    silent: Sequence[Path], played: Sequence[Path], gain: float, driven: Sequence[Path]
) -> tuple[list[Json], tuple[str, ...]]:
    """Read the recordings of a calibration, with notes.

    Parameters
    ----------
    silent, played, driven : sequence of Path
        Recordings without sound from the loudspeaker, with the outer microphone's signal times a gain, and of the
        loudspeaker alone.
    gain : float
        Gain of those `played`.

    Returns
    -------
    list of dict
        Takes of a request.
    tuple of str
        Notes on the files, and on a gain with which the loudspeaker's signal would have been far too loud.

    Raises
    ------
    FileError
        As for `measurements.recording`, or the recordings have different rates.
    """
    found: list[Json] = []
    all_notes: list[str] = []
    rates_hz: dict[float, Path] = {}
    states = [
        *((file, 0.0) for file in silent),
        *((file, gain) for file in played),
        *((file, None) for file in driven),
    ]
    for file, declared in states:
        fields, notes, rate_hz = _recorded(file, *(DRIVEN if declared is None else BOTH))
        loudest = abs(declared or 0.0) * float(np.abs(fields["x"]).max())
        if loudest > LOUDEST_PLAYED:
            all_notes.append(
                f"{file}: with --gain {gain:g} the loudspeaker's signal would have been {loudest:.0f} times full "
                "scale; check the gain"
            )
        found.append(fields if declared is None else fields | {"gain": declared})
        all_notes += notes
        rates_hz.setdefault(rate_hz, file)
    if len(rates_hz) > 1:
        stated = ", ".join(f"{file} {rate_hz:g} Hz" for rate_hz, file in rates_hz.items())
        raise FileError(f"the recordings have different sample rates ({stated}); record all at one rate")
    return found, tuple(all_notes)


def _recorded(file: Path, meanings: Sequence[str], names: Sequence[str]) -> tuple[Json, tuple[str, ...], float]:
    """Read a recording's fields of a take, with notes and its rate."""
    found = measurements.recording(file, meanings)
    fields: Json = dict(zip(names, found.signals, strict=True))
    fields["clipped_share"] = dict(zip(names, found.clipped_shares, strict=True))
    return fields, tuple(f"{file}: {note}" for note in found.notes), found.rate_hz

"""Channels of a file, found by name or number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.names import is_no_response
from prime_anc.measure.files.resampling import Response, check_rate
from prime_anc.measure.files.spectra import is_noncausal

# Suffixes of sound files, whose samples are clipped at full scale: that of 15 bits and above.
AUDIO = (".wav", ".flac", ".aif", ".aiff", ".ogg", ".rf64", ".w64", ".caf", ".irs")
_FULL_SCALE = 1 - 2**-14
_ALIASES = {
    "primary": ("p", "pz", "pz1", "ptf", "pri", "hp", "primarypath", "pripath"),
    "secondary": ("s", "sz", "sz1", "s1", "sec", "hs", "secondarypath", "secpath"),
    "feedback": ("f", "fz", "fz1", "fb", "hf", "feedbackpath", "fbpath"),
}


@dataclass(frozen=True, eq=False)
class Measurement:
    """Contents of a file."""

    file: Path
    # Samples, float64 [n], or one-sided spectra, complex128 [n / 2 + 1], by name.
    channels: dict[str, NDArray[Any]]
    # Sample rate; None if nothing states it.
    rate_hz: float | None
    # Time of the first sample.
    start_s: float = 0.0
    # Changes to the file's contents.
    notes: tuple[str, ...] = ()
    # Comment of an .ita file, and labels of its channels.
    comment: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    # Further delays of channels, in samples, as SOFA files state them.
    delays: Mapping[str, float] = field(default_factory=dict)
    # What the file states of the level, such as an offset of sound pressure levels.
    level: str = ""

    def at(self, rate_hz: float | None, start_s: float) -> Measurement:
        """Return the same channels with another rate and start."""
        return replace(self, rate_hz=rate_hz, start_s=start_s)

    def name_of(self, *names: str) -> str:
        """Find the name of a channel.

        Parameters
        ----------
        *names : str
            In lower case; of a path also the usual abbreviations, such as `pz`, are found, and fields of a struct.

        Returns
        -------
        str
            The channel's name, or the only one that the file has.

        Raises
        ------
        FileError
            No channel has such a name, several have, or the only one is called as another path.
        """
        aliases = {alias for name in names for alias in _ALIASES.get(name, ())}
        exact = [name for name in self.channels if set(names) & {name.lower(), *name.lower().split(".")}]
        matches = exact or [name for name in self.channels if aliases & set(map(plain, name.split(".")))]
        if len(matches) == 1:
            return matches[0]
        if len(self.channels) == 1:
            (only,) = self.channels
            called = next((path for path in _ALIASES if plain(only).startswith(path)), None)
            if called is None or called in names or not set(names) & set(_ALIASES):
                return only
        raise FileError(
            f"{self.file}: it holds {listed(self.channels)}; name one of them {' or '.join(names)}, or use a file "
            f"with that channel alone, or {self.file.name}#{next(reversed(self.channels))}"
        )

    def select(self, channel: str) -> str:
        """Resolve the channel of `FILE#CHANNEL`: a name in any case, or a number from 1.

        Raises
        ------
        FileError
            There is no such channel.
        """
        by_name = {name.lower().replace(" ", ""): name for name in self.channels}
        wanted = channel.strip().lower().replace(" ", "")
        if wanted in by_name:
            return by_name[wanted]
        if wanted.isdecimal() and 1 <= int(wanted) <= len(self.channels):
            return list(self.channels)[int(wanted) - 1]
        raise FileError(
            f"{self.file}: it has no channel {channel}; use one of {listed(self.channels)}, or a number from 1 to "
            f"{len(self.channels)}"
        )

    def response(self, name: str) -> Response:
        """Return a channel as an impulse response.

        Raises
        ------
        FileError
            The sample rate is unknown or not supported, or the channel is no impulse response.
        """
        what = f"{self.file}#{name}" if len(self.channels) > 1 else str(self.file)
        values = self.channels[name]
        if is_no_response(name):
            raise FileError(f"{what}: its name says that it is no impulse response; save the samples of one")
        if np.iscomplexobj(values):
            values = np.fft.irfft(values)
            if is_noncausal(values):
                raise FileError(
                    f"{what}: its spectrum is that of a response before time zero; save impulse responses, or spectra "
                    "from 0 Hz on with exp(-j w t0) for a delay t0"
                )
        at_full_scale = np.abs(values) >= _FULL_SCALE
        if self.file.suffix.lower() in AUDIO and at_full_scale.sum() > 1 and np.abs(values).max() <= 1:
            raise FileError(f"{what}: it is clipped at full scale; export it with less gain, or as floating point")
        if self.rate_hz is None:
            raise FileError(
                f"{self.file}: it does not say its sample rate; give --rate (of `prime-anc export`: --file-rate), for "
                "example --rate 48000, or store it in the file as sample_rate"
            )
        check_rate(self.file, self.rate_hz)
        start_s = self.start_s + self.delays.get(name, 0.0) / self.rate_hz
        return Response(what, values, self.rate_hz, start_s, self.level)


def plain(name: str) -> str:
    """Return a name without case, spaces and punctuation."""
    return re.sub(r"[\W_]", "", name.lower())


def listed(names: Mapping[str, Any]) -> str:
    """List names for a message, the first twelve of them."""
    first = list(names)[:12]
    return ", ".join(first) + (f" and {len(names) - 12} more" if len(names) > 12 else "")

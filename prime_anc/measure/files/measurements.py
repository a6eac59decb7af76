"""Recordings and measured responses from the files that measurement programs write.

    .wav .flac .aif .aiff .ogg        samples; the first channel of a recording is the outer microphone, the second
    .rf64 .w64 .caf .irs              the error microphone (`audio`)
    .csv .tsv .txt .frd .dat          numbers in columns that a line names: samples; time and samples; frequency with
                                      level and phase, or with real and imaginary part (`text`, `columns`)
    .npz .npy                         NumPy arrays (`arrays`)
    .mat .ita                         MATLAB 5 variables, ITA-Toolbox audio objects (`matlab`)

`read` keeps samples as they are. `recording` and `paths_at_48_khz` bring them to 48 kHz and list changes in notes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prime_anc.measure.files import arrays, audio, columns, matlab, resampling
from prime_anc.measure.files.audio import ENOUGH_SECONDS, MAX_SECONDS, MIN_SECONDS
from prime_anc.measure.files.channels import AUDIO, Measurement
from prime_anc.measure.files.errors import FileError
from prime_anc.measure.files.resampling import Response, check_rate, common_delay, common_start
from prime_anc.measure.signals import clipped_share
from prime_anc.method.conventions import SAMPLE_RATE_HZ

READERS: dict[str, Callable[[Path], Measurement]] = {
    **dict.fromkeys(AUDIO, audio.read),
    **dict.fromkeys((".csv", ".tsv", ".txt", ".frd", ".dat"), columns.read),
    **dict.fromkeys((".npz", ".npy"), arrays.read),
    **dict.fromkeys((".mat", ".ita"), matlab.read),
}
# Files that are not read, and what to do with them.
_ADVICE = {
    ".sofa": "save its responses, delays and rate, for example in Python: sofa = sofar.read_sofa(file); "
    "numpy.savez('paths.npz', h=sofa.Data_IR, Data_Delay=sofa.Data_Delay, sample_rate=sofa.Data_SamplingRate), and "
    "name a response as paths.npz#h[2], of several measurements as paths.npz#h[1,2]",
    ".mdat": "export each impulse response as WAV or text in REW",
}


def read(file: Path, rate_hz: float | None = None) -> Measurement:
    """Read all channels of a file.

    Parameters
    ----------
    file : Path
    rate_hz : float, optional
        Sample rate of a file that states none.

    Returns
    -------
    Measurement
        At the file's rate.

    Raises
    ------
    FileError
        For a file that is missing, unreadable, too large, empty or not finite, or that does not make clear what it
        holds.
    """
    if not file.is_file():
        raise FileError(f"{file}: there is no such file")
    kind = file.suffix.lower()
    if kind not in READERS:
        advice = _ADVICE.get(kind, f"use {', '.join(READERS)}")
        raise FileError(f"{file}: {kind or 'no extension'} is not known; {advice}")
    contents = READERS[kind](file)
    for name, values in contents.channels.items():
        if not (values.size and np.isfinite(values).all()):
            raise FileError(f"{file}: {name} is empty, or holds NaN or infinity; export it again")
    if rate_hz is None or rate_hz == contents.rate_hz:
        return contents
    if contents.rate_hz is not None:
        note = f"it states {contents.rate_hz:g} Hz, so {rate_hz:g} Hz is not used"
        return replace(contents, notes=(*contents.notes, note))
    return replace(contents, rate_hz=rate_hz, notes=(*contents.notes, f"taken for samples at {rate_hz:g} Hz"))


def split_channel(file: Path) -> tuple[Path, str | None]:
    """Split `FILE#CHANNEL` into file and channel; an existing file whose name has a `#` is that file."""
    name, _, channel = str(file).rpartition("#")
    return (Path(name), channel) if name and channel and not file.is_file() else (file, None)


def response(file: Path, *names: str, rate_hz: float | None = None) -> tuple[Response, tuple[str, ...]]:
    """Read one impulse response.

    Parameters
    ----------
    file : Path
        Or `FILE#CHANNEL`.
    *names : str
        Names of the channel, used if the file has several and none is named.
    rate_hz : float, optional
        Sample rate of a file that states none.

    Returns
    -------
    response : Response
        At the file's rate.
    notes : tuple of str

    Raises
    ------
    FileError
    """
    file, channel = split_channel(file)
    contents = read(file, rate_hz)
    name = contents.name_of(*names) if channel is None else contents.select(channel)
    if not contents.channels[name].any():
        raise _silent(file, name)
    return contents.response(name), contents.notes


def _silent(file: Path, name: str) -> FileError:
    return FileError(f"{file}: {name} is silent; check the microphone and record again")


def paths_at_48_khz(responses: Mapping[str, Response]) -> tuple[dict[str, NDArray[np.float64]], tuple[str, ...]]:
    """Bring the paths of an ear to 48 kHz.

    Parameters
    ----------
    responses : mapping of str to Response
        `primary` and `secondary`, which are delayed alike if they begin before zero, and `feedback`, which is not. A
        start that all have in common is left out.

    Returns
    -------
    samples : dict of str to ndarray
    notes : tuple of str

    Raises
    ------
    FileError
    """
    _check_levels(responses)
    notes = [
        f"{name} path: {_resampled_from(item.rate_hz)}"
        for name, item in responses.items()
        if item.rate_hz != SAMPLE_RATE_HZ
    ]
    both = {name: item for name, item in responses.items() if name != "feedback"}
    start = 0 if len(both) == 1 else common_start(list(responses.values()))
    if start and not both:
        raise FileError(
            f"{next(iter(responses.values())).what}: it begins {start} samples late, which may be the way of the sound "
            "or a start of the file; give it with the other paths of its measurement, or cut it"
        )
    delays = dict.fromkeys(responses, -start)
    if start:
        notes.append(
            f"{', '.join(responses)} path: {start} samples before all are left out, which changes no filter; a "
            "controller needs the secondary path with its own delay"
        )
    elif both and (delay := common_delay(list(both.values()))):
        delays |= dict.fromkeys(both, delay)
        notes.append(f"primary and secondary path: both delayed by {delay} samples, for they begin before zero")
    samples = {name: resampling.at_48_khz(item, delays[name]) for name, item in responses.items()}
    return samples, tuple(notes)


def _check_levels(responses: Mapping[str, Response]) -> None:
    """Raise FileError for primary and secondary path whose files state different levels."""
    levels = {item.what: item.level for name, item in responses.items() if name != "feedback"}
    if len(set(levels.values())) > 1:
        stated = "; ".join(f"{what}: {level or 'none'}" for what, level in levels.items())
        raise FileError(
            f"the files state different levels ({stated}); both paths have to be relative to the same reference: "
            "export both with one calibration, offset and gain, then leave these lines out"
        )


def _resampled_from(rate_hz: float) -> str:
    note = f"resampled from {rate_hz:g} to {SAMPLE_RATE_HZ} Hz"
    return note if rate_hz > SAMPLE_RATE_HZ else f"{note}; it holds nothing above {rate_hz / 2:g} Hz"


@dataclass(frozen=True, eq=False)
class RecordedChannels:
    """Channels of a recording that are in use."""

    # Samples at 48 kHz, float64 [n].
    signals: list[NDArray[np.float64]]
    # Rate of the recording.
    rate_hz: float
    # Share of clipped samples per signal, as recorded.
    clipped_shares: list[float]
    # Changes to the file's contents.
    notes: tuple[str, ...]


MICROPHONES = ("outer microphone", "error microphone")
DRIVEN = ("loudspeaker's signal", *MICROPHONES)


def recording(file: Path, meanings: Sequence[str] = MICROPHONES) -> RecordedChannels:
    """Read the first channels of a recording.

    Parameters
    ----------
    file : Path
        A sound file, or another of those that `read` knows.
    meanings : sequence of str
        Meanings of the channels in their order; further channels are ignored.

    Returns
    -------
    Recording
        One signal per meaning.

    Raises
    ------
    FileError
        As for `read`, or too few channels, a silent channel, or a duration out of range.
    """
    contents = read(file)
    n_channels, order = len(contents.channels), ", ".join(meanings)
    if n_channels < len(meanings):
        has = "one channel" if n_channels == 1 else f"{n_channels} channels"
        raise FileError(f"{file}: it has {has}; record {len(meanings)} in one file, in this order: {order}")
    used = dict(list(contents.channels.items())[: len(meanings)])
    for name, item in used.items():
        if np.iscomplexobj(item):
            raise FileError(f"{file}: it holds a frequency response; a recording is needed")
        if not item.any():
            raise _silent(file, name)
    clipped_shares = [clipped_share(item) for item in used.values()]  # clipping is invisible after resampling
    recorded_hz, contents = contents.rate_hz, signals_at_48_khz(replace(contents, channels=used))
    assert recorded_hz is not None  # `signals_at_48_khz` refuses it
    signals, notes = list(contents.channels.values()), contents.notes
    seconds = len(signals[0]) / SAMPLE_RATE_HZ
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise audio.wrong_length(file, seconds)
    if seconds < ENOUGH_SECONDS:
        notes = (*notes, f"it lasts only {audio.lasting(seconds)} for low frequencies and less noise")
    if n_channels > len(meanings):
        notes = (*notes, f"of {n_channels} channels the first are taken for {order}")
    return RecordedChannels(signals, recorded_hz, clipped_shares, notes)


def first_channel(file: Path) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Read the first channel of a recording at 48 kHz, with notes; raise FileError if it is silent."""
    contents = signals_at_48_khz(read(file))
    name, samples = next(iter(contents.channels.items()))
    if not samples.any():
        raise _silent(file, name)
    return samples, contents.notes


def signals_at_48_khz(contents: Measurement) -> Measurement:
    """Bring a recording to 48 kHz by a polyphase filter (scipy.signal.resample_poly).

    Raises
    ------
    FileError
        The sample rate is unknown or not supported.
    """
    if contents.rate_hz is None:
        raise FileError(f"{contents.file}: it does not say its sample rate; store it as sample_rate, or save a WAV")
    check_rate(contents.file, contents.rate_hz)
    if contents.rate_hz == SAMPLE_RATE_HZ:
        return contents
    from scipy.signal import resample_poly

    ratio = Fraction(SAMPLE_RATE_HZ / contents.rate_hz).limit_denominator(4096)
    resampled = {
        name: resample_poly(values, ratio.numerator, ratio.denominator)
        for name, values in contents.channels.items()
    }
    return replace(contents, channels=resampled, notes=(*contents.notes, _resampled_from(contents.rate_hz)))

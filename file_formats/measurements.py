"""Recordings and measured responses from the files that measurement programs write.

    .wav .flac .aif .aiff .ogg   samples; the first channel of a recording is the outer microphone, the second the
                                 error microphone
    .csv .txt .frd               numbers in columns: one of samples; time and value; frequency in Hz, level in dB
                                 and phase in degrees, as REW exports (`*` begins a comment)
    .npz .npy                    NumPy arrays
    .mat                         MATLAB 5 variables
    .ita                         ITA-Toolbox audio objects, by channel name

Everything is brought to 48 kHz; what was changed is said in `notes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from file_formats.wav_length import what_is_missing
from synthesis.calibration import clipped_share
from synthesis.conventions import SAMPLE_RATE_HZ

AUDIO = (".wav", ".flac", ".aif", ".aiff", ".ogg")
TEXT = (".csv", ".txt", ".frd", ".dat")
MIN_SECONDS, ENOUGH_SECONDS, MAX_SECONDS = 0.064, 4.0, 60.0
"""Of a recording."""
MAX_RESPONSE_SAMPLES = 32_768
N_SPECTRUM_BINS = 4097
"""Of a response given at frequencies of its own: 5.9 Hz apart, 8192 samples long."""
RATES_HZ = (4000.0, 768_000.0)
_ITA = "ITA_TOOLBOX_AUDIO_OBJECT"


class FileError(ValueError):
    """A file that cannot be used; the message says which, what is wrong and what to do."""


@dataclass(frozen=True, eq=False)
class Measurement:
    """channels: by name, samples at 48 kHz, float64 [n], or a one-sided spectrum, complex128 [4097]. notes: what
    was done to the file's contents. comment, labels: what an .ita file says of itself and of each channel.
    clipped_shares: of each channel's samples as they stand in the file (`synthesis.calibration.clipped_share`),
    which resampling hides."""

    file: Path
    channels: dict[str, NDArray[Any]]
    notes: tuple[str, ...] = field(default=())
    comment: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    clipped_shares: Mapping[str, float] = field(default_factory=dict)

    def channel(self, *names: str) -> NDArray[Any]:
        """The channel of one of these names, letter case aside; the only one if there is one. Raises FileError."""
        for name, values in self.channels.items():
            if len(self.channels) == 1 or name.lower() in names:
                self.check_heard(name)
                return values
        raise FileError(
            f"{self.file}: it holds {', '.join(self.channels)}; name one of them {' or '.join(names)}, or use a "
            "file with that channel alone"
        )

    def check_heard(self, name: str) -> None:
        """Refuse a channel that is silent; those that are not used may be.

        Parameters
        ----------
        name : str
            Name of the channel.

        Raises
        ------
        FileError
            All of its samples are zero.
        """
        if not self.channels[name].any():
            raise FileError(f"{self.file}: {name} is silent; check the microphone and record again")


def read(file: Path) -> Measurement:
    """All channels of a file. Raises FileError for one that is missing, unreadable, empty or not finite, and
    for a rate that cannot be brought to 48 kHz."""
    if not file.is_file():
        raise FileError(f"{file}: there is no such file")
    kind = file.suffix.lower()
    readers = dict.fromkeys(AUDIO, _audio) | dict.fromkeys(TEXT, _text)
    readers |= {".npz": _numpy, ".npy": _numpy, ".mat": _matlab, ".ita": _ita}
    if kind not in readers:
        raise FileError(f"{file}: {kind or 'no extension'} is not known; use {', '.join(readers)}")
    found = readers[kind](file)
    for name, values in found.channels.items():
        if values.ndim != 1 or not values.size:
            raise FileError(f"{file}: {name} has the shape {values.shape}; a row of samples is needed")
        if not np.isfinite(values).all():
            raise FileError(f"{file}: {name} holds NaN or infinity; export it again")
    return found


@dataclass(frozen=True, eq=False)
class Recording:
    """What the channels in use of a recording hold.

    Attributes
    ----------
    signals : list of ndarray
        Samples at 48 kHz, float64, [n] each.
    clipped_shares : list of float
        Share of each signal's samples that are clipped, as recorded.
    notes : tuple of str
        What was done to the file's contents.
    """

    signals: list[NDArray[np.float64]]
    clipped_shares: list[float]
    notes: tuple[str, ...]


MICROPHONES = ("outer microphone", "error microphone")
DRIVEN = ("loudspeaker's signal", *MICROPHONES)


def recording(file: Path, meanings: Sequence[str] = MICROPHONES) -> Recording:
    """Read the first channels of a recording.

    Parameters
    ----------
    file : Path
        A sound file, or another of those that `read` knows.
    meanings : sequence of str
        What the channels in use are, in their order; further ones are ignored.

    Returns
    -------
    Recording
        One signal for each meaning.

    Raises
    ------
    FileError
        As `read`; and for too few channels, a silent one, or a recording that is too short or too long.
    """
    found = read(file)
    n_found, order = len(found.channels), ", ".join(meanings)
    if n_found < len(meanings):
        has = "one channel" if n_found == 1 else f"{n_found} channels"
        raise FileError(f"{file}: it has {has}; record {len(meanings)} in one file, in this order: {order}")
    names = list(found.channels)[: len(meanings)]
    signals = [found.channels[name] for name in names]
    if any(map(np.iscomplexobj, signals)):
        raise FileError(f"{file}: it holds a frequency response; a recording is needed")
    for name in names:
        found.check_heard(name)
    seconds, notes = len(signals[0]) / SAMPLE_RATE_HZ, found.notes
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise _wrong_length(file, seconds)
    if seconds < ENOUGH_SECONDS:
        notes = (*notes, f"it lasts only {_lasting(seconds)} for low frequencies and less noise")
    if n_found > len(meanings):
        notes = (*notes, f"of {n_found} channels the first are taken for {order}")
    return Recording(signals, [found.clipped_shares.get(name, 0.0) for name in names], notes)


def _wrong_length(file: Path, seconds: float) -> FileError:
    return FileError(f"{file}: it lasts {_lasting(seconds)}")


def _lasting(seconds: float) -> str:
    return f"{round(seconds, 2):g} s; record {ENOUGH_SECONDS:.0f} to {MAX_SECONDS:.0f} s"


def response(file: Path, *names: str) -> tuple[NDArray[Any], tuple[str, ...]]:
    """A path: samples [up to 32768] or a spectrum [4097], and notes. Raises FileError."""
    found = read(file)
    values, notes = found.channel(*names), found.notes
    if not np.iscomplexobj(values) and len(values) > MAX_RESPONSE_SAMPLES:
        lost = float(np.sum(values[MAX_RESPONSE_SAMPLES:] ** 2) / np.sum(values**2))
        if lost > 1e-4:
            raise FileError(
                f"{file}: the response lasts {len(values)} samples and {100 * lost:.2g} % of its energy lie beyond "
                f"{MAX_RESPONSE_SAMPLES}; window it"
            )
        values, notes = values[:MAX_RESPONSE_SAMPLES], (*notes, f"cut to {MAX_RESPONSE_SAMPLES} samples")
    return values, notes


def _at_48_khz(file: Path, channels: Mapping[str, NDArray[Any]], rate_hz: float, *notes: str) -> Measurement:
    """Samples at another rate, resampled by a polyphase filter (scipy.signal.resample_poly)."""
    if not RATES_HZ[0] <= rate_hz <= RATES_HZ[1]:
        raise FileError(f"{file}: its sample rate is {rate_hz:g} Hz; use {RATES_HZ[0]:g} to {RATES_HZ[1]:g} Hz")
    plain = {name: np.asarray(values, np.float64) for name, values in channels.items()}
    found = Measurement(
        file, plain, notes, clipped_shares={name: clipped_share(values) for name, values in plain.items()}
    )
    if rate_hz == SAMPLE_RATE_HZ:
        return found
    from scipy.signal import resample_poly

    ratio = Fraction(SAMPLE_RATE_HZ / rate_hz).limit_denominator(4096)
    resampled = {name: resample_poly(values, ratio.numerator, ratio.denominator) for name, values in plain.items()}
    note = f"resampled from {rate_hz:g} to {SAMPLE_RATE_HZ} Hz"
    if rate_hz < SAMPLE_RATE_HZ:
        note += f"; it holds nothing above {rate_hz / 2:g} Hz"
    return replace(found, channels=resampled, notes=(*notes, note))


def _audio(file: Path) -> Measurement:
    import soundfile

    with file.open("rb") as opened:
        missing = what_is_missing(opened, file.stat().st_size)
    if missing:
        raise FileError(f"{file}: {missing}; it was cut off: copy or record it again")
    try:
        seconds = soundfile.info(file).duration
        if seconds > MAX_SECONDS:  # before hours of samples fill the memory
            raise _wrong_length(file, seconds)
        n_promised = soundfile.info(file).frames
        samples, rate_hz = soundfile.read(file, dtype="float64", always_2d=True)
    except (soundfile.LibsndfileError, RuntimeError, TypeError) as error:
        raise FileError(f"{file}: it is no readable audio file ({error}); export it as WAV or FLAC") from error
    if len(samples) < n_promised:
        raise FileError(
            f"{file}: its header promises {n_promised} samples, the file holds {len(samples)}; it "
            f"was cut off: copy or "
            "record it again"
        )
    if not len(samples):
        raise FileError(f"{file}: it holds no samples; record again")
    names = (
        ("outer", "error") if samples.shape[1] == 2 else tuple(f"channel {n + 1}" for n in range(samples.shape[1]))
    )
    return _at_48_khz(file, dict(zip(names, samples.T, strict=True)), rate_hz)


def _text(file: Path) -> Measurement:
    rows: list[list[float]] = []
    rate_hz = None
    heading: list[str] = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        cells = line.replace(",", " ").replace(";", " ").split()
        try:
            rows.append([float(cell) for cell in cells])
        except ValueError:
            heading = cells if len(cells) == 2 else heading
            # REW writes the time between samples in a line of its head.
            if "sample interval" in line.lower() and _is_number(cells[0]):
                rate_hz = 1 / float(cells[0])
    rows = [row for row in rows if row]
    if not rows:
        raise FileError(f"{file}: it holds no numbers; export one number a line, or columns of numbers")
    width = min(len(row) for row in rows[-max(1, len(rows) // 2) :])
    table = np.array([row[:width] for row in rows if len(row) >= width])
    if width == 1:
        notes = () if rate_hz else (f"taken for samples at {SAMPLE_RATE_HZ} Hz: the file does not say",)
        if rate_hz:
            table = table[-_n_in_a_row(rows) :]
        return _at_48_khz(file, {"response": table[:, 0]}, rate_hz or SAMPLE_RATE_HZ, *notes)
    first = table[:, 0]
    if len(first) < 2 or not (np.diff(first) > 0).all():
        if width == 2:
            note = f"taken for samples of two channels at {SAMPLE_RATE_HZ} Hz: the file does not say"
            names = heading or ["outer", "error"]
            return _at_48_khz(file, dict(zip(names, table.T, strict=True)), rate_hz or SAMPLE_RATE_HZ, note)
        raise FileError(f"{file}: the first of {width} columns does not rise; it must be time or frequency")
    if width >= 3:
        return Measurement(file, {"response": _from_levels(file, table)}, (_FROM_LEVELS,))
    if first[-1] - first[0] > 1000:
        raise FileError(
            f"{file}: frequency and level without phase are not enough; export the phase in degrees as third column"
        )
    rate_hz = (len(first) - 1) / (first[-1] - first[0])
    return _at_48_khz(file, {"response": table[:, 1]}, round(rate_hz), "samples at times of the first column")


_FROM_LEVELS = "level and phase interpolated to 4097 frequencies, held below the first and above the last"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _n_in_a_row(rows: list[list[float]]) -> int:
    """How many rows of one number stand at the end."""
    return next((n for n, row in enumerate(reversed(rows)) if len(row) != 1), len(rows))


def _from_levels(file: Path, table: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Frequency in Hz, level in dB, phase in degrees -> a spectrum at 0 to 24 kHz."""
    frequency, level, phase = table[:, 0], table[:, 1], np.unwrap(np.deg2rad(table[:, 2]))
    if frequency[0] > 100 or frequency[-1] < 5000:
        raise FileError(
            f"{file}: it covers {frequency[0]:g} to {frequency[-1]:g} Hz; export at least 50 Hz to 8 kHz"
        )
    wanted = np.linspace(0, SAMPLE_RATE_HZ / 2, N_SPECTRUM_BINS)
    turn = np.interp(wanted, frequency, phase)
    beyond = wanted > frequency[-1]
    # A delay goes on beyond what was measured: phase in proportion to frequency.
    slope = (phase[-1] - phase[len(phase) // 2]) / (frequency[-1] - frequency[len(phase) // 2])
    turn[beyond] = phase[-1] + slope * (wanted[beyond] - frequency[-1])
    magnitude = 10 ** (np.interp(wanted, frequency, level) / 20)
    spectrum: NDArray[np.complex128] = magnitude * np.exp(1j * turn)
    spectrum[0], spectrum[-1] = spectrum[0].real, spectrum[-1].real
    return spectrum


def _numpy(file: Path) -> Measurement:
    try:
        loaded = np.load(file, allow_pickle=False)
        arrays = (
            {"samples": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
        )
    except (OSError, ValueError, EOFError) as error:
        raise FileError(f"{file}: it is no readable NumPy file ({error})") from error
    return _from_arrays(file, arrays)


def _matlab(file: Path) -> Measurement:
    variables = _loadmat(file)
    if _ITA in variables:
        return _ita(file)
    return _from_arrays(file, {name: each for name, each in variables.items() if not name.startswith("__")})


def _from_arrays(file: Path, arrays: Mapping[str, Any]) -> Measurement:
    """Rows of numbers by name; `sample_rate` or `fs` is the rate."""
    channels: dict[str, NDArray[Any]] = {}
    rate_hz, has_rate = float(SAMPLE_RATE_HZ), False
    for name, given in arrays.items():
        values = np.squeeze(np.asarray(given))
        if name.lower() in ("sample_rate", "sample_rate_hz", "samplerate", "fs") and values.ndim == 0:
            rate_hz, has_rate = float(values), True
        elif values.dtype.kind in "fiuc" and values.ndim == 1:
            channels[name] = values
        elif values.dtype.kind in "fiu" and values.ndim == 2:
            tall = values if values.shape[0] >= values.shape[1] else values.T
            channels |= {f"{name} {n + 1}": column for n, column in enumerate(tall.T)}
    if not channels:
        raise FileError(f"{file}: it holds no row of numbers; found {', '.join(arrays) or 'nothing'}")
    spectra = {name: np.asarray(each, np.complex128) for name, each in channels.items() if np.iscomplexobj(each)}
    notes = () if has_rate else (f"taken for samples at {SAMPLE_RATE_HZ} Hz: the file has no sample_rate",)
    found = _at_48_khz(
        file, {name: each for name, each in channels.items() if name not in spectra}, rate_hz, *notes
    )
    return replace(found, channels=found.channels | spectra)


def _ita(file: Path) -> Measurement:
    audio = _loadmat(file).get(_ITA)
    if audio is None or not all(hasattr(audio, name) for name in ("data", "channelNames", "samplingRate")):
        raise FileError(f"{file}: it holds no {_ITA} with data, channelNames and samplingRate")
    names = [str(name) for name in np.atleast_1d(audio.channelNames)]
    data = np.asarray(audio.data)
    if data.ndim == 1:
        data = data[:, None]
    if data.shape[1] != len(names):
        raise FileError(f"{file}: {data.shape[1]} channels but {len(names)} names")
    if data.dtype.kind not in "fiuc" or not _is_number(str(audio.samplingRate)):
        raise FileError(f"{file}: its data or its samplingRate, {audio.samplingRate!r}, are no numbers")
    columns, rate_hz = dict(zip(names, data.T, strict=True)), float(audio.samplingRate)
    if not np.iscomplexobj(data):
        found = _at_48_khz(file, columns, rate_hz)
    elif rate_hz == SAMPLE_RATE_HZ:
        found = Measurement(file, {name: each.astype(np.complex128) for name, each in columns.items()})
    else:
        raise FileError(f"{file}: its spectra are of {rate_hz:g} Hz; export impulse responses")
    rows = np.atleast_1d(np.asarray(getattr(audio, "channelUserData", ()), object))
    # As many as channels, or it is not known whose they are.
    labels = {
        name: str(np.atleast_1d(row)[-1]).strip()
        for name, row in zip(names, rows if len(rows) == len(names) else [()] * len(names), strict=True)
        if np.size(row)
    }
    return replace(found, comment=str(getattr(audio, "comment", "")), labels=labels)


def _loadmat(file: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    # The parser meets damaged files with whatever it trips over.
    try:
        variables: dict[str, Any] = loadmat(str(file), appendmat=False, squeeze_me=True, struct_as_record=False)
    except Exception as error:
        raise FileError(
            f"{file}: it is no readable MATLAB 5 file ({type(error).__name__}: {error}); save it with -v7"
        ) from error
    return variables

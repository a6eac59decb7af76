"""Recordings and measured responses from the files that measurement programs write.

    .wav .flac .aif .aiff .ogg   samples; the first channel of a recording is the outer microphone, the second the
    .rf64 .w64 .caf              error microphone
    .csv .txt .frd .dat          numbers in columns that the head names: samples; time and samples; frequency with
                                 level and phase, or with real and imaginary part (`text_tables`, `table_columns`)
    .npz .npy                    NumPy arrays
    .mat                         MATLAB 5 variables
    .ita                         ITA-Toolbox audio objects, by channel name

`read` keeps samples as they are. `recording` and `paths_at_48_khz` bring them to 48 kHz and list changes in notes.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from measurement.calibration import clipped_share
from measurement.files import resampling, table_columns
from measurement.files.errors import FileError
from measurement.files.resampling import Response, check_rate, common_delay
from measurement.files.table_columns import is_noncausal
from measurement.files.table_heads import rate_of
from measurement.files.text_tables import is_no_response, read_table
from measurement.files.wav_length import what_is_missing
from synthesis.conventions import SAMPLE_RATE_HZ

AUDIO = (".wav", ".flac", ".aif", ".aiff", ".ogg", ".rf64", ".w64", ".caf")
TEXT = (".csv", ".txt", ".frd", ".dat")
# Limits on the duration of a recording.
MIN_SECONDS, ENOUGH_SECONDS, MAX_SECONDS = 0.064, 4.0, 60.0
# Most numbers in a file: two minutes of four channels at 48 kHz.
MAX_VALUES = 25_000_000
_ITA = "ITA_TOOLBOX_AUDIO_OBJECT"
_ALIASES = {
    "primary": ("p", "pz", "pz1", "ptf", "pri", "hp", "primarypath"),
    "secondary": ("s", "sz", "sz1", "s1", "sec", "hs", "secondarypath"),
    "feedback": ("f", "fz", "fz1", "fb", "hf", "feedbackpath"),
}
_RATE_NAMES = (
    *("fs", "sr", "rate", "fsamp", "fsample", "fsampling", "samplerate", "samplingrate", "samplefrequency"),
    *("samplingfrequency", "samplefreq", "samplingfreq", "abtastrate"),
)
_INTERVAL_NAMES = ("dt", "ts", "sampleinterval", "samplinginterval", "sampleperiod", "samplingperiod")
_FREQUENCY_NAMES = ("f", "freq", "freqs", "frequency", "frequencies", "freqvector", "frequencyvector", "faxis")
_TIME_NAMES = ("t", "time", "times", "timevector", "taxis", "timeaxis")
_SHIFT_NAMES = ("t0", "start", "starttime", "starts", "offset", "delay", "shift", "latency")
_SCALE_NAMES = ("scale", "scaling", "scalefactor", "factor", "sensitivity", "calibration")
_FULL_SCALE = 1 - 2**-14
_LOSSY = ("IMA_ADPCM", "MS_ADPCM", "GSM610", "VORBIS", "OPUS", "MPEG_LAYER_III")
_SELECTED = re.compile(r"(?P<file>.+)#(?P<channel>[^#]+)", re.DOTALL)


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
    notes: tuple[str, ...] = field(default=())
    # Comment of an .ita file, and labels of its channels.
    comment: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    def channel(self, *names: str) -> NDArray[Any]:
        """Find a channel by name.

        Parameters
        ----------
        *names : str
            In lower case; of a path also the usual abbreviations, as `pz`, are found.

        Returns
        -------
        ndarray
            The channel, or the only one that the file has.

        Raises
        ------
        FileError
            If none has such a name, several have, or the only one is called as another path.
        """
        return self.channels[self.name_of(*names)]

    def name_of(self, *names: str) -> str:
        """Return the name of the channel that `channel` finds."""
        exact = [name for name in self.channels if name.lower() in names]
        other = {alias for name in names for alias in _ALIASES.get(name, ())}
        found = exact or [name for name in self.channels if _plain(name) in other]
        if len(found) == 1:
            return found[0]
        if len(self.channels) == 1:
            (only,) = self.channels
            called = next((path for path in _ALIASES if _plain(only).startswith(path)), None)
            if called is None or called in names or not set(names) & set(_ALIASES):
                return only
        raise FileError(
            f"{self.file}: it holds {_listed(self.channels)}; name one of them {' or '.join(names)}, or use a file "
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
            f"{self.file}: it has no channel {channel}; use one of {_listed(self.channels)}, or a number from 1 to "
            f"{len(self.channels)}"
        )

    def response(self, name: str) -> Response:
        """Return a channel as an impulse response.

        Raises
        ------
        FileError
            The sample rate is unknown or not supported.
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
        elif self.file.suffix.lower() in AUDIO and _is_clipped(values):
            raise FileError(f"{what}: it is clipped at full scale; export it with less gain, or as floating point")
        if self.rate_hz is None:
            raise _no_rate(self.file)
        check_rate(self.file, self.rate_hz)
        return Response(what, values, self.rate_hz, self.start_s)


def _is_clipped(values: NDArray[Any]) -> bool:
    """Return whether several samples are at full scale and none above it, as in floating point."""
    magnitudes = np.abs(values)
    return bool(magnitudes.max() <= 1 and np.sum(magnitudes >= _FULL_SCALE) > 1)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def _listed(names: Mapping[str, Any]) -> str:
    first = list(names)[:12]
    return ", ".join(first) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _no_rate(file: Path) -> FileError:
    return FileError(
        f"{file}: it does not say its sample rate; give --rate (of `prime-anc export`: --file-rate), for example "
        "--rate 48000, or store it in the file as sample_rate"
    )


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
    readers = dict.fromkeys(AUDIO, _audio) | dict.fromkeys(TEXT, _text)
    readers |= {".npz": _numpy, ".npy": _numpy, ".mat": _matlab, ".ita": _ita}
    if kind == ".sofa":
        raise FileError(
            f"{file}: SOFA files are not read; save the impulse responses and the rate, for example in Python: "
            "sofa = sofar.read_sofa(file); numpy.savez('paths.npz', h=sofa.Data_IR, "
            "sample_rate=sofa.Data_SamplingRate), and name one as paths.npz#h[1,2]"
        )
    if kind not in readers:
        raise FileError(f"{file}: {kind or 'no extension'} is not known; use {', '.join(readers)}")
    found = readers[kind](file)
    for name, values in found.channels.items():
        if values.ndim != 1 or not values.size:
            raise FileError(f"{file}: {name} has the shape {values.shape}; a row of samples is needed")
        if not np.isfinite(values).all():
            raise FileError(f"{file}: {name} holds NaN or infinity; export it again")
    if rate_hz is None or rate_hz == found.rate_hz:
        return found
    if found.rate_hz is not None:
        return replace(
            found, notes=(*found.notes, f"it states {found.rate_hz:g} Hz, so {rate_hz:g} Hz is not used")
        )
    return replace(found, rate_hz=rate_hz, notes=(*found.notes, f"taken for samples at {rate_hz:g} Hz"))


def split_channel(file: Path) -> tuple[Path, str | None]:
    """Split `FILE#CHANNEL` into file and channel; an existing file whose name has a `#` is that file."""
    match = _SELECTED.fullmatch(str(file))
    if match is None or file.is_file():
        return file, None
    return Path(match["file"]), match["channel"]


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
    found = read(file, rate_hz)
    name = found.name_of(*names) if channel is None else found.select(channel)
    if not found.channels[name].any():
        raise _silent(file, name)
    return found.response(name), found.notes


def _silent(file: Path, name: str) -> FileError:
    return FileError(f"{file}: {name} is silent; check the microphone and record again")


def paths_at_48_khz(responses: Mapping[str, Response]) -> tuple[dict[str, NDArray[np.float64]], tuple[str, ...]]:
    """Bring the paths of an ear to 48 kHz.

    Parameters
    ----------
    responses : mapping of str to Response
        `primary` and `secondary`, which are delayed alike if they begin before zero, and `feedback`, which is not.

    Returns
    -------
    samples : dict of str to ndarray
    notes : tuple of str

    Raises
    ------
    FileError
    """
    delays = dict.fromkeys(responses, 0)
    if both := [name for name in responses if name != "feedback"]:
        delays |= dict.fromkeys(both, common_delay([responses[name] for name in both]))
    found = {name: resampling.at_48_khz(item, delays[name]) for name, item in responses.items()}
    notes = [
        f"{name} path: {_resampled_from(item.rate_hz)}"
        for name, item in responses.items()
        if item.rate_hz != SAMPLE_RATE_HZ
    ]
    if any(delays.values()):
        notes.append(
            f"primary and secondary path: both delayed by {max(delays.values())} samples, for they begin before zero"
        )
    return found, tuple(notes)


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
    found = read(file)
    n_found, order = len(found.channels), ", ".join(meanings)
    if n_found < len(meanings):
        has = "one channel" if n_found == 1 else f"{n_found} channels"
        raise FileError(f"{file}: it has {has}; record {len(meanings)} in one file, in this order: {order}")
    used = dict(list(found.channels.items())[: len(meanings)])
    if any(map(np.iscomplexobj, used.values())):
        raise FileError(f"{file}: it holds a frequency response; a recording is needed")
    for name, item in used.items():
        if not item.any():
            raise _silent(file, name)
    clipped_shares = [clipped_share(item) for item in used.values()]  # clipping is invisible after resampling
    recorded_hz, found = found.rate_hz, signals_at_48_khz(replace(found, channels=used))
    assert recorded_hz is not None  # `signals_at_48_khz` refuses it
    signals, notes = list(found.channels.values()), found.notes
    seconds = len(signals[0]) / SAMPLE_RATE_HZ
    if not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise _wrong_length(file, seconds)
    if seconds < ENOUGH_SECONDS:
        notes = (*notes, f"it lasts only {_lasting(seconds)} for low frequencies and less noise")
    if n_found > len(meanings):
        notes = (*notes, f"of {n_found} channels the first are taken for {order}")
    return RecordedChannels(signals, recorded_hz, clipped_shares, notes)


def _wrong_length(file: Path, seconds: float) -> FileError:
    return FileError(f"{file}: it lasts {_lasting(seconds)}")


def _lasting(seconds: float) -> str:
    return f"{round(seconds, 2):g} s; record {ENOUGH_SECONDS:.0f} to {MAX_SECONDS:.0f} s"


def signals_at_48_khz(found: Measurement) -> Measurement:
    """Bring a recording to 48 kHz by a polyphase filter (scipy.signal.resample_poly).

    Raises
    ------
    FileError
        The sample rate is unknown or not supported.
    """
    if found.rate_hz is None:
        raise FileError(f"{found.file}: it does not say its sample rate; store it as sample_rate, or save a WAV")
    check_rate(found.file, found.rate_hz)
    if found.rate_hz == SAMPLE_RATE_HZ:
        return found
    from scipy.signal import resample_poly

    ratio = Fraction(SAMPLE_RATE_HZ / found.rate_hz).limit_denominator(4096)
    resampled = {
        name: resample_poly(values, ratio.numerator, ratio.denominator) for name, values in found.channels.items()
    }
    return replace(found, channels=resampled, notes=(*found.notes, _resampled_from(found.rate_hz)))


def _audio(file: Path) -> Measurement:
    import soundfile

    with file.open("rb") as opened:
        missing = what_is_missing(opened, file.stat().st_size)
    if missing:
        raise FileError(f"{file}: {missing}")
    try:
        about = soundfile.info(file)
        if about.duration > MAX_SECONDS:  # before hours of samples fill the memory
            raise _wrong_length(file, about.duration)
        _check_size(file, about.frames * about.channels)
        samples, rate_hz = soundfile.read(file, dtype="float64", always_2d=True)
    except (soundfile.LibsndfileError, RuntimeError, TypeError) as error:
        raise FileError(f"{file}: it is no readable audio file ({error}); export it as WAV or FLAC") from error
    if len(samples) < about.frames:
        raise FileError(
            f"{file}: its header promises {about.frames} samples, the file holds {len(samples)}; it was cut off: "
            "copy or record it again"
        )
    if not len(samples):
        raise FileError(f"{file}: it holds no samples; record again")
    names = [f"channel {n + 1}" for n in range(samples.shape[1])]
    lossy = (f"its code, {about.subtype}, changes samples; record WAV or FLAC",) if about.subtype in _LOSSY else ()
    return Measurement(file, dict(zip(names, samples.T, strict=True)), float(rate_hz), notes=lossy)


def _check_size(file: Path, n_values: int) -> None:
    """Raise FileError for a file too large for memory, before reading it."""
    if n_values > MAX_VALUES:
        raise FileError(f"{file}: it holds {n_values} numbers; save the responses alone, at most {MAX_VALUES}")


def _text(file: Path) -> Measurement:
    table = read_table(file)
    found = table_columns.channels(file, table)
    return Measurement(file, dict(found.by_name), found.rate_hz, found.start_s, (*table.notes, *found.notes))


def _numpy(file: Path) -> Measurement:
    try:
        _check_size(file, sum(map(_declared, _array_streams(file))))
        loaded = np.load(file, allow_pickle=False)
        arrays = (
            {"samples": loaded} if isinstance(loaded, np.ndarray) else {name: loaded[name] for name in loaded.files}
        )
    except FileError:
        raise
    except (OSError, ValueError, EOFError, SyntaxError, zipfile.BadZipFile, zlib.error, NotImplementedError,
            RuntimeError) as error:  # fmt: skip
        raise FileError(f"{file}: it is no readable NumPy file ({error})") from error
    return _from_arrays(file, arrays)


def _array_streams(file: Path) -> Iterator[IO[bytes]]:
    """Yield the streams of the arrays of a .npz, or of a .npy, at their start."""
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            for name in archive.namelist():
                with archive.open(name) as stream:
                    yield stream
    else:
        with file.open("rb") as stream:
            yield stream


def _declared(stream: IO[bytes]) -> int:
    """Return the number of values that an array's header declares."""
    major, _ = np.lib.format.read_magic(stream)
    read_head = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_head(stream)
    # Wide elements, such as strings, count by their memory.
    return int(np.prod([float(n) for n in shape])) * max(1, dtype.itemsize // 8)


def _matlab(file: Path) -> Measurement:
    variables = _loadmat(file)
    if _ITA in variables:
        return _ita(file)
    return _from_arrays(file, {name: variable for name, variable in variables.items() if not name.startswith("__")})


def _from_arrays(file: Path, arrays: Mapping[str, Any]) -> Measurement:
    """Extract named rows of numbers.

    The longest dimension of an array is time; indices along the others, from 1, are part of the name: h[2], h[1,2].
    """
    channels: dict[str, NDArray[Any]] = {}
    scalars: dict[str, float] = {}
    unused: list[str] = []
    for name, given in arrays.items():
        values = np.asarray(given)
        if values.dtype.kind == "U" and values.size == 1 and stated_rate(name, 1.0) is not None:
            try:
                values = np.array(float(values.reshape(())[()]))
            except ValueError:
                raise FileError(f"{file}: {name} is {str(values)!r}, no number; store the rate in hertz") from None
        if values.dtype.kind not in "fiuc":
            unused.append(name)
        elif values.size == 1:
            scalars[name] = float(np.real(values.reshape(())))
        elif values.size:
            channels |= _rows(name, values)
    if not channels:
        raise FileError(f"{file}: it holds no row of numbers; found {', '.join(arrays) or 'nothing'}")
    rates = {name: rate for name, value in scalars.items() if (rate := stated_rate(name, value)) is not None}
    if len(set(rates.values())) > 1:
        raise FileError(f"{file}: {', '.join(rates)} state different sample rates; keep one")
    others = {name: value for name, value in scalars.items() if name not in rates}
    if others and not rates:
        first = next(iter(others))
        raise FileError(
            f"{file}: it has no sample_rate, and {first} = {others[first]:g} is unknown; store the rate as "
            f"sample_rate, and leave {first} out"
        )
    for name, value in others.items():
        if (_plain(name) in _SHIFT_NAMES and value) or (_plain(name) in _SCALE_NAMES and value != 1):
            raise FileError(
                f"{file}: it is not known what {name} = {value:g} does to the samples; apply it, and leave it out"
            )
    notes = (
        *(f"not used: {name} = {value:g}" for name, value in others.items()),
        *([f"not used: {', '.join(unused)}"] if unused else []),
    )
    rate_hz = next(iter(rates.values()), None)
    return _with_spectra(_with_times(Measurement(file, channels, rate_hz, 0.0, notes)))


def _with_times(found: Measurement) -> Measurement:
    """Convert an array of times beside samples to their rate and start."""
    times = [name for name, item in found.channels.items() if _plain(name) in _TIME_NAMES and _is_axis(item)]
    if not times or len(found.channels) == 1:
        return found
    channels = {name: item for name, item in found.channels.items() if name not in times}
    seconds = found.channels[times[0]]
    rate_hz = rate_of(float(seconds[-1] - seconds[0]) / (len(seconds) - 1))
    if found.rate_hz is not None and abs(rate_hz - found.rate_hz) > 1e-3 * found.rate_hz:
        raise FileError(
            f"{found.file}: {times[0]} rises {rate_hz:g} times in a second, which does not fit the sample rate of "
            f"{found.rate_hz:g} Hz; keep one"
        )
    return replace(found, channels=channels, rate_hz=found.rate_hz or rate_hz, start_s=float(seconds[0]))


def _is_axis(values: NDArray[Any]) -> bool:
    """Return whether numbers rise evenly, as times and frequencies do."""
    if np.iscomplexobj(values) or len(values) < 3:
        return False
    step = np.diff(values)
    return bool(step[0] > 0 and np.ptp(step) <= 1e-3 * step[0])


def _rows(name: str, values: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Split an array into rows along its longest dimension, the last one of equal length."""
    kind = np.complex128 if np.iscomplexobj(values) else np.float64
    along = values.ndim - 1 - int(np.argmax(values.shape[::-1]))
    rows = np.moveaxis(values, along, -1)
    if rows.size == rows.shape[-1]:
        return {name: rows.reshape(-1).astype(kind)}
    kept = rows.reshape([n for n in rows.shape[:-1] if n > 1] + [rows.shape[-1]])
    return {
        f"{name}[{','.join(str(n + 1) for n in place)}]": kept[place].astype(kind)
        for place in np.ndindex(kept.shape[:-1])
    }


def stated_rate(name: str, value: float) -> float | None:
    """Return the sample rate if the name of a number is that of one, else None."""
    plain = _plain(name)
    unit = next((unit for unit in ("khz", "hz") if plain.endswith(unit)), "")
    stem = plain.removesuffix(unit)
    if stem in _RATE_NAMES or plain in _RATE_NAMES:
        return value * (1000 if unit == "khz" else 1)
    if plain in _INTERVAL_NAMES:
        return rate_of(value)
    return None


def _with_spectra(found: Measurement) -> Measurement:
    """Convert spectra to those from 0 Hz to Nyquist, and an array of frequencies beside them to their rate."""
    channels = dict(found.channels)
    spectra = {name: item for name, item in channels.items() if np.iscomplexobj(item)}
    axes = [
        name
        for name, item in channels.items()
        if _plain(name) in _FREQUENCY_NAMES
        and name not in spectra
        and (len(_plain(name)) > 1 or bool((np.diff(item) > 0).all()))
    ]
    if not spectra:
        return _without_axes(found, axes)
    rate_hz = found.rate_hz
    for name, values in spectra.items():
        n = len(values)
        if n > 2 and np.allclose(values[1:], values[:0:-1].conj(), atol=1e-9 * float(np.abs(values).max())):
            values = values[: n // 2 + 1]
        if n > 2 and abs(values[0].imag) > 1e-6 * float(np.abs(values).max()):
            raise FileError(
                f"{found.file}: {name} is complex at 0 Hz, hence no spectrum from 0 Hz to half the sample rate; save "
                "impulse responses"
            )
        for axis in axes:
            hz = channels[axis]
            step = np.diff(hz)
            if len(hz) != n or hz[0] != 0 or np.ptp(step) > 1e-3 * abs(step[0]):
                raise FileError(
                    f"{found.file}: {axis} does not run evenly from 0 Hz for each bin of {name}; save impulse responses"
                )
            top_hz = float(hz[-1]) * (2 if len(values) == n else n / (n - 1))
            if rate_hz is not None and abs(top_hz - rate_hz) > 1e-3 * rate_hz:
                raise FileError(
                    f"{found.file}: {axis} ends at {hz[-1]:g} Hz, which does not fit the sample rate of {rate_hz:g} "
                    "Hz; save impulse responses"
                )
            rate_hz = top_hz if rate_hz is None else rate_hz
        channels[name] = values
    for axis in axes:
        del channels[axis]
    return replace(found, channels=channels, rate_hz=rate_hz)


def _without_axes(found: Measurement, axes: Sequence[str]) -> Measurement:
    """Drop frequencies that lie beside samples; raise FileError if the samples are values at these frequencies."""
    rest = {name: item for name, item in found.channels.items() if name not in axes}
    if not axes or not rest:
        return found
    for name, item in rest.items():
        if len(item) == len(found.channels[axes[0]]):
            raise FileError(
                f"{found.file}: {name} seems to hold values at the frequencies of {axes[0]}, but is not complex; "
                "save impulse responses"
            )
    return replace(found, channels=rest, notes=(*found.notes, *(f"not used: {name}" for name in axes)))


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
    if data.dtype.kind not in "fiuc" or not isinstance(audio.samplingRate, int | float):
        raise FileError(f"{file}: its data or its samplingRate, {audio.samplingRate!r}, are no numbers")
    kind = np.complex128 if np.iscomplexobj(data) else np.float64
    columns = {name: item.astype(kind) for name, item in zip(names, data.T, strict=True)}
    found = Measurement(file, columns, float(audio.samplingRate))
    rows = np.atleast_1d(np.asarray(getattr(audio, "channelUserData", ()), object))
    # Labels are used only if there is one per channel.
    labels = {
        name: str(np.atleast_1d(row)[-1]).strip()
        for name, row in zip(names, rows if len(rows) == len(names) else [()] * len(names), strict=True)
        if np.size(row)
    }
    return replace(found, comment=str(getattr(audio, "comment", "")), labels=labels)


def _loadmat(file: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    _check_size(file, _unpacked_size(file) // 8)
    # The parser raises many exceptions for damaged files.
    try:
        variables: dict[str, Any] = loadmat(str(file), appendmat=False, squeeze_me=True, struct_as_record=False)
    except Exception as error:
        raise FileError(
            f"{file}: it is no readable MATLAB 5 file ({type(error).__name__}: {error}); save it with -v7"
        ) from error
    return variables


def _unpacked_size(file: Path) -> int:
    """Count the bytes of the decompressed elements of a MATLAB 5 file, up to the limit."""
    content = file.read_bytes() if file.stat().st_size <= 8 * MAX_VALUES else b""
    size, place = file.stat().st_size, 128
    order: Literal["big", "little"] = "big" if content[126:128] == b"MI" else "little"
    while place + 8 <= len(content) and size <= 8 * MAX_VALUES:
        kind, n_bytes = (int.from_bytes(content[place + n : place + n + 4], order) for n in (0, 4))
        if kind == 15:  # miCOMPRESSED
            unpacked = zlib.decompressobj()
            rest: bytes = content[place + 8 : place + 8 + n_bytes]
            while rest and size <= 8 * MAX_VALUES:
                try:
                    size += len(unpacked.decompress(rest, 1 << 20))
                except zlib.error:
                    break  # the parser reports the fault
                rest = unpacked.unconsumed_tail
        place += 8 + n_bytes
    return size

"""Read sound files."""

from __future__ import annotations

from pathlib import Path

from prime_anc.measure.files.channels import Measurement
from prime_anc.measure.files.errors import FileError

# Limits on the duration of a recording.
MIN_SECONDS, ENOUGH_SECONDS, MAX_SECONDS = 0.064, 4.0, 60.0
_LOSSY = ("IMA_ADPCM", "MS_ADPCM", "GSM610", "VORBIS", "OPUS", "MPEG_LAYER_III")
# Lengths from which on a program wrote one for want of the true one, as into a pipe.
_UNKNOWN_LENGTH = 0x7FFFF000


def is_cut(head: bytes, n_bytes: int) -> bool:
    """Return whether a WAV file is shorter than its first eight bytes promise; libsndfile reads it without a word."""
    promised = int.from_bytes(head[4:8], "little")
    # The byte that pads a chunk of odd length may be missing at the end.
    return head[:4] == b"RIFF" and promised < _UNKNOWN_LENGTH and promised + 7 > n_bytes


def wrong_length(file: Path, seconds: float) -> FileError:
    """Make the error for a recording that is too short or too long."""
    return FileError(f"{file}: it lasts {lasting(seconds)}")


def lasting(seconds: float) -> str:
    """Return a duration, and the one that is needed."""
    return f"{round(seconds, 2):g} s; record {ENOUGH_SECONDS:.0f} to {MAX_SECONDS:.0f} s"


def read(file: Path) -> Measurement:
    """Read a sound file of at most a minute."""
    import soundfile

    with file.open("rb") as opened:
        if is_cut(opened.read(8), file.stat().st_size):
            raise FileError(f"{file}: its header promises more bytes than it holds; copy or record it again")
    try:
        about = soundfile.info(file)
        if about.duration > MAX_SECONDS:  # before hours of samples fill the memory
            raise wrong_length(file, about.duration)
        samples, rate_hz = soundfile.read(file, dtype="float64", always_2d=True)
    except (soundfile.LibsndfileError, RuntimeError, TypeError) as error:
        raise FileError(f"{file}: it is no readable audio file ({error}); export it as WAV or FLAC") from error
    if not len(samples):
        raise FileError(f"{file}: it holds no samples; record again")
    channels = {f"channel {n + 1}": values for n, values in enumerate(samples.T)}
    lossy = (f"its code, {about.subtype}, changes samples; record WAV or FLAC",) if about.subtype in _LOSSY else ()
    return Measurement(file, channels, float(rate_hz), notes=lossy)

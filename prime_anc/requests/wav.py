"""Read mono WAV files at 48 kHz from the bytes of a request with libsndfile."""

from __future__ import annotations

import io

import numpy as np
import soundfile

from prime_anc.measure.files.audio import is_cut
from prime_anc.method.types import Float32
from prime_anc.requests.arrays import check_rate
from prime_anc.requests.errors import RequestError

SUBTYPES = ("PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")


def read_wav(data: bytes, field: str) -> Float32:
    """Read samples, full scale 1, [n]; RequestError unless it is a whole mono WAV file at 48 kHz."""
    # Other formats of libsndfile are refused.
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise RequestError("invalid-field", f"{field}: this is not a WAV file; send one", field)
    if is_cut(data, len(data)):
        raise RequestError("invalid-field", f"{field}: the WAV file is cut off; send all of it", field)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            check_rate(file.samplerate, field)
            if file.channels != 1:
                raise RequestError(
                    "invalid-field", f"{field}: the WAV file has {file.channels} channels; send one", field
                )
            if file.subtype not in SUBTYPES:
                raise RequestError(
                    "invalid-field",
                    f"{field}: samples of type {file.subtype} are not read; send 16, 24 or 32 bits, or floats",
                    field,
                )
            samples = file.read(dtype="float64" if file.subtype == "DOUBLE" else "float32")
    except (soundfile.SoundFileError, OSError) as error:
        raise RequestError("invalid-field", f"{field}: the WAV file is damaged; send a whole one", field) from error
    with np.errstate(over="ignore"):  # values that do not fit become infinite and are refused with the others
        return samples.astype(np.float32, copy=False)

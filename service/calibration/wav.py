"""Mono WAV files at 48 kHz, read strictly from the bytes of a request.

Only what probe recordings come in is understood: 16, 24 and 32 bits, and floats. A general reader would take
damaged files for shorter ones, and fail in many more ways.
"""

from __future__ import annotations

import struct

import numpy as np

from service.designs import Float32
from service.errors import Problem
from service.formats.checks import check_rate

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_FORMAT = struct.Struct("<HHIIHH")


def read_wav(data: bytes, field: str) -> Float32:
    """Samples, full scale 1: [n]; Problem where this is no whole mono WAV file at 48 kHz."""
    if len(data) < 12 or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise Problem(
            "invalid-field", f"{field}: found {len(data)} bytes that are no WAV file, expected one", field
        )
    chunks = _chunks(data, field)
    if b"fmt " not in chunks or b"data" not in chunks or len(chunks[b"fmt "]) < _FORMAT.size:
        raise Problem("invalid-field", f"{field}: found no format and data in the WAV file, expected both", field)
    tag, n_channels, rate, _, _, n_bits = _FORMAT.unpack_from(chunks[b"fmt "])
    if tag == _EXTENSIBLE and len(chunks[b"fmt "]) >= 26:
        (tag,) = struct.unpack_from("<H", chunks[b"fmt "], 24)
    check_rate(rate)
    if n_channels != 1:
        raise Problem("invalid-field", f"{field}: found {n_channels} channels, expected one", field)
    return _samples(chunks[b"data"], tag, n_bits, field)


def _chunks(data: bytes, field: str) -> dict[bytes, bytes]:
    """Contents by name, the first of each; Problem where one ends behind the file's end."""
    found: dict[bytes, bytes] = {}
    place = 12
    while place + 8 <= len(data):
        name, size = data[place : place + 4], struct.unpack_from("<I", data, place + 4)[0]
        content = data[place + 8 : place + 8 + size]
        if len(content) < size:
            raise Problem(
                "invalid-field",
                f"{field}: found {len(content)} bytes of a WAV chunk of {size}, expected a whole file",
                field,
            )
        found.setdefault(name, content)
        place += 8 + size + size % 2
    return found


def _samples(content: bytes, tag: int, n_bits: int, field: str) -> Float32:
    kinds = {(_PCM, 16): "<i2", (_PCM, 24): "u1", (_PCM, 32): "<i4", (_FLOAT, 32): "<f4", (_FLOAT, 64): "<f8"}
    if (tag, n_bits) not in kinds or len(content) % (n_bits // 8):
        raise Problem(
            "invalid-field",
            f"{field}: found WAV format {tag} of {n_bits} bits in {len(content)} bytes, expected whole samples of "
            "16, 24 or 32 bits, or floats",
            field,
        )
    values = np.frombuffer(content, kinds[tag, n_bits])
    if n_bits == 24:  # into the upper three bytes of 32 bits
        widened = np.zeros((len(content) // 3, 4), np.uint8)
        widened[:, 1:] = values.reshape(-1, 3)
        values = widened.view("<i4")[:, 0]
    if tag == _FLOAT:
        with np.errstate(over="ignore"):  # what does not fit becomes infinite and is refused with the rest
            return values.astype(np.float32)
    return (values / -float(np.iinfo(values.dtype).min)).astype(np.float32)

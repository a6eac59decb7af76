"""The binary body: a header of 32 bytes, then float32 or complex64, little-endian throughout.

    4s magic "PRME" | u16 version 1 | u16 flags | u32 length of primary | u32 length of secondary
    u32 sample rate, Hz | u32 CRC-32 of the payload | 8 zero bytes
    primary | secondary | coherence, with flag bit 1

Flag bit 0: impulse responses (float32) instead of one-sided spectra (complex64). Flag bit 1: a float32 coherence
follows, on the spectra's grid, or on the design grid with impulse responses. Lengths count elements.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import numpy as np

from service.api.validation import Path, check_coherence, check_pair, check_path, check_rate
from service.errors import Problem
from synthesis.backends.base import Float32
from synthesis.conventions import N_BINS

MAGIC = b"PRME"
VERSION = 1
IMPULSE_RESPONSES = 1
COHERENCE = 2

_HEADER = struct.Struct("<4sHHIIII8s")
HEADER_BYTES = _HEADER.size


class Paths(NamedTuple):
    """The content of a binary body. The arrays are views of the body, not copies."""

    primary: Path
    secondary: Path
    coherence: Float32 | None


def decode(body: bytes | bytearray) -> Paths:
    """Read a binary body; Problem 400 if it is malformed, 422 if its numbers are unusable."""
    if len(body) < HEADER_BYTES:
        raise Problem(
            "bad-length",
            f"the body has {len(body)} bytes; the header alone has {HEADER_BYTES}; send the whole body",
        )
    magic, version, flags, n_primary, n_secondary, rate, checksum, reserved = _HEADER.unpack_from(body)
    if magic != MAGIC:
        raise Problem("bad-magic", f"the body starts with {magic!a}; start it with {MAGIC!a}")
    if version != VERSION:
        raise Problem("bad-version", f"version {version} is not supported; send version {VERSION}")
    if flags & ~(IMPULSE_RESPONSES | COHERENCE) or any(reserved):
        raise Problem(
            "bad-flags", f"flags {flags:#06x}, reserved bytes {reserved.hex()}: set no flag bits except 0 and 1"
        )
    element = np.dtype("<f4" if flags & IMPULSE_RESPONSES else "<c8")
    n_coherence = 0
    if flags & COHERENCE:
        n_coherence = N_BINS if flags & IMPULSE_RESPONSES else n_primary
    expected = HEADER_BYTES + element.itemsize * (n_primary + n_secondary) + 4 * n_coherence
    if len(body) != expected:
        raise Problem(
            "bad-length",
            f"the body has {len(body)} bytes instead of {expected}: {n_primary} + {n_secondary} elements of "
            f"{element.itemsize} bytes, {n_coherence} of 4 and a header of {HEADER_BYTES}",
        )
    found = zlib.crc32(memoryview(body)[HEADER_BYTES:])
    if found != checksum:
        raise Problem(
            "bad-checksum",
            f"the payload has the CRC-32 {found:#010x}, but its header has {checksum:#010x}; send it again",
        )
    check_rate(rate)
    end = HEADER_BYTES + element.itemsize * n_primary
    primary = np.frombuffer(body, element, n_primary, HEADER_BYTES)
    secondary = np.frombuffer(body, element, n_secondary, end)
    check_path(primary, "primary")
    check_path(secondary, "secondary")
    check_pair(primary, secondary)
    coherence = None
    if flags & COHERENCE:
        coherence = np.frombuffer(body, "<f4", n_coherence, end + element.itemsize * n_secondary)
        check_coherence(coherence)
    return Paths(primary, secondary, coherence)


def encode(primary: Path, secondary: Path, coherence: Float32 | None = None, sample_rate: int = 48_000) -> bytes:
    """The inverse of `decode`, for clients. Both paths have the same type, float32 or complex64."""
    flags = COHERENCE if coherence is not None else 0
    element = "<c8"
    if not np.iscomplexobj(primary):
        flags |= IMPULSE_RESPONSES
        element = "<f4"
    payload = primary.astype(element).tobytes() + secondary.astype(element).tobytes()
    if coherence is not None:
        payload += coherence.astype("<f4").tobytes()
    header = _HEADER.pack(
        MAGIC, VERSION, flags, len(primary), len(secondary), sample_rate, zlib.crc32(payload), bytes(8)
    )
    return header + payload


def encode_taps(taps: Float32) -> bytes:
    """The binary answer: 2048 little-endian float32."""
    return taps.astype("<f4", copy=False).tobytes()

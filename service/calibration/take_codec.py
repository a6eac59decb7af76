"""The binary body of a calibration: a header of 32 bytes, a table of takes, then float32, little-endian throughout.

4s magic "PRMT" | u16 version 1 | u16 flags 0 | u32 number of takes | u32 sample rate, Hz
u32 CRC-32 of everything from byte 32 on | 12 zero bytes
for each take, 16 bytes: f64 gain | u32 samples of x, and as many of e | 4 zero bytes
for each take: x | e
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence

import numpy as np

from service.api.paths import check_rate
from service.calibration.takes import MAX_TAKES, ProbeTake, check_takes
from service.errors import HttpProblem

MAGIC = b"PRMT"
VERSION = 1

_HEADER = struct.Struct("<4sHHIII12s")
_ROW = struct.Struct("<dI4s")
HEADER_BYTES = _HEADER.size


def decode(body: bytes | bytearray) -> list[ProbeTake]:
    """Read a binary body, or raise HttpProblem: 400 where it is malformed, 422 where its numbers are unusable.

    The arrays are views of the body.
    """
    if len(body) < HEADER_BYTES:
        raise HttpProblem("bad-length", f"the body has {len(body)} bytes, less than a header of {HEADER_BYTES}")
    magic, version, flags, n_takes, rate, checksum, reserved = _HEADER.unpack_from(body)
    if magic != MAGIC:
        raise HttpProblem("bad-magic", f"the body begins with {magic!a}; send {MAGIC!a}")
    if version != VERSION:
        raise HttpProblem("bad-version", f"version {version} is not known; send {VERSION}")
    if flags or any(reserved):
        raise HttpProblem(
            "bad-flags", f"the flags are {flags:#06x} and the reserved bytes {reserved.hex()}; send zeros only"
        )
    table_end = HEADER_BYTES + _ROW.size * n_takes
    if n_takes > MAX_TAKES or len(body) < table_end:
        raise HttpProblem(
            "bad-length",
            f"{len(body)} bytes hold no table of {n_takes} takes of {_ROW.size} bytes; send at most {MAX_TAKES}",
        )
    rows = [_ROW.unpack_from(body, HEADER_BYTES + _ROW.size * number) for number in range(n_takes)]
    expected = table_end + sum(8 * n_samples for _, n_samples, _ in rows)
    if len(body) != expected:
        raise HttpProblem("bad-length", f"the body has {len(body)} bytes; its header declares {expected}")
    found = zlib.crc32(memoryview(body)[HEADER_BYTES:])
    if found != checksum:
        raise HttpProblem("bad-checksum", f"the payload has CRC-32 {found:#010x}; {checksum:#010x} is declared")
    if any(any(zeros) for _, _, zeros in rows):
        raise HttpProblem("bad-flags", "the table of takes has reserved bytes that are not zero; send zeros")
    check_rate(rate)
    takes, place = [], table_end
    for gain, n_samples, _ in rows:
        x = np.frombuffer(body, "<f4", n_samples, place)
        e = np.frombuffer(body, "<f4", n_samples, place + 4 * n_samples)
        takes.append(ProbeTake(gain if math.isfinite(gain) else math.nan, x, e))
        place += 8 * n_samples
    check_takes(takes)
    return takes


def encode(takes: Sequence[ProbeTake], sample_rate: int = 48_000) -> bytes:
    """The body that `decode` reads; for clients."""
    table = b"".join(_ROW.pack(take.gain, len(take.x), bytes(4)) for take in takes)
    signals = b"".join(signal.astype("<f4").tobytes() for take in takes for signal in (take.x, take.e))
    payload = table + signals
    header = _HEADER.pack(MAGIC, VERSION, 0, len(takes), sample_rate, zlib.crc32(payload), bytes(12))
    return header + payload

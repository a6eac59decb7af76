"""The binary body: a header of 32 bytes, then float32 or complex64, little-endian throughout.

    4s magic "PRME" | u16 version 1 | u16 flags | u32 length of primary | u32 length of secondary
    u32 sample rate, Hz | u32 CRC-32 of the payload | u16 number of conditions, 0 for one | 6 zero bytes
    with flag bit 2, float32 weights, one for each condition
    for each condition: primary | secondary | coherence, with flag bit 1 | feedback, with flag bit 3
    | uncertainty, with flag bit 4

Flag bit 0: impulse responses (float32) instead of one-sided spectra (complex64). Flag bit 1: a float32 coherence
follows, on the spectra's grid, or on the design grid with impulse responses. Flag bit 2: several conditions for one
filter, whose paths all have the same lengths. Flag bit 3: a feedback path follows, of the secondary path's length.
Flag bit 4: the 62 float32
of an uncertainty follow. Lengths count elements.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.api.paths import N_UNCERTAINTY, PathsOfCondition, check_condition, check_rate, is_spectrum
from service.api.request_types import naming
from service.errors import HttpProblem
from synthesis.conventions import N_BINS, SAMPLE_RATE_HZ
from synthesis.types import MAX_CONDITIONS, Float32, Path

MAGIC = b"PRME"
VERSION = 1
IMPULSE_RESPONSES = 1
COHERENCE = 2
CONDITIONS = 4
FEEDBACK = 8
UNCERTAINTY = 16

_HEADER = struct.Struct("<4sHHIIIIH6s")
HEADER_BYTES = _HEADER.size


def decode(body: bytes | bytearray) -> list[PathsOfCondition]:
    """Read a binary body; HttpProblem 400 if it is malformed, 422 if its numbers are unusable. The arrays are views of
    the body, not copies."""
    if len(body) < HEADER_BYTES:
        raise HttpProblem(
            "bad-length",
            f"the body has {len(body)} bytes; the header alone has {HEADER_BYTES}; send the whole body",
        )
    magic, version, flags, n_primary, n_secondary, rate, checksum, n_conditions, reserved = _HEADER.unpack_from(
        body
    )
    if magic != MAGIC:
        raise HttpProblem("bad-magic", f"the body starts with {magic!a}; start it with {MAGIC!a}")
    if version != VERSION:
        raise HttpProblem("bad-version", f"version {version} is not supported; send version {VERSION}")
    is_joint = bool(flags & CONDITIONS)
    known = IMPULSE_RESPONSES | COHERENCE | CONDITIONS | FEEDBACK | UNCERTAINTY
    if flags & ~known or any(reserved) or is_joint != bool(n_conditions):
        raise HttpProblem(
            "bad-flags",
            f"flags {flags:#06x}, {n_conditions} conditions, reserved bytes {reserved.hex()}: set no flag bits "
            "except 0 to 4, and a number of conditions only with bit 2",
        )
    if n_conditions > MAX_CONDITIONS:
        found = f"conditions: {n_conditions} conditions; send 1 to {MAX_CONDITIONS}"
        raise HttpProblem("out-of-range", found, "conditions")
    element = np.dtype("<f4" if flags & IMPULSE_RESPONSES else "<c8")
    n_coherence = 0
    if flags & COHERENCE:
        n_coherence = N_BINS if flags & IMPULSE_RESPONSES else n_primary
    n_feedback = n_secondary if flags & FEEDBACK else 0
    n_uncertainty = N_UNCERTAINTY if flags & UNCERTAINTY else 0
    n_pairs = n_conditions if is_joint else 1
    n_weights = n_pairs if is_joint else 0
    n_elements = n_primary + n_secondary + n_feedback
    n_reals = n_coherence + n_uncertainty
    expected = HEADER_BYTES + 4 * n_weights + n_pairs * (element.itemsize * n_elements + 4 * n_reals)
    if len(body) != expected:
        raise HttpProblem(
            "bad-length",
            f"the body has {len(body)} bytes instead of {expected}: {n_pairs} times {n_primary} + {n_secondary} + "
            f"{n_feedback} elements of {element.itemsize} bytes and {n_reals} of 4, {n_weights} weights and a "
            f"header of {HEADER_BYTES}",
        )
    found_sum = zlib.crc32(memoryview(body)[HEADER_BYTES:])
    if found_sum != checksum:
        raise HttpProblem(
            "bad-checksum",
            f"the payload has the CRC-32 {found_sum:#010x}, but its header has {checksum:#010x}; send it again",
        )
    check_rate(rate)
    place = HEADER_BYTES

    def take(kind: Any, n: int) -> NDArray[Any]:
        nonlocal place
        values = np.frombuffer(body, kind, n, place)
        place += values.nbytes
        return values

    weights = take("<f4", n_weights).tolist() or [1.0]
    conditions = []
    for n, weight in enumerate(weights):
        primary, secondary = take(element, n_primary), take(element, n_secondary)
        coherence = take("<f4", n_coherence) if flags & COHERENCE else None
        feedback = take(element, n_feedback) if flags & FEEDBACK else None
        uncertainty = take("<f4", n_uncertainty) if n_uncertainty else None
        own = PathsOfCondition(primary, secondary, coherence, feedback, weight, uncertainty=uncertainty)
        if is_joint:
            with naming(f"conditions.{n}"):
                check_condition(own)
        else:
            check_condition(own)
        conditions.append(own)
    return conditions


def encode(
    primary: Path,
    secondary: Path,
    coherence: Float32 | None = None,
    sample_rate: int = SAMPLE_RATE_HZ,
    uncertainty: Float32 | None = None,
    feedback: Path | None = None,
) -> bytes:
    """The inverse of `decode` for one condition. All paths have the same type, float32 or complex64."""
    sent = PathsOfCondition(primary, secondary, coherence, feedback, uncertainty=uncertainty)
    return _encoded([sent], sample_rate, 0)


def encode_conditions(conditions: Sequence[PathsOfCondition]) -> bytes:
    """The inverse of `decode` for several conditions. All have the same fields, lengths and types."""
    return _encoded(conditions, SAMPLE_RATE_HZ, len(conditions))


def _encoded(conditions: Sequence[PathsOfCondition], sample_rate: int, n_conditions: int) -> bytes:
    first = conditions[0]
    flags, element = (0, "<c8") if is_spectrum(first.primary) else (IMPULSE_RESPONSES, "<f4")
    flags |= COHERENCE * (first.coherence is not None) | FEEDBACK * (first.feedback is not None)
    flags |= UNCERTAINTY * (first.uncertainty is not None)
    parts = []
    if n_conditions:
        flags |= CONDITIONS
        parts.append(np.array([each.weight for each in conditions], "<f4"))
    for each in conditions:
        parts += [each.primary.astype(element), each.secondary.astype(element)]
        parts += [] if each.coherence is None else [each.coherence.astype("<f4")]
        parts += [] if each.feedback is None else [each.feedback.astype(element)]
        parts += [] if each.uncertainty is None else [each.uncertainty.astype("<f4")]
    payload = b"".join(part.tobytes() for part in parts)
    lengths = len(first.primary), len(first.secondary)
    header = _HEADER.pack(MAGIC, VERSION, flags, *lengths, sample_rate, zlib.crc32(payload), n_conditions, bytes(6))
    return header + payload


def encode_taps(taps: Float32) -> bytes:
    """The binary answer: 2048 little-endian float32."""
    return taps.astype("<f4", copy=False).tobytes()

"""The binary body of a calibration: the layout byte by byte, and each way in which it can be wrong."""

import struct
import zlib

import numpy as np
import pytest

from service.calibration import take_codec
from service.calibration.takes import ProbeTake
from service.errors import HttpProblem

RNG = np.random.default_rng(1)
TAKES = [
    ProbeTake(gain, *(RNG.standard_normal(n).astype(np.float32) for _ in range(2)))
    for gain, n in ((0.0, 3072), (-0.35, 4000))
]
GOOD = take_codec.encode(TAKES)


def with_payload(payload: bytes, n_takes: int = 2) -> bytes:
    """A body of another payload under a CRC that matches it."""
    return struct.pack("<4sHHIII12s", b"PRMT", 1, 0, n_takes, 48_000, zlib.crc32(payload), bytes(12)) + payload


def patched(offset: int, form: str, value: object) -> bytes:
    changed = bytearray(GOOD)
    struct.pack_into(form, changed, offset, value)
    return bytes(changed)


def payload_patched(offset: int, form: str, value: object) -> bytes:
    """With a CRC that matches."""
    return with_payload(patched(offset, form, value)[32:])


def test_layout_byte_by_byte() -> None:
    payload = struct.pack("<dI4sdI4s", 0.0, 3072, bytes(4), -0.35, 4000, bytes(4))
    for take in TAKES:
        payload += struct.pack(f"<{len(take.x)}f", *take.x) + struct.pack(f"<{len(take.e)}f", *take.e)
    assert with_payload(payload) == GOOD
    found = take_codec.decode(GOOD)
    assert [take.gain for take in found] == [0.0, -0.35]
    for take, expected in zip(found, TAKES, strict=True):
        assert np.array_equal(take.x, expected.x)
        assert np.array_equal(take.e, expected.e)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "bad-length"),
        (GOOD[:31], "bad-length"),
        (GOOD[:-1], "bad-length"),
        (GOOD + bytes(4), "bad-length"),
        (GOOD[:40], "bad-length"),
        (patched(0, "4s", b"PRME"), "bad-magic"),
        (patched(4, "<H", 2), "bad-version"),
        (patched(6, "<H", 1), "bad-flags"),
        (patched(20, "12s", b"\1" + bytes(11)), "bad-flags"),
        (patched(8, "<I", 65), "bad-length"),
        (patched(8, "<I", 0xFFFF_FFFF), "bad-length"),
        (patched(32 + 8, "<I", 0xFFFF_FFFF), "bad-length"),
        (patched(200, "<f", 7.0), "bad-checksum"),
        (patched(12, "<I", 44_100), "wrong-rate"),
        (payload_patched(32 + 12, "4s", b"\1\0\0\0"), "bad-flags"),
        (payload_patched(32, "<d", float("nan")), "out-of-range"),
        (payload_patched(32, "<d", float("-inf")), "out-of-range"),
        (payload_patched(32, "<d", 1e9), "out-of-range"),
        (payload_patched(32, "<d", -0.35), "invalid-field"),
        (payload_patched(400, "<f", float("nan")), "invalid-field"),
        (take_codec.encode(TAKES[:1]), "out-of-range"),
        (take_codec.encode([]), "out-of-range"),
        (take_codec.encode([TAKES[0], ProbeTake(1.0, TAKES[0].x[:3071], TAKES[0].e[:3071])]), "out-of-range"),
    ],
)
def test_every_wrong_body_is_refused_by_name(body: bytes, code: str) -> None:
    with pytest.raises(HttpProblem) as caught:
        take_codec.decode(body)
    assert caught.value.code == code


def test_mutated_bodies_are_read_or_refused() -> None:
    rng = np.random.default_rng(2)
    for _ in range(2000):
        body = bytearray(GOOD[: rng.integers(33, 120)] if rng.random() < 0.3 else GOOD)
        for _ in range(rng.integers(1, 4)):
            body[rng.integers(min(len(body), 80))] = rng.integers(256)
        if rng.random() < 0.7:
            struct.pack_into("<I", body, 16, zlib.crc32(bytes(body[32:])))
        try:
            takes = take_codec.decode(bytes(body))
        except HttpProblem:
            continue
        assert all(np.isfinite(take.gain) for take in takes)

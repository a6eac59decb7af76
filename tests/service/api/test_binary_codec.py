"""The binary body: the layout byte by byte, and each way in which it can be wrong."""

import struct
import zlib

import numpy as np
import pytest

from service.api import binary_codec as wire
from service.api.paths import PathsOfCondition
from service.errors import HttpProblem
from synthesis.conventions import N_BINS

PRIMARY = np.arange(1, 6, dtype=np.float32)
SECONDARY = np.array([0.5, -0.25, 1.0], dtype=np.float32)


def patched(body: bytes, offset: int, form: str, value: object) -> bytes:
    """The body with one header field overwritten."""
    changed = bytearray(body)
    struct.pack_into(form, changed, offset, value)
    return bytes(changed)


def with_payload(body: bytes, payload: bytes) -> bytes:
    """The body with another payload under a CRC that matches it."""
    return patched(body[:32], 20, "<I", zlib.crc32(payload)) + payload


def test_layout_byte_by_byte() -> None:
    payload = struct.pack("<5f", 1, 2, 3, 4, 5) + struct.pack("<3f", 0.5, -0.25, 1.0)
    header = b"PRME" + struct.pack("<HHIII", 1, 1, 5, 3, 48_000) + struct.pack("<I", zlib.crc32(payload)) + bytes(8)
    assert wire.encode(PRIMARY, SECONDARY) == header + payload
    (paths,) = wire.decode(header + payload)
    assert paths.primary.tolist() == [1, 2, 3, 4, 5]
    assert paths.secondary.tolist() == [0.5, -0.25, 1.0]
    assert paths.coherence is None


@pytest.mark.parametrize("n_bins", [2049, 4097, 8193, 16_385, 32_769])
def test_spectra_and_coherence_return_as_they_went(n_bins: int) -> None:
    draw = np.random.default_rng(n_bins)
    primary, secondary = (np.fft.rfft(draw.normal(size=2 * (n_bins - 1))).astype(np.complex64) for _ in range(2))
    coherence = draw.uniform(size=n_bins).astype(np.float32)
    (paths,) = wire.decode(wire.encode(primary, secondary, coherence))
    assert np.array_equal(paths.primary, primary)
    assert np.array_equal(paths.secondary, secondary)
    assert paths.coherence is not None
    assert np.array_equal(paths.coherence, coherence)


def test_an_uncertainty_follows_all_else() -> None:
    coherence, uncertainty = np.full(N_BINS, 0.75, np.float32), np.linspace(0, 1, 62, dtype=np.float32)
    for more in (None, coherence):
        (paths,) = wire.decode(wire.encode(PRIMARY, SECONDARY, more, uncertainty=uncertainty))
        assert paths.uncertainty is not None
        assert np.array_equal(paths.uncertainty, uncertainty)
        assert (paths.coherence is None) == (more is None)
    with pytest.raises(HttpProblem, match="is negative"):
        wire.decode(wire.encode(PRIMARY, SECONDARY, uncertainty=-uncertainty))


def test_the_coherence_of_impulse_responses_lies_on_the_design_grid() -> None:
    coherence = np.full(N_BINS, 0.75, np.float32)
    (paths,) = wire.decode(wire.encode(PRIMARY, SECONDARY, coherence))
    assert paths.coherence is not None
    assert np.array_equal(paths.coherence, coherence)


def test_several_conditions_return_as_they_went() -> None:
    sent = [PathsOfCondition(n * PRIMARY, SECONDARY, None, n * SECONDARY, n / 2) for n in (1, 2, 3)]
    body = wire.encode_conditions(sent)
    assert struct.unpack_from("<HHIIIIH", body, 4) == (1, 13, 5, 3, 48_000, zlib.crc32(body[32:]), 3)
    assert struct.unpack_from("<3f5f3f3f", body, 32)[:3] == (0.5, 1.0, 1.5)
    for found, expected in zip(wire.decode(body), sent, strict=True):
        assert found.weight == expected.weight
        for name in ("primary", "secondary", "feedback"):
            np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


GOOD = wire.encode(PRIMARY, SECONDARY)
JOINT = wire.encode_conditions([PathsOfCondition(PRIMARY, SECONDARY)] * 2)
NAN = struct.pack("<8f", *[1.0] * 6, np.nan, 1.0)


@pytest.mark.parametrize(
    ("body", "code", "status"),
    [
        (b"", "bad-length", 400),
        (GOOD[:31], "bad-length", 400),
        (b"prme" + GOOD[4:], "bad-magic", 400),
        (patched(GOOD, 4, "<H", 2), "bad-version", 400),
        (patched(GOOD, 6, "<H", 5), "bad-flags", 400),
        (patched(GOOD, 6, "<H", 33), "bad-flags", 400),
        (patched(GOOD, 27, "<B", 1), "bad-flags", 400),
        (patched(GOOD, 24, "<H", 2), "bad-flags", 400),
        (patched(JOINT, 24, "<H", 0), "bad-flags", 400),
        (patched(JOINT, 24, "<H", 17), "out-of-range", 422),
        (patched(JOINT, 24, "<H", 3), "bad-length", 400),
        (with_payload(JOINT, struct.pack("<f", 0) + JOINT[36:]), "out-of-range", 422),
        (patched(GOOD, 8, "<I", 6), "bad-length", 400),
        (patched(GOOD, 8, "<I", 2**32 - 1), "bad-length", 400),
        (GOOD + b"\0", "bad-length", 400),
        (GOOD[:-1], "bad-length", 400),
        (patched(GOOD, 20, "<I", 1), "bad-checksum", 400),
        (patched(GOOD, 40, "<B", 77), "bad-checksum", 400),
        (patched(GOOD, 16, "<I", 44_100), "wrong-rate", 422),
        (with_payload(GOOD, NAN), "unusable-paths", 422),
        (
            with_payload(GOOD, NAN.replace(struct.pack("<f", np.nan), struct.pack("<f", -np.inf))),
            "unusable-paths",
            422,
        ),
        (wire.encode(PRIMARY, 0 * SECONDARY), "unusable-paths", 422),
        (wire.encode(PRIMARY[:0], SECONDARY), "unusable-paths", 422),
        (wire.encode(np.ones(32_769, np.float32), SECONDARY), "unusable-paths", 422),
        (wire.encode(np.ones(4096, np.complex64), np.ones(4096, np.complex64)), "unusable-paths", 422),
        (wire.encode(np.ones(4097, np.complex64), np.ones(8193, np.complex64)), "unequal-grids", 422),
        (wire.encode(PRIMARY, SECONDARY, np.full(N_BINS, 1.01, np.float32)), "out-of-range", 422),
        (wire.encode(PRIMARY, SECONDARY, np.full(N_BINS, np.nan, np.float32)), "invalid-field", 422),
    ],
)
def test_each_fault_has_its_problem(body: bytes, code: str, status: int) -> None:
    with pytest.raises(HttpProblem) as refused:
        wire.decode(body)
    assert (refused.value.code, refused.value.status) == (code, status)


def test_any_flipped_bit_is_noticed() -> None:
    for bit in range(8 * len(GOOD)):
        body = bytearray(GOOD)
        body[bit // 8] ^= 1 << bit % 8
        with pytest.raises(HttpProblem):
            wire.decode(body)

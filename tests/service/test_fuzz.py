"""Whatever comes in, it is read or refused: nothing else, and never with a NaN."""

import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from service import wire
from service.errors import Problem
from service.schemas import DesignBody, EvaluateBody, read_json

SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NUMBERS = st.lists(st.floats(-1e40, 1e40) | st.integers(-3, 3), max_size=6)
PATHS = st.fixed_dictionaries({"impulse_response": NUMBERS | VALUES}) | st.dictionaries(
    st.sampled_from(["real", "imag", "complex64", "impulse_response", "x"]), VALUES | NUMBERS, max_size=3
)
FIELDS = sorted({*DesignBody.model_fields, *EvaluateBody.model_fields} - {"primary", "secondary"})
BODIES = st.fixed_dictionaries(
    {"primary": PATHS, "secondary": PATHS, "sample_rate": st.just(48_000) | SCALARS},
    optional={name: VALUES | NUMBERS for name in FIELDS if name != "sample_rate"} | {"unheard-of": VALUES},
)


def outcome(read: Callable[[], Any]) -> Any:
    """What was read, or the Problem that refused it; anything else that is raised fails the test."""
    try:
        return read()
    except Problem as problem:
        return problem


def assert_usable(*arrays: Any) -> None:
    for array in arrays:
        if array is not None:
            assert np.isfinite(array).all()


@settings(max_examples=200, deadline=None)
@given(body=BODIES | VALUES, kind=st.sampled_from([DesignBody, EvaluateBody]))
def test_json(body: Any, kind: type[DesignBody] | type[EvaluateBody]) -> None:
    read = outcome(lambda: read_json(kind, orjson.dumps(body)))
    if isinstance(read, Problem):
        assert 400 <= read.status < 500
        assert orjson.loads(read.response().body)["detail"] == read.detail
    else:
        assert_usable(read.primary, read.secondary, read.coherence, read.reference_psd)


@settings(max_examples=200, deadline=None)
@given(
    header=st.tuples(
        st.sampled_from([b"PRME", b"prme"]),
        st.sampled_from([1, 1, 1, 2]),
        st.integers(0, 4),
        st.integers(0, 8) | st.integers(0, 2**32 - 1),
        st.integers(0, 8),
        st.sampled_from([48_000, 48_000, 44_100]),
    ),
    payload=st.binary(max_size=80),
    is_sealed=st.booleans(),
)
def test_binary(header: tuple[Any, ...], payload: bytes, is_sealed: bool) -> None:
    checksum = zlib.crc32(payload) if is_sealed else 7
    body = struct.pack("<4sHHIIII8s", *header, checksum, bytes(8)) + payload
    paths = outcome(lambda: wire.decode(body))
    if isinstance(paths, Problem):
        assert paths.status in (400, 422)
    else:
        assert_usable(*paths)
        assert paths.primary.any()
        assert paths.secondary.any()


@settings(max_examples=200, deadline=None)
@given(
    primary=st.lists(st.floats(width=32), min_size=1, max_size=9),
    cut=st.integers(0, 9),
    flip=st.none() | st.integers(0, 500),
)
def test_binary_of_any_numbers(primary: list[float], cut: int, flip: int | None) -> None:
    """Well-formed bodies of any float32, NaN and infinity among them, shortened or with a bit turned over."""
    body = bytearray(wire.encode(np.array(primary, np.float32), np.ones(3, np.float32)))
    body = body[: len(body) - cut]
    if flip is not None:
        body[flip % len(body)] ^= 1 << flip % 8
    is_good = cut == 0 and flip is None and np.isfinite(np.array(primary, np.float32)).all() and any(primary)
    paths = outcome(lambda: wire.decode(body))
    assert isinstance(paths, wire.Paths) == is_good
    if is_good:
        assert_usable(*paths)

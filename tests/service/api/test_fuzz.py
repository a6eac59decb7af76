"""Any input is read or rejected with a problem, and no NaN passes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from prime_anc_client import wire
from service.api.reading import as_document, parse_tensors, validated
from service.api.request_types import DesignBody, EvaluateBody
from service.errors import HttpProblem
from tests.service.bodies import read_json

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
    """Return the parsed request or the HttpProblem; any other exception fails the test."""
    try:
        return read()
    except HttpProblem as problem:
        return problem


def assert_usable(*arrays: Any) -> None:
    for array in arrays:
        if array is not None:
            assert np.isfinite(array).all()


@settings(max_examples=60, deadline=None)
@given(body=BODIES | VALUES, kind=st.sampled_from([DesignBody, EvaluateBody]))
def test_json(body: Any, kind: type[DesignBody] | type[EvaluateBody]) -> None:
    read = outcome(lambda: read_json(kind, orjson.dumps(body)))
    if isinstance(read, HttpProblem):
        assert 400 <= read.status < 500
        assert orjson.loads(read.response().body)["detail"] == read.detail
    else:
        assert_usable(read.primary, read.secondary, read.coherence, read.reference_psd)


def read_tensors(body: bytes | bytearray) -> DesignBody:
    return validated(DesignBody, as_document(parse_tensors(body), DesignBody))


@settings(max_examples=100, deadline=None)
@given(
    primary=st.lists(st.floats(width=32), min_size=1, max_size=9),
    cut=st.integers(0, 9),
    flip=st.none() | st.integers(0, 3000),
)
def test_binary_of_any_numbers_is_answered(primary: list[float], cut: int, flip: int | None) -> None:
    """Well-formed bodies of any float32, including NaN and infinity, shortened or with a flipped bit."""
    body = bytearray(wire.encode(np.array(primary, np.float32), np.ones(3, np.float32)))
    body = body[: len(body) - cut]
    if flip is not None:
        body[flip % len(body)] ^= 1 << flip % 8
    is_good = cut == 0 and flip is None and np.isfinite(np.array(primary, np.float32)).all() and any(primary)
    found = outcome(lambda: read_tensors(body))
    if isinstance(found, HttpProblem):
        assert found.status in (400, 422)
        assert not is_good
    else:
        assert not cut
        assert_usable(found.primary, found.secondary)

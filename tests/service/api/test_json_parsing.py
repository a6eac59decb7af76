"""Long lists become arrays, and whatever a body holds, what is read of it is small."""

import pickle
import subprocess
import sys
import tracemalloc

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.api.json_parsing import (
    LONG,
    MAX_CONTAINERS,
    MAX_DEPTH,
    MAX_MEMBERS,
    LongList,
    UnreadableJson,
    parse,
    shortened,
)

NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=100, deadline=None)
@given(start=st.lists(NUMBERS, min_size=1, max_size=20))
def test_a_long_list_of_numbers_is_an_array_of_them(start: list[float]) -> None:
    values = (start * LONG)[:LONG]
    # orjson writes no integer beyond 64 bits, and reads them as the float that they are nearest to.
    found = parse(("[[" + ",".join(map(repr, values)) + "]]").encode())
    assert isinstance(found, list)
    assert isinstance(found[0], LongList)
    assert found[0].not_a_number is None
    assert found[0].values is not None
    assert found[0].values.dtype == np.float64
    assert found[0].values.tolist() == [float(each) for each in values]


def test_short_lists_and_text_stay_as_they_are() -> None:
    document = {"a": [1, 2.5, True, None, "x"] * 3, "b": {"c": ["y"]}, "d": "z" * 100_000}
    assert parse(orjson.dumps(document)) == document


@pytest.mark.parametrize("odd", [True, None, "1", [1], {"a": 1}])
def test_what_is_no_number_is_found_by_its_place(odd: object) -> None:
    values = [0.5] * LONG
    values[77:77] = [odd]  # type: ignore[list-item]
    values.append(False)
    found = parse(orjson.dumps({"x": values}))["x"]  # type: ignore[index]
    assert found.not_a_number == (77, repr(odd))
    assert found.values is None
    assert len(found) == LONG + 2


def test_rows_of_numbers_are_an_array_too() -> None:
    rows = np.arange(2.0 * LONG).reshape(-1, 2)
    (found,) = parse(orjson.dumps([rows.tolist()]))  # type: ignore[misc]
    assert np.array_equal(found.values, rows)
    assert found.not_a_number == (0, "[0.0, 1.0]")  # still no list of numbers
    for spoilt in ([1.0], [1.0, 2.0, 3.0], [1.0, True], []):
        (found,) = parse(orjson.dumps([[*rows.tolist(), spoilt]]))  # type: ignore[misc]
        assert found.values is None


def test_a_long_list_is_shown_as_a_list() -> None:
    found = parse(orjson.dumps({"x": list(range(1000))}))
    assert shortened(found) == "{'x': [0, 1, 2, 3, 4, 5, ...]}"


@pytest.mark.parametrize("n", [0, 1, LONG - 1, LONG, LONG + 1])
def test_a_whole_body_may_be_one_list(n: int) -> None:
    assert len(parse(orjson.dumps([1] * n))) == n  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body",
    [
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b'{"a":' * 900 + b"1" + b"}" * 900,
        orjson.dumps({str(number): 0 for number in range(MAX_MEMBERS + 1)}),
        orjson.dumps([[[]] * (LONG - 1)] * (MAX_CONTAINERS // LONG + 2)),
    ],
    ids=["lists", "objects", "members", "containers"],
)
def test_no_body_is_read_into_something_large(body: bytes) -> None:
    with pytest.raises(UnreadableJson) as refused:
        parse(body)
    assert refused.value.code == "invalid-field"


def test_a_long_list_of_anything_is_small() -> None:
    body = orjson.dumps({"x": [{"deep": [["text" * 400] * 20] * 5}] * 300})
    assert len(body) > 10**7
    assert len(pickle.dumps(parse(body))) < 1000


def test_a_refusal_crosses_processes() -> None:
    with pytest.raises(UnreadableJson) as refused:
        parse(b"{")
    copy = pickle.loads(pickle.dumps(refused.value))
    assert (copy.code, copy.detail) == (refused.value.code, refused.value.detail)
    assert copy.code == "malformed-json"


@pytest.mark.parametrize(
    "part",
    [b"{},", b"[],", b'"",', b'"a":1,'],
    ids=["objects", "lists", "texts", "members"],
)
def test_what_would_become_large_is_refused_before_it_is_parsed(part: bytes) -> None:
    """Twelve megabytes of `{},` took 332 MB once they were objects."""
    body = b"[" + part * (12_000_000 // len(part)) + b"1]"
    tracemalloc.start()
    with pytest.raises(UnreadableJson) as refused:
        parse(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused.value.code == "invalid-field"
    assert peak < 1e6


def test_lack_of_memory_is_no_fault_of_the_body() -> None:
    """In a process with no memory left for a parser's buffers."""
    program = """
import resource, sys
from service.api.json_parsing import parse
from service.errors import to_problem
body = b"[" + b"1.5," * 4_000_000 + b"1]"
n_pages = int(open("/proc/self/statm").read().split()[0])
limit = n_pages * resource.getpagesize() + 2**25
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    parse(body)
except MemoryError as error:
    print(to_problem(error).code)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "overloaded", done.stderr

"""Parses JSON with long lists of numbers into NumPy arrays.

Imports little, so that a worker process for it starts quickly and stays small.
"""

from __future__ import annotations

import reprlib
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

LONG = 256
"""Lists with at least this many elements become a LongList. Lists of requests are far shorter, paths far longer."""

MAX_MEMBERS = 256
"""Largest number of members of an object: ten times that of the largest request."""

MAX_CONTAINERS = 4096
"""Objects and short lists in one body: sixteen requests with all fields of a calibration need a few hundred."""

MAX_ROWS = 150_000
"""Opening brackets in one body: MAX_CONTAINERS, and rows of [real, imaginary] for two paths of 32,769 bins."""

MAX_STRINGS = 65_536
"""Strings in one body, names of fields included: one for each container, sixteen times over."""

MAX_NUMBERS = 10_000_000
"""Commas in one body. Sixteen takes of four seconds are 6 million numbers."""

MAX_DEPTH = 16
"""Nesting depth of objects and lists: a request needs four."""


class UnreadableJson(ValueError):
    """A body that is not JSON, or has more elements than any request. code, detail: of the problem document."""

    def __init__(self, code: str, detail: str) -> None:
        """The arguments are passed on unchanged, since the exception is pickled between processes."""
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


class _Shortened(reprlib.Repr):
    """Shortened text of any value; a LongList is shown as the list that it replaces."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2

    def repr_LongList(self, values: LongList, level: int) -> str:
        return values.text


shortened = _Shortened().repr
"""A value of the request as a short text, for messages."""


class LongList:
    """A long JSON list as an array.

    values: float64, [n] for a list of numbers, [n, m] for a list of n lists of m numbers; None otherwise.
    not_a_number: index and text of the first element that is not a number, if any. text: the start of the list, for
    messages.
    """

    def __init__(self, values: list[Any]) -> None:
        """Booleans and strings are not numbers."""
        self.n = len(values)
        self.text = shortened(values)
        self.values: NDArray[np.float64] | None = None
        self.not_a_number: tuple[int, str] | None = None
        if _are_numbers(values):
            self.values = np.array(values, dtype=np.float64)
            return
        index = next(i for i, each in enumerate(values) if type(each) is not float and type(each) is not int)
        self.not_a_number = index, shortened(values[index])
        if set(map(type, values)) == {list} and len(set(map(len, values))) == 1:
            flat = list(chain.from_iterable(values))
            if flat and _are_numbers(flat):
                self.values = np.array(flat, dtype=np.float64).reshape(len(values), -1)

    def __len__(self) -> int:
        return self.n


def _are_numbers(values: list[Any]) -> bool:
    return set(map(type, values)) <= {float, int}


def parse(body: bytes | bytearray | memoryview) -> object:
    """Parse a body, with long lists as LongList; UnreadableJson if that is not possible, MemoryError if memory does
    not suffice.

    Whatever the body, the result is small apart from arrays and text. The memory of parsing itself is bounded by
    counting characters first: the three bytes `{},` become an object of 64 bytes.
    """
    _check_counts(bytes(body) if isinstance(body, memoryview) else body)
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if "Not enough memory" in str(error):
            raise MemoryError from None
        is_number = error.doc.startswith(("NaN", "Infinity"), error.pos)
        remedy = "send finite numbers, no NaN or Infinity" if is_number else "send a JSON object"
        raise UnreadableJson("malformed-json", f"the body is not JSON: {error}; {remedy}") from None
    except SystemError as error:  # there was no memory for what was parsed
        raise MemoryError from error
    root: list[Any] = [document]
    level: list[Any] = [root]
    n_containers, depth = 0, 0
    while level:
        n_containers, depth = n_containers + len(level), depth + 1
        if n_containers > MAX_CONTAINERS or depth > MAX_DEPTH:
            raise UnreadableJson(
                "invalid-field",
                f"the body has more than {MAX_CONTAINERS} objects and lists, or more than {MAX_DEPTH} levels of "
                "nesting; no request needs so many",
            )
        level = [inner for container in level for inner in _shorten(container)]
    return root[0]


def _check_counts(body: bytes | bytearray) -> None:
    """Refuse a body that would become too many objects, by counting a few characters."""
    limits = {b"{": MAX_CONTAINERS, b"[": MAX_ROWS, b'"': 2 * MAX_STRINGS, b",": MAX_NUMBERS}
    for character, limit in limits.items():
        if len(body) > limit and body.count(character) > limit:
            raise UnreadableJson(
                "invalid-field",
                f"the body has more than {limit} of the character {character.decode()}; no request needs so many",
            )


def _shorten(container: Any) -> list[Any]:
    """Replace the long lists in an object or a list; return the other objects and lists in it."""
    if isinstance(container, dict) and len(container) > MAX_MEMBERS:
        raise UnreadableJson(
            "invalid-field", f"an object has {len(container)} members; no request has more than {MAX_MEMBERS}"
        )
    inner = []
    for place, value in container.items() if isinstance(container, dict) else enumerate(container):
        if type(value) is list and len(value) >= LONG:
            container[place] = LongList(value)
        elif type(value) is dict or type(value) is list:
            inner.append(value)
    return inner

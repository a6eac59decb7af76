"""JSON with long lists of numbers, read into NumPy arrays and written from them.

Imports next to nothing, so that a process which does only this starts at once and stays small (`side_lane`).
"""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

LONG = 256
"""Members from which on a list is replaced by a LongList. Lists of requests are far shorter, paths far longer."""

MAX_MEMBERS = 256
"""Members that one object may have: ten times what the largest request has."""

MAX_CONTAINERS = 4096
"""Objects and short lists in one body: sixteen requests with all that a calibration says need a few hundred."""

MAX_DEPTH = 16
"""Objects and lists one inside the other: a request needs four."""


class Unreadable(ValueError):
    """A body that is not JSON, or not of the size of any request: a problem's `code` and `detail`."""

    def __init__(self, code: str, detail: str) -> None:
        """The arguments are kept as they are: the exception crosses processes."""
        super().__init__(code, detail)
        self.code = code
        self.detail = detail


class _Shown(reprlib.Repr):
    """Short texts of anything; a LongList's is that of the list that it was."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 2

    def repr_LongList(self, values: LongList, level: int) -> str:
        return values.text


shown = _Shown().repr
"""A value of the request as a short text, for messages."""


class LongList:
    """What is needed of a long JSON list.

    values: float64, [n] for a list of numbers, [n, m] for a list of n lists of m numbers; None where it is neither.
    strange: place and text of the first element that is not a number, where there is one. text: the list's
    beginning, for messages.
    """

    def __init__(self, values: list[Any]) -> None:
        """Booleans and strings are no numbers."""
        self.n = len(values)
        self.text = shown(values)
        self.values: NDArray[np.float64] | None = None
        self.strange: tuple[int, str] | None = None
        if _are_numbers(values):
            self.values = np.array(values, dtype=np.float64)
            return
        index = next(i for i, each in enumerate(values) if type(each) is not float and type(each) is not int)
        self.strange = index, shown(values[index])
        if set(map(type, values)) == {list} and len(set(map(len, values))) == 1:
            flat = list(chain.from_iterable(values))
            if flat and _are_numbers(flat):
                self.values = np.array(flat, dtype=np.float64).reshape(len(values), -1)

    def __len__(self) -> int:
        return self.n


def _are_numbers(values: list[Any]) -> bool:
    return set(map(type, values)) <= {float, int}


def load(body: bytes | bytearray | memoryview) -> object:
    """Parse a body, its long lists as LongList; Unreadable where that cannot be done.

    However the body is made, what comes back is small but for arrays and text: to hand it on costs little.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Unreadable(
            "malformed-json", f"found {error}; expected JSON (NaN and Infinity are not JSON)"
        ) from None
    root: list[Any] = [document]
    level: list[Any] = [root]
    n_containers, depth = 0, 0
    while level:
        n_containers, depth = n_containers + len(level), depth + 1
        if n_containers > MAX_CONTAINERS or depth > MAX_DEPTH:
            raise Unreadable(
                "invalid-field",
                f"found more than {MAX_CONTAINERS} objects and lists in the body, or more than {MAX_DEPTH} one "
                "inside the other; expected a request",
            )
        level = [inner for container in level for inner in _shorten(container)]
    return root[0]


def _shorten(container: Any) -> list[Any]:
    """Replace the long lists in an object or a list; the other objects and lists in it are returned."""
    if isinstance(container, dict) and len(container) > MAX_MEMBERS:
        detail = f"found an object of {len(container)} members, expected at most {MAX_MEMBERS}"
        raise Unreadable("invalid-field", detail)
    inner = []
    for place, value in container.items() if isinstance(container, dict) else enumerate(container):
        if type(value) is list and len(value) >= LONG:
            container[place] = LongList(value)
        elif type(value) is dict or type(value) is list:
            inner.append(value)
    return inner


def dump(documents: Sequence[object]) -> list[bytes]:
    """JSON of each document, NumPy arrays as lists; float32 is written so that it is read back bit by bit."""
    return [orjson.dumps(each, option=orjson.OPT_SERIALIZE_NUMPY) for each in documents]

"""Lets the caller end long work between its steps.

The caller wraps the work in `interruptible` and says what decides, for example a deadline: this package reads no
clock. Long work calls `check_interruption` between its steps, each of which is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def interruptible(check: Callable[[], None]) -> Iterator[None]:
    """Make work in the block, and in this thread, interruptible.

    Parameters
    ----------
    check
        Raises `Interrupted` if nobody wants the result any more; it is called often, so it must be fast.
    """
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def check_interruption() -> None:
    """Raise `Interrupted` if the caller's check does; do nothing outside `interruptible`."""
    check = _check.get()
    if check is not None:
        check()

"""Lets the caller end long work between its steps.

The caller sets `check`, or wraps the work in `interruptible`, and so says what decides, for example a deadline: this
package reads no clock. Long work calls `check_interruption` between its steps, each of which is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# What decides: it raises `Interrupted` if nobody wants the result any more, and is called often, so it must be fast.
check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def interruptible(decide: Callable[[], None]) -> Iterator[None]:
    """Make work in the block, and in this thread, interruptible.

    Parameters
    ----------
    decide
        As `check`.
    """
    token = check.set(decide)
    try:
        yield
    finally:
        check.reset(token)


def check_interruption() -> None:
    """Raise `Interrupted` if the caller's check does; do nothing outside `interruptible`."""
    decide = check.get()
    if decide is not None:
        decide()

"""Let the caller end long work between its steps.

The caller sets `check`, or wraps the work in `interruptible`, with its criterion, for example a deadline: this package
reads no clock. Long work calls `check_interruption` between its short steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# Raises `Interrupted` if the result is no longer wanted; called often, so it must be fast.
check: ContextVar[Callable[[], None] | None] = ContextVar("check", default=None)


@contextmanager
def interruptible(decide: Callable[[], None]) -> Iterator[None]:
    """Make work in the block, and in this thread, interruptible.

    Parameters
    ----------
    decide
        Function as `check`.
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

"""Errors of a design, and how its caller interrupts it.

The caller sets `interruption_check`, or wraps the work in `interruptible`, with its criterion, for example a deadline:
this package reads no clock. Long work calls `check_interruption` between its short steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Answer = TypeVar("Answer")

# Raises `Interrupted` if the result is no longer wanted; called often, so it must be fast.
interruption_check: ContextVar[Callable[[], None] | None] = ContextVar("interruption_check", default=None)


class SynthesisError(ValueError):
    """A design cannot be made; the message names the quantity, the fault and the remedy."""

    def __init__(self, message: str, field: str | None = None) -> None:
        """Create the error; `field` names the faulty quantity (`primary`, `secondary`, ...), if any."""
        super().__init__(message)
        self.field = field


class InvalidPaths(SynthesisError):
    """Acoustic paths that no filter can be designed for: wrong shape, not finite, all zero, too long."""


class InvalidOption(SynthesisError):
    """An option outside its range: method, profile, number of updates, ceiling, reference spectrum."""


class NonFiniteFilter(SynthesisError):
    """The design ended in a filter with NaN or infinite taps."""


class Interrupted(SynthesisError):
    """The result is no longer wanted: its deadline has passed, or its client has gone."""


class DeviceLost(RuntimeError):
    """The GPU has failed in a way that affects all later calls in this process, which must be restarted."""


def answer_or_raise(answer: Answer | SynthesisError) -> Answer:
    """Return one ear's answer; raise an error in its place."""
    if isinstance(answer, SynthesisError):
        raise answer
    return answer


@contextmanager
def interruptible(decide: Callable[[], None]) -> Iterator[None]:
    """Make work in the block, and in this thread, interruptible.

    Parameters
    ----------
    decide
        Function as `interruption_check`.
    """
    token = interruption_check.set(decide)
    try:
        yield
    finally:
        interruption_check.reset(token)


def check_interruption() -> None:
    """Raise `Interrupted` if the caller's check does; do nothing outside `interruptible`."""
    decide = interruption_check.get()
    if decide is not None:
        decide()

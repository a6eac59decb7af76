"""Errors of a design."""

from typing import TypeVar

Answer = TypeVar("Answer")


class SynthesisError(ValueError):
    """A design cannot be made; the message names the quantity, what is wrong with it and what to do."""

    def __init__(self, message: str, field: str | None = None) -> None:
        """`field` names the offending quantity (`primary`, `secondary`, `coherence`, ...) where there is one."""
        super().__init__(message)
        self.field = field


class InvalidPaths(SynthesisError):
    """Acoustic paths that no filter can be designed for: wrong shape, not finite, all zero, too long."""


class InvalidOption(SynthesisError):
    """An option outside its range: method, profile, number of updates, ceiling, reference spectrum."""


class NonFiniteFilter(SynthesisError):
    """The design ended in a filter with NaN or infinite taps."""


class Interrupted(SynthesisError):
    """Nobody wants the result any more: its deadline has passed, or its client has gone."""


class DeviceLost(RuntimeError):
    """The GPU has failed in a way that spoils every later call in this process: it must be restarted."""


def answer_or_raise(answer: Answer | SynthesisError) -> Answer:
    """One ear's answer of a backend; raises the error that stands in its place."""
    if isinstance(answer, SynthesisError):
        raise answer
    return answer

"""What can be wrong with a design. None of these knows about files or HTTP."""


class SynthesisError(ValueError):
    """A design cannot be made; the message names the quantity, what was found and what was expected."""

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

"""Values over frequency, as an option of a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.errors import InvalidOption

MAX_POINTS = 1024


@dataclass(frozen=True)
class Curve:
    """Values over frequency: linear in log frequency between its points, held beyond its ends.

    A subclass is the curve of one option; its second field are the values.
    """

    # Name of the option, name and unit of the values.
    OPTION: ClassVar[str]
    VALUES: ClassVar[str]
    UNIT: ClassVar[str]

    # Above 0, rising.
    frequency_hz: Sequence[float]

    def __post_init__(self) -> None:
        """Make the points immutable; raise InvalidOption for an invalid curve."""
        for name in ("frequency_hz", self.VALUES):
            object.__setattr__(self, name, tuple(np.atleast_1d(np.asarray(getattr(self, name), float)).tolist()))
        f, g = np.asarray(self.frequency_hz, float), self.points
        if f.ndim != 1 or g.ndim != 1 or not 1 <= len(f) <= MAX_POINTS or len(f) != len(g):
            raise self.invalid(
                f"a curve of {f.size} frequencies and {g.size} values; send 1 to {MAX_POINTS} of each, as many "
                "values as frequencies"
            )
        if not (np.isfinite(f).all() and np.isfinite(g).all()):
            raise self.invalid("a number of the curve is NaN or infinite; send finite numbers")
        if not (f[0] > 0 and (np.diff(f) > 0).all()):
            raise self.invalid("the curve's frequencies must be above 0 Hz and rise; sort them and send each once")

    @property
    def points(self) -> NDArray[np.float64]:
        """Return the values at its points."""
        return np.asarray(getattr(self, self.VALUES), float)

    def at(self, frequency_hz: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the values at frequencies: same shape. 0 Hz counts as the first point."""
        points_hz = np.asarray(self.frequency_hz, float)
        found: NDArray[np.float64] = np.interp(
            np.log(np.maximum(frequency_hz, points_hz[0])), np.log(points_hz), self.points
        )
        return found

    def document(self) -> dict[str, list[float]]:
        """Return the points by the names of a request's fields."""
        return {name: list(getattr(self, name)) for name in ("frequency_hz", self.VALUES)}

    @classmethod
    def column(cls) -> str:
        """Return the values' name and unit, as of a table's column."""
        return f"{cls.VALUES.removesuffix('_db')} in {cls.UNIT}" if cls.UNIT else cls.VALUES

    @classmethod
    def invalid(cls, found: str) -> InvalidOption:
        """Return the error of an invalid curve."""
        return InvalidOption(f"{cls.OPTION}: {found}", cls.OPTION)

"""A maker's target curve: which bands count how much in the objective J."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.bands import NR_BANDS, WIDE_BANDS, centre_hz, columns
from prime_anc.method.curve import Curve


@dataclass(frozen=True)
class BandWeights(Curve):
    """Weights of bands in J's mean, taken at the bands' exact centres."""

    OPTION: ClassVar[str] = "band_weights"
    VALUES: ClassVar[str] = "weight"
    UNIT: ClassVar[str] = ""

    # Not negative.
    weight: Sequence[float]

    def __post_init__(self) -> None:
        """Raise InvalidOption for an invalid curve, also one by which no band counts."""
        super().__post_init__()
        if self.points.min() < 0:
            raise self.invalid("a weight is negative; send 0 for a band that does not count")
        if not self._in_mean().any():
            raise self.invalid("it is 0 in all bands from 50 Hz to 5 kHz; send a weight above 0 in one of them")

    def relative(self) -> tuple[float, ...] | None:
        """Return the weights of the 31 bands over their mean in those of J's mean, 0 in others; None: all alike."""
        weights = self._in_mean()
        if (weights == weights[0]).all():
            return None
        relative = np.zeros(len(WIDE_BANDS))
        relative[columns(NR_BANDS)] = weights / weights.mean()
        return tuple(relative.tolist())

    def _in_mean(self) -> NDArray[np.float64]:
        return self.at(np.array([centre_hz(n) for n in NR_BANDS]))

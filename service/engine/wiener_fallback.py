"""Replaces a poor filter of the generator by a Wiener filter.

A filter is replaced if it is not finite, or if its predicted noise reduction is lower by more than a margin than
that of `wmmse`, with as many updates or without any. What the model supposes to be unknown of paths would hide the
difference: it is left out, and what the request says is unknown counts. There is no cheaper test: over 24 probes
and 30 measured ears, the gain of the first update misses a third of the cases if it selects half of the ears for
comparison. A filter that was designed again under the request's ceiling is not compared, since every start leads to
the same one.

A latency of the signal chain, which no generator was trained with, adds the updated `fir_wiener`, and a cost of
what becomes louder: bands for which it leaves no time become up to 36 dB louder by `wmmse`, whose noise reduction
counts other bands (`studies/wearing`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from service.engine.types import Replaced
from synthesis.errors import NonFiniteFilter, SynthesisError
from synthesis.octave_bands import AMP_BANDS, columns
from synthesis.types import UPDATES_BRING_DB, WMMSE_TOLERANCE_DB, Design, Problem

ALLOWED_LOUDER_DB = 3.0
"""By which a Wiener filter's loudest band may exceed the generator's at no cost."""
LOUDER_COSTS_DB = 0.3
"""Of noise reduction, for each dB beyond."""

REASONS: tuple[Replaced, ...] = ("not_finite", "predicted_worse")


@dataclass(frozen=True)
class WienerFallback:
    """When to compare, and when to replace.

    below_db: noise reduction below which the generator's filter is compared; infinite: always. margin_db: how much
    better a Wiener filter must be.
    """

    below_db: float = math.inf
    margin_db: float = 0.5

    def is_doubtful(self, own: Design | SynthesisError) -> bool:
        """Whether to design the Wiener filter too, and compare. Not if its prediction, if a backend gives one,
        leaves no doubt; nor for unusable paths, which have no filter."""
        if isinstance(own, SynthesisError):
            return isinstance(own, NonFiniteFilter)
        own_db = own.prediction.nominal_noise_reduction_db
        if own.ceiling_cost_db is not None or own_db >= self.below_db:
            return False
        if own.wmmse is None:
            return True
        return own.wmmse.nominal_noise_reduction_db - own_db > self.margin_db - WMMSE_TOLERANCE_DB

    def reason_to_replace(self, ear: Problem, own: Design | SynthesisError, wiener: Design) -> Replaced | None:
        """Why the Wiener filter is the better answer, if it is."""
        if isinstance(own, SynthesisError):
            return "not_finite"
        gain_db = merit_db(ear, wiener, own) - own.prediction.nominal_noise_reduction_db
        return "predicted_worse" if gain_db > self.margin_db else None


def rivals(n_updates: int) -> Iterator[tuple[str, int]]:
    """Method and updates of the Wiener filters, in the order in which they are designed."""
    yield "wmmse", 0
    if n_updates:
        yield "wmmse", n_updates
        yield "fir_wiener", n_updates


def is_worth_designing(
    method: str, n_updates: int, ear: Problem, own: Design | SynthesisError, best: Design | None
) -> bool:
    """Whether to design one of `rivals` too. best: the best before it, if there is any."""
    if method == "fir_wiener":
        return ear.latency_samples > 0
    if not n_updates or best is None or isinstance(own, SynthesisError):
        return True
    behind_db = own.prediction.nominal_noise_reduction_db - best.prediction.nominal_noise_reduction_db
    return behind_db < UPDATES_BRING_DB


def merit_db(ear: Problem, design: Design, own: Design | SynthesisError) -> float:
    """Predicted noise reduction, without what the model supposes to be unknown; with a latency, less the cost of a
    loudest band, from 50 Hz to 8 kHz, that is louder than that of the generator's filter `own`."""
    mean_db = design.prediction.nominal_noise_reduction_db
    if not ear.latency_samples or isinstance(own, SynthesisError):
        return mean_db
    beyond_db = _loudest_db(design) - max(_loudest_db(own), 0.0) - ALLOWED_LOUDER_DB
    return mean_db - LOUDER_COSTS_DB * max(beyond_db, 0.0)


def _loudest_db(design: Design) -> float:
    return -float(design.prediction.band_reduction_db[columns(AMP_BANDS)].min())

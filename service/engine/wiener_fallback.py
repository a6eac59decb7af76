"""Replaces a poor filter of the generator by the Wiener filter.

A filter is replaced if it is not finite, or if its predicted noise reduction is lower by more than a margin than
that of `wmmse`, with as many updates or without any. There is no cheaper test: over 24 probes and 30 measured ears,
the gain of the first update misses a third of the cases if it selects half of the ears for comparison. A filter
that was designed again under the request's ceiling is not compared, since every start leads to the same one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from service.engine.types import Replaced
from synthesis.backends.base import UPDATES_BRING_DB, WMMSE_TOLERANCE_DB, Design
from synthesis.errors import NonFiniteFilter, SynthesisError

FALLBACK_METHOD = "wmmse"

REASONS: tuple[Replaced, ...] = ("not_finite", "predicted_worse")


@dataclass(frozen=True)
class WienerFallback:
    """When to compare, and when to replace.

    below_db: predicted mean noise reduction below which the generator's filter is compared; infinite: always.
    margin_db: how much better a Wiener filter must be predicted.
    """

    below_db: float = math.inf
    margin_db: float = 0.5

    def is_doubtful(self, own: Design | SynthesisError) -> bool:
        """Whether to design the Wiener filter too, and compare. Not if its prediction, if a backend gives one,
        leaves no doubt; nor for unusable paths, which have no filter."""
        if isinstance(own, SynthesisError):
            return isinstance(own, NonFiniteFilter)
        own_db = own.prediction.mean_noise_reduction_db
        if own.ceiling_cost_db is not None or own_db >= self.below_db:
            return False
        if own.wmmse is None:
            return True
        return own.wmmse.mean_noise_reduction_db - own_db > self.margin_db - WMMSE_TOLERANCE_DB

    def reason_to_replace(self, own: Design | SynthesisError, wiener: Design) -> Replaced | None:
        """Why the Wiener filter is the better answer, if it is."""
        if isinstance(own, SynthesisError):
            return "not_finite"
        gain_db = wiener.prediction.mean_noise_reduction_db - own.prediction.mean_noise_reduction_db
        return "predicted_worse" if gain_db > self.margin_db else None


def is_worth_updates(own: Design | SynthesisError, rival: Design | SynthesisError | None) -> bool:
    """Whether to design the Wiener filter with updates too. rival: the one without; None: not yet designed."""
    if isinstance(own, SynthesisError) or rival is None or isinstance(rival, SynthesisError):
        return True
    behind_db = own.prediction.mean_noise_reduction_db - rival.prediction.mean_noise_reduction_db
    return behind_db < UPDATES_BRING_DB


def better(first: Design | SynthesisError, second: Design | SynthesisError | None) -> Design | SynthesisError:
    """The one with more predicted noise reduction; the first one if they are equal or both are errors."""
    if second is None or isinstance(second, SynthesisError):
        return first
    if isinstance(first, SynthesisError):
        return second
    is_better = second.prediction.mean_noise_reduction_db > first.prediction.mean_noise_reduction_db
    return second if is_better else first

"""A net under the generator: where its filter fails, the answer is the Wiener filter for the same estimates.

A filter that is not finite fails, and so does one whose predicted noise reduction lies more than a margin below
that of `wmmse` with as many updates. To know the latter takes a second design, 8 ms on a CPU core, so it is only
made for filters that are predicted to do little: on 30 measured ears the default generator's are predicted to take
away 16.4 to 30.4 dB (k = 0, 1, 3; with a coherence and without), at most 2.1 dB less than `wmmse`, and ordinary
requests never pay. A generator that is worse than `wmmse` and still takes away more than that limit goes unnoticed
here, unless the operator has all filters compared; the drift of the predicted noise reduction shows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from service.designs import Design
from service.settings import NET_BELOW_DB, NET_MARGIN_DB
from synthesis.errors import NonFiniteFilter, SynthesisError

RIVAL = "wmmse"

GAIN_MARGIN_DB = 1.0
"""The ceiling is soft: so far above it, a filter still keeps it."""

NOT_FINITE = "not_finite"
PREDICTED_WORSE = "predicted_worse"
REASONS = (NOT_FINITE, PREDICTED_WORSE)


@dataclass(frozen=True)
class Net:
    """below_db: predicted mean noise reduction below which the generator's filter is compared; infinite: always.
    margin_db: by so much the rival must be predicted better."""

    below_db: float = NET_BELOW_DB
    margin_db: float = NET_MARGIN_DB

    def is_doubtful(self, answer: Design | SynthesisError) -> bool:
        """Whether the generator's answer needs a rival. Unusable paths do not: they have no filter at all."""
        if isinstance(answer, Design):
            return float(answer.figures.mean_noise_reduction_db) < self.below_db
        return isinstance(answer, NonFiniteFilter)

    def better(
        self, own: Design | SynthesisError, rival: Design | SynthesisError, max_gain_db: float
    ) -> Design | SynthesisError:
        """The answer to give: `own`, unless it fails beside the rival. max_gain_db: the ceiling that was asked for;
        a filter that keeps it is worth more than one that does not, however much that one takes away."""
        if not isinstance(rival, Design):
            return own
        if not isinstance(own, Design):
            return replace(rival, replaces=NOT_FINITE)
        own_is_low, rival_is_low = (
            each.figures.max_gain_db <= max_gain_db + GAIN_MARGIN_DB for each in (own, rival)
        )
        if own_is_low and not rival_is_low:
            return own
        gain_db = float(rival.figures.mean_noise_reduction_db) - float(own.figures.mean_noise_reduction_db)
        return replace(rival, replaces=PREDICTED_WORSE) if gain_db > self.margin_db else own


USUAL = Net()

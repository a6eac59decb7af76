"""Candidates for one answer: the generator's filter and Wiener filters, and the best of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from prime_anc.method.bands import AMP_BANDS, columns
from prime_anc.method.errors import Interrupted, SynthesisError
from prime_anc.method.types import (
    UPDATES_BRING_DB,
    Design,
    DesignOptions,
    Fallback,
    Problem,
    Replaced,
)

# With a latency, `wmmse` amplifies bands without enough time by up to 13 dB (`studies/wearing`). A Wiener filter's
# loudest band may exceed the generator's by the first; a dB beyond costs the second in noise reduction.
ALLOWED_LOUDER_DB = 3.0
LOUDER_COSTS_DB = 0.3

Redesign = Callable[[list[Problem], DesignOptions], "list[Design | SynthesisError]"]
Merit = Callable[[Problem, Design], float]


@dataclass(eq=False)
class Contest:
    """The candidates for one problem."""

    problem: Problem
    generated: Design | SynthesisError
    # Whether the problem has weights of its own in J, which then compares the candidates.
    is_weighted: bool
    # Whether to design Wiener filters too, and compare.
    is_doubtful: bool
    # Wiener filters, in the order in which they were designed.
    rivals: list[Design] = field(default_factory=list)

    def may_be_won_by(self, method: str, n_updates: int) -> bool:
        """Return whether another Wiener filter may be the best."""
        if (
            not self.is_weighted
            and isinstance(self.generated, Design)
            and self.generated.ceiling_cost_db is not None
        ):
            return not n_updates  # below a ceiling, updates have little left to gain, and the search takes long
        if method == "fir_wiener":
            return self.problem.latency_samples > 0
        if self.problem.controller is not None and self.problem.latency_samples > 0:
            # In this loop, WMMSE is loud, and its updates reach what those of `fir_wiener` do in twice the time.
            return isinstance(self.generated, SynthesisError)
        if not n_updates or not self.rivals or isinstance(self.generated, SynthesisError) or self.is_weighted:
            return True
        reached_db = self.rivals[-1].prediction.mean_noise_reduction_db
        if self.generated.wmmse is not None:
            reached_db = max(reached_db, self.generated.wmmse.noise_reduction_db)
        return self.generated.prediction.mean_noise_reduction_db - reached_db < UPDATES_BRING_DB[n_updates]

    def best(self, margin_db: float, n_updates: int, merit: Merit) -> Design | SynthesisError:
        """Return the best candidate; margin_db favours the generator's filter."""
        if not self.rivals:
            return self.generated
        candidates = [*([self.generated] if isinstance(self.generated, Design) else []), *self.rivals]
        if self.is_weighted:
            return max(candidates, key=partial(merit, self.problem))
        return max(candidates, key=partial(merit_db, self.problem, self.generated, margin_db, n_updates))


def replace_doubtful(
    contests: Sequence[Contest], options: DesignOptions, fallback: Fallback, merit: Merit, redesign: Redesign
) -> list[Design | SynthesisError]:
    """Replace generator's filters that are not finite, or predicted to be clearly worse than a Wiener filter.

    There is no cheaper test: over 24 probes and 30 measured ears, the gain of the first update misses a third of the
    cases if it selects half of the ears for comparison.

    Parameters
    ----------
    contests
        Problems with the generator's filters.
    options
        What they were designed for.
    fallback
        When to compare, and the least advantage of a Wiener filter.
    merit
        Compares the candidates for a problem with weights in J: the largest is the best.
    redesign
        Designs filters for some of the problems with other options.

    Returns
    -------
    list[Design | SynthesisError]
        The best of all problems, with the times of all designs, and the cost of the ceiling that a Wiener filter above
        it shows.
    """
    doubtful = [contest for contest in contests if contest.is_doubtful]
    times_ms = _times_ms([contest.generated for contest in contests])
    contenders = [("wmmse", 0)]
    if options.n_updates:
        contenders += [("wmmse", options.n_updates), ("fir_wiener", options.n_updates)]
    for method, n_updates in contenders:
        undecided = [contest for contest in doubtful if contest.may_be_won_by(method, n_updates)]
        if not undecided:
            continue
        made = redesign(
            [contest.problem for contest in undecided], replace(options, method=method, n_updates=n_updates)
        )
        for contest, rival in zip(undecided, made, strict=True):
            if isinstance(rival, Interrupted):
                raise rival
            if isinstance(rival, Design):
                contest.rivals.append(rival)
        for stage, spent_ms in _times_ms(made).items():
            times_ms[stage] = times_ms.get(stage, 0.0) + spent_ms
    found: list[Design | SynthesisError] = []
    for contest in contests:
        best = contest.best(fallback.margin_db, options.n_updates, merit)
        if not isinstance(best, Design):
            found.append(best)
            continue
        if best is not contest.generated:
            reason: Replaced = "predicted_worse" if isinstance(contest.generated, Design) else "not_finite"
            best = replace(best, n_requested=options.n_updates, replaced_because=reason)
        best.times_ms.update(times_ms)
        above_db = partial(_above_ceiling_db, options.n_updates)
        cost_db = max(map(above_db, (contest.generated, *contest.rivals))) - best.prediction.compared_db(
            options.n_updates
        )
        # With weights in J, a Wiener filter's higher mean need not come of its gain.
        if not contest.is_weighted and cost_db > (best.ceiling_cost_db or 0.0):
            best = replace(best, ceiling_cost_db=cost_db)
        found.append(best)
    return found


def merit_db(
    problem: Problem, generated: Design | SynthesisError, margin_db: float, n_updates: int, made: Design
) -> float:
    """Compute the noise reduction by which the candidates for n_updates are compared.

    The generator's filter has the margin in its favour; with a latency or a controller, the others bear the cost of a
    louder loudest band.
    """
    mean_db = made.prediction.compared_db(n_updates)
    if made is generated:
        return mean_db + margin_db
    is_guarded = problem.latency_samples or problem.controller is not None
    if not is_guarded or isinstance(generated, SynthesisError):
        return mean_db
    beyond_db = _loudest_db(made) - max(_loudest_db(generated), 0.0) - ALLOWED_LOUDER_DB
    return mean_db - LOUDER_COSTS_DB * max(beyond_db, 0.0)


def _above_ceiling_db(n_updates: int, made: Design | SynthesisError) -> float:
    """Return the noise reduction that is predicted for a Wiener filter, if it exceeds the ceiling."""
    if not isinstance(made, Design):
        return -math.inf
    if made.method == "wmmse":
        return made.prediction.compared_db(n_updates) + (made.ceiling_cost_db or 0.0)
    beyond = made.wmmse_above_ceiling
    return -math.inf if beyond is None else beyond.noise_reduction_db


def _loudest_db(made: Design) -> float:
    return -float(made.prediction.band_reduction_db[columns(AMP_BANDS)].min())


def _times_ms(designs: Sequence[Design | SynthesisError]) -> dict[str, float]:
    """Return the times of a batch, which are those of any of its designs."""
    return next((dict(item.times_ms) for item in designs if isinstance(item, Design)), {})

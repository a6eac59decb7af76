"""Check periodically whether this replica is ready for requests.

A replica is ready if its default model is resident and reproduces its golden case within a time limit, and if it is not
shutting down. If the golden case is wrong even after the backend was rebuilt, designs are refused with 503, and the
process is not live. If it is only slow, designs continue; the load balancer then prefers other replicas.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Literal

from service.errors import HttpProblem
from service.models.resident_model import ResidentModel
from service.models.resident_models import ResidentModels

logger = logging.getLogger(__name__)

Verdict = Literal["passed", "slow", "failed", "stalled"]

# A check counts as slow if all tries are slow, so that a short disturbance does not matter.
N_TRIES = 3

# A design that takes longer (s) means a hanging worker.
STALLED_AFTER_S = 30.0


class Readiness:
    """Checks the resident models through the job queue, ahead of waiting jobs."""

    def __init__(
        self,
        models: ResidentModels,
        check: Callable[[ResidentModel], Awaitable[float]],
        *,
        budget_s: float,
        every_s: float,
    ) -> None:
        """Set up the checks.

        Parameters
        ----------
        check
            Has a worker check a model; returns the time (s) of its golden design.
        budget_s
            Time limit of the golden design.
        every_s
            Interval between checks.
        """
        self._models = models
        self._check_model = check
        self.budget_s = budget_s
        self._every_s = every_s
        self._n_rounds = 0
        # Result of the last check of the default model.
        self.verdict: Verdict = "passed"
        # Time (s) of its golden design.
        self.golden_s = 0.0
        self.n_checks: Counter[str] = Counter(passed=0, slow=0, failed=0, stalled=0)
        # Whether the service is shutting down.
        self.draining = False

    async def watch(self) -> None:
        """Check periodically, until cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.check()

    async def check(self) -> Verdict:
        """Check the default model and, in turn, one of the others, which is unloaded if it is wrong."""
        default = self._models.default
        if default is None:
            return self.verdict
        verdict, spent_s = await self._judge(default)
        if default is self._models.default:  # it may have been replaced meanwhile
            self._conclude(verdict, spent_s)
        others = [model for model in self._models.models() if model is not default]
        if others:
            self._n_rounds += 1
            other = others[self._n_rounds % len(others)]
            if (await self._judge(other))[0] == "failed":
                self._models.drop(other)
        return verdict

    def _conclude(self, verdict: Verdict, spent_s: float) -> None:
        if verdict != self.verdict:
            logger.log(
                logging.INFO if verdict == "passed" else logging.ERROR,
                "Golden design: %s (%.1f ms, budget %.1f ms), before: %s",
                verdict,
                1e3 * spent_s,
                1e3 * self.budget_s,
                self.verdict,
            )
        self.verdict, self.golden_s = verdict, spent_s
        self.n_checks[verdict] += 1

    async def _judge(self, model: ResidentModel) -> tuple[Verdict, float]:
        """Check a model up to N_TRIES times, between other jobs; the fastest try counts."""
        fastest_s = float("inf")
        for _ in range(N_TRIES):
            try:
                async with asyncio.timeout(STALLED_AFTER_S):
                    fastest_s = min(fastest_s, await self._check_model(model))
            except TimeoutError:
                return "stalled", STALLED_AFTER_S
            except HttpProblem:  # the queue is closed or memory is full: no new information
                return self.verdict, self.golden_s
            except Exception:
                logger.exception("Model %s no longer reproduces its golden case", model.version)
                return "failed", 0.0
            if fastest_s <= self.budget_s:
                return "passed", fastest_s
        return "slow", fastest_s

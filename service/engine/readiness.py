"""Whether this replica should be sent requests: checked again and again, not believed from the start for good.

A replica is ready when its default model is resident and still designs its golden case, within a budget of time,
and when it is not about to stop. A wrong golden case stops designs too: who asks gets 503 and not a wrong filter.
A slow one does not: it only tells the balancer to ask elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Literal

from service.engine.model import Model
from service.engine.residency import Residency
from service.errors import Problem

logger = logging.getLogger(__name__)

Verdict = Literal["passed", "slow", "failed", "stalled"]

N_TRIES = 3
"""A check is slow when every try is: a moment in which the machine did something else is no fault of ours."""

STALLED_AFTER_S = 30.0
"""A worker that has not done one golden design by then hangs. However much waits, the most that comes before is the
batch that it is at and the next one: the worker takes a check in between."""


class Readiness:
    """Checks the resident models in the designs' own thread, whatever else is asked of it: under a load that never
    ends there would be no other moment, and a check costs a few designs in `every_s`."""

    def __init__(
        self,
        residency: Residency,
        worker: Executor,
        *,
        budget_s: float,
        every_s: float,
        on_stall: Callable[[], object] = lambda: None,
    ) -> None:
        """budget_s: what the golden design with one update may take. every_s: from one check to the next.
        on_stall: called where the worker hangs."""
        self._residency = residency
        self._worker = worker
        self.budget_s = budget_s
        self._every_s = every_s
        self._on_stall = on_stall
        self._n_rounds = 0
        self.verdict: Verdict = "passed"
        """Of the last check of the default model that was made."""
        self.golden_s = 0.0
        """What its golden design took."""
        self.n_checks: Counter[str] = Counter(passed=0, slow=0, failed=0, stalled=0)
        self.draining = False
        """Whether the service is about to stop."""
        self.n_replaced = 0
        """How often what designs has been replaced."""
        self._n_checked = 0

    @property
    def in_doubt(self) -> bool:
        """Whether what designs has been replaced since the last check began: who is sent here now waits for it."""
        return self.n_replaced > self._n_checked

    @property
    def ready(self) -> bool:
        """Whether `require` raises nothing."""
        try:
            self.require()
        except Problem:
            return False
        return True

    def require(self) -> None:
        """Raise Problem (`not-ready`, `model-unavailable`) unless requests should be sent here."""
        if self.draining:
            raise Problem("not-ready", "found the service about to stop, expected it to stay")
        self.require_sound()
        if self.in_doubt:
            raise Problem("not-ready", "found what designs replaced and not checked yet, expected it checked")
        if self.verdict == "slow":
            found = f"a golden design of {1e3 * self.golden_s:.0f} ms"
            raise Problem("not-ready", f"found {found}, expected at most {1e3 * self.budget_s:.0f} ms")
        if self.verdict == "stalled":
            raise Problem("not-ready", f"found no golden design made in {STALLED_AFTER_S:.0f} s, expected one")

    def require_sound(self) -> None:
        """Raise Problem unless what is designed now would be right: `not-ready` while the default model loads or
        where it no longer designs its golden case, `model-unavailable` where loading it has failed for good."""
        if self._residency.default_failed:
            raise Problem(
                "model-unavailable", "found a default model that cannot be used; the service's log says why"
            )
        if self._residency.default is None:
            raise Problem("not-ready", "found the default model not loaded yet, expected it loaded and checked")
        if self.verdict == "failed":
            raise Problem("not-ready", "found a default model that no longer designs its golden case as it did")

    def drain(self) -> None:
        """The service is told to stop: not ready from now on, while it goes on designing."""
        self.draining = True

    async def watch(self) -> None:
        """Check now and then, until cancelled."""
        while True:
            await asyncio.sleep(self._every_s)
            await self.check()

    async def check(self) -> Verdict:
        """Check the default model, and one of the others in turn, which is retired if it is wrong."""
        default = self._residency.default
        if default is None:
            return self.verdict
        n_replaced = self.n_replaced
        verdict, spent_s = await self._ask(default)
        if default is self._residency.default:  # it may have been replaced meanwhile
            self._conclude(verdict, spent_s)
            self._n_checked = n_replaced
        others = [model for model in self._residency.models() if model is not default]
        if others:
            self._n_rounds += 1
            other = others[self._n_rounds % len(others)]
            if (await self._ask(other))[0] == "failed":
                self._residency.drop(other)
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

    async def _ask(self, model: Model) -> tuple[Verdict, float]:
        """The best of a few tries, between which the worker does what else is there."""
        fastest_s = float("inf")
        for _ in range(N_TRIES):
            spent_s = await self._tried(model)
            if spent_s is None:
                return "failed", 0.0
            fastest_s = min(fastest_s, spent_s)
            if fastest_s <= self.budget_s:
                return "passed", fastest_s
        return "slow", fastest_s

    async def _tried(self, model: Model) -> float | None:
        """Have the worker try; while it does not come to it in time it is stalled."""
        asked = asyncio.get_running_loop().run_in_executor(self._worker, _try, model)
        done, _ = await asyncio.wait([asked], timeout=STALLED_AFTER_S)
        if not done:
            self._conclude("stalled", STALLED_AFTER_S)
            self._on_stall()
        return await asked


def _try(model: Model) -> float | None:
    """In the worker: design the golden case. Returns the seconds that this took, None where it comes out wrong."""
    try:
        return model.check()
    except Exception:
        logger.exception("Model %s no longer designs its golden case", model.version)
        return None

"""Offer three times the load that the service can handle.

    python -m benchmarks.reliability.overload --seconds 600

Measures one client alone, then the capacity (many clients), then offers three times the capacity with a deadline of
twice the unloaded p99, then measures one client alone again two seconds later. What must hold: only 200 and 503,
each 503 with Retry-After and within 5 ms, p99 of accepted requests within twice the unloaded one, and unloaded
times afterwards. With fewer than four cores the service's own times are judged, because the clients share its
cores; runs of less than a minute do not judge times.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.reliability.command import Outcome, log, run_command
from benchmarks.reliability.service_process import Target, target_for
from benchmarks.reliability.traffic import (
    CLIENT_NICENESS,
    PATIENT,
    Tally,
    closed_loop,
    design_request,
    judged_by,
    open_loop,
)
from model_store.store import ModelStore

OVERLOAD = 3.0
DEADLINE_OVER_P99 = 2.0
RECOVERS_WITHIN_S = 2.0
RECOVERED_OVER_UNLOADED = 1.5
"""Allowed ratio of p99 after to before; 500 requests scatter that much."""
SHED_WITHIN_MS = 5.0
JUDGED_FROM_S = 60.0
N_MANY = 16


@dataclass
class Overload(Outcome):
    """Times in ms, p50 and p99, as seen by the client and by the server."""

    unloaded: dict[str, Any] = field(default_factory=dict)
    capacity_per_s: float = 0.0
    deadline_ms: float = 0.0
    accepted: dict[str, Any] = field(default_factory=dict)
    shed: dict[str, Any] = field(default_factory=dict)
    applied: dict[int, int] = field(default_factory=dict)
    statuses: dict[int, int] = field(default_factory=dict)
    recovered: dict[str, Any] = field(default_factory=dict)

    def judge(self) -> None:
        """Add to the mistakes what took too long."""
        who = judged_by()
        unloaded_ms = self.unloaded[who]["p99"]
        for what, found_ms, allowed_ms in (
            ("accepted", self.accepted[who]["p99"], DEADLINE_OVER_P99 * unloaded_ms),
            ("shed", self.shed[who]["p99"], SHED_WITHIN_MS),
            ("recovered", self.recovered[who]["p99"], RECOVERED_OVER_UNLOADED * unloaded_ms),
        ):
            if found_ms > allowed_ms:
                self.mistakes[f"{what}: p99 is {found_ms:.1f} ms, at most {allowed_ms:.1f} ms is allowed"] += 1


async def run(target: Target, for_s: float, n_alone: int, outcome: Overload) -> None:
    """Overload a service for so many seconds. n_alone: requests of one client, before and after."""
    port, golden = target.service.port, target.checkpoint.golden

    def add(tally: Tally) -> Tally:
        outcome.mistakes += tally.mistakes
        return tally

    plain = design_request(golden, "/refine?k=1", PATIENT)
    await closed_loop(port, plain, 20)
    outcome.unloaded = add(await closed_loop(port, plain, n_alone)).accepted()
    began = time.perf_counter()
    add(await closed_loop(port, plain, 4 * n_alone, N_MANY))
    outcome.capacity_per_s = 4 * n_alone / (time.perf_counter() - began)
    unloaded_ms = outcome.unloaded[judged_by()]["p99"]
    outcome.deadline_ms = DEADLINE_OVER_P99 * unloaded_ms
    log(f"one client: p99 {unloaded_ms:.1f} ms; {N_MANY} clients: {outcome.capacity_per_s:.1f}/s")
    urgent = design_request(golden, "/refine?k=1", {"X-Deadline-Ms": f"{outcome.deadline_ms:.3f}"})
    loaded = add(await open_loop(port, urgent, OVERLOAD * outcome.capacity_per_s, for_s))
    outcome.accepted, outcome.shed = loaded.accepted(), loaded.shed()
    outcome.applied, outcome.statuses = dict(loaded.applied), dict(loaded.statuses)
    await asyncio.sleep(RECOVERS_WITHIN_S)
    outcome.recovered = add(await closed_loop(port, plain, n_alone)).accepted()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--alone", type=int, default=500, help="requests of one client, before and after")
    parser.add_argument("--niceness", type=int, default=CLIENT_NICENESS, help="of the clients")
    outcome = Overload()

    def work(options: argparse.Namespace, service_options: Sequence[str]) -> None:
        with target_for(ModelStore().load("default"), *service_options) as target:
            os.nice(options.niceness)
            asyncio.run(run(target, options.seconds, options.alone, outcome))
        if options.seconds >= JUDGED_FROM_S:
            outcome.judge()

    return run_command("overload", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

"""Ask three times as much as the service can do, and see whom it serves.

    python -m benchmarks.reliability.overload --seconds 600

First what one client alone is served at, and what many at once are served per second; then that rate times three,
each request with a deadline of twice the unloaded p99; then, two seconds after, one client alone again. What must
hold: nothing but 200 and 503, every 503 with Retry-After, the p99 of accepted requests within twice the unloaded
one, that of refusals within 5 ms, and the old times afterwards. Clients and service share this machine's cores: the
clients yield to the service, as those of another machine would, and with fewer than four cores all are judged by
the service's own times (`server`). Runs of less than a minute do not judge times.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import long_form
from benchmarks.reliability.served import Served, served
from benchmarks.reliability.traffic import CLIENTS_NICENESS, Tally, at_a_rate, in_turn, request, whose_times
from benchmarks.timing import summary
from model_store.checkpoint import Checkpoint
from model_store.store import ModelStore

MODEL = "asked"
OVERLOAD = 3.0
PATIENCE = 2.0
"""Deadline over unloaded p99."""
RECOVERS_WITHIN_S = 2.0
RECOVERED = 1.5
"""p99 of one client alone, after over before: as few as 500 requests scatter."""
SHED_WITHIN_MS = 5.0
JUDGED_FROM_S = 60.0
N_MANY = 16


@dataclass
class Outcome:
    """Times in ms, p50 and p99, as clients saw them and as the service itself did."""

    n_cores: int = 0
    unloaded: dict[str, Any] = field(default_factory=dict)
    capacity_per_s: float = 0.0
    deadline_ms: float = 0.0
    accepted: dict[str, Any] = field(default_factory=dict)
    shed: dict[str, Any] = field(default_factory=dict)
    applied: dict[int, int] = field(default_factory=dict)
    statuses: dict[int, int] = field(default_factory=dict)
    recovered: dict[str, Any] = field(default_factory=dict)
    mistakes: Counter[str] = field(default_factory=Counter)


def run(
    checkpoint: Checkpoint,
    for_s: float,
    n_alone: int,
    *arguments: str,
    niceness: int = 0,
    into: Outcome | None = None,
) -> Outcome:
    """Overload a service of its own for so many seconds. n_alone: requests without load, before and after.
    niceness: by which this process, for good, yields to the service."""
    outcome = Outcome() if into is None else into
    with tempfile.TemporaryDirectory() as folder:
        store = ModelStore(Path(folder), include_bundled=False)
        store.publish(MODEL, checkpoint)
        with served(store.root, "--model", MODEL, *arguments) as service:
            os.nice(niceness)
            asyncio.run(_overload(service, checkpoint, for_s, n_alone, outcome))
    return outcome


async def _overload(service: Served, checkpoint: Checkpoint, for_s: float, n_alone: int, outcome: Outcome) -> None:
    def seen(tally: Tally) -> dict[str, Any]:
        outcome.mistakes += tally.mistakes
        return {"client": summary(tally.accepted_ms), "server": summary(tally.accepted_server_ms)}

    outcome.n_cores = os.cpu_count() or 1
    plain = request(checkpoint.golden, "/refine?k=1", {"X-Deadline-Ms": "60000"})
    await in_turn(service.port, plain, 20)
    outcome.unloaded = seen(await in_turn(service.port, plain, n_alone))
    began = time.perf_counter()
    seen(await in_turn(service.port, plain, 4 * n_alone, N_MANY))
    outcome.capacity_per_s = 4 * n_alone / (time.perf_counter() - began)
    unloaded_ms = outcome.unloaded[whose_times(outcome.n_cores)]["p99"]
    outcome.deadline_ms = PATIENCE * unloaded_ms
    long_form.say(f"one client: p99 {unloaded_ms:.1f} ms; many: {outcome.capacity_per_s:.1f}/s")
    hurried = request(checkpoint.golden, "/refine?k=1", {"X-Deadline-Ms": f"{outcome.deadline_ms:.3f}"})
    loaded = await at_a_rate(service.port, hurried, OVERLOAD * outcome.capacity_per_s, for_s)
    outcome.accepted = seen(loaded)
    outcome.shed = {"client": summary(loaded.shed_ms), "server": summary(loaded.shed_server_ms)}
    outcome.applied, outcome.statuses = dict(loaded.applied), dict(loaded.statuses)
    await asyncio.sleep(RECOVERS_WITHIN_S)
    outcome.recovered = seen(await in_turn(service.port, plain, n_alone))


def judge(outcome: Outcome) -> None:
    """Add to the mistakes what took too long."""
    who = whose_times(outcome.n_cores)
    unloaded_ms = outcome.unloaded[who]["p99"]
    for what, found_ms, allowed_ms in (
        ("accepted", outcome.accepted[who]["p99"], PATIENCE * unloaded_ms),
        ("shed", outcome.shed[who]["p99"], SHED_WITHIN_MS),
        ("recovered", outcome.recovered[who]["p99"], RECOVERED * unloaded_ms),
    ):
        if found_ms > allowed_ms:
            outcome.mistakes[f"{what}: found a p99 of {found_ms:.1f} ms, expected at most {allowed_ms:.1f} ms"] += 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the long form; the exit status says whether it held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--alone", type=int, default=500)
    parser.add_argument("--niceness", type=int, default=CLIENTS_NICENESS, help="of the clients")
    outcome = Outcome()

    def work(options: argparse.Namespace, rest: Sequence[str]) -> None:
        model = ModelStore().load("default")
        run(model, options.seconds, options.alone, *rest, niceness=options.niceness, into=outcome)
        if options.seconds >= JUDGED_FROM_S:
            judge(outcome)

    return long_form.main("overload", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

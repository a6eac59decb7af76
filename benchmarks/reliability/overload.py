"""Ask three times as much as the service can do, and see whom it serves.

    python -m benchmarks.reliability.overload --seconds 600

First what one client alone is served at, and what many at once are served per second; then that rate times three,
each request with a deadline of twice the unloaded p99; then, two seconds after, one client alone again. What must
hold: nothing but 200 and 503, every 503 with Retry-After, accepted requests within twice the unloaded p99, and the
old times afterwards. Clients and service share this machine's cores: with fewer than four, judge by the service's
own times (`server`), not by the clients'. Prints one line of JSON; the exit status is 1 after a mistake.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.reliability.served import Served, served
from benchmarks.reliability.traffic import Tally, at_a_rate, in_turn, request
from benchmarks.timing import summary
from model_store.checkpoint import Checkpoint
from model_store.store import ModelStore

MODEL = "asked"
OVERLOAD = 3.0
PATIENCE = 2.0
"""Deadline over unloaded p99."""
RECOVERS_WITHIN_S = 2.0
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
    mistakes: dict[str, int] = field(default_factory=dict)


def run(checkpoint: Checkpoint, for_s: float, n_alone: int, *arguments: str) -> Outcome:
    """Overload a service of its own for so many seconds. n_alone: requests without load, before and after."""
    with tempfile.TemporaryDirectory() as folder:
        store = ModelStore(Path(folder), include_bundled=False)
        store.publish(MODEL, checkpoint)
        with served(store.root, "--model", MODEL, *arguments) as service:
            return asyncio.run(_overload(service, checkpoint, for_s, n_alone))


async def _overload(service: Served, checkpoint: Checkpoint, for_s: float, n_alone: int) -> Outcome:
    plain = request(checkpoint.golden, "/refine?k=1", {"X-Deadline-Ms": "60000"})
    await in_turn(service.port, plain, 20)
    alone = await in_turn(service.port, plain, n_alone)
    began = asyncio.get_running_loop().time()
    many = await in_turn(service.port, plain, 4 * n_alone, N_MANY)
    per_s = 4 * n_alone / (asyncio.get_running_loop().time() - began)
    deadline_ms = PATIENCE * _times(alone)["client"]["p99"]
    hurried = request(checkpoint.golden, "/refine?k=1", {"X-Deadline-Ms": f"{deadline_ms:.3f}"})
    loaded = await at_a_rate(service.port, hurried, OVERLOAD * per_s, for_s)
    await asyncio.sleep(RECOVERS_WITHIN_S)
    after = await in_turn(service.port, plain, n_alone)
    return Outcome(
        n_cores=os.cpu_count() or 1,
        unloaded=_times(alone),
        capacity_per_s=per_s,
        deadline_ms=deadline_ms,
        accepted=_times(loaded),
        shed=summary(loaded.shed_ms),
        applied=dict(loaded.applied),
        statuses=dict(loaded.statuses),
        recovered=_times(after),
        mistakes=dict(alone.mistakes + many.mistakes + loaded.mistakes + after.mistakes),
    )


def _times(tally: Tally) -> dict[str, Any]:
    return {"client": summary(tally.accepted_ms), "server": summary(tally.accepted_server_ms)}


def main(arguments: list[str] | None = None) -> int:
    """Run the long form; the exit status says whether it held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.overload")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--alone", type=int, default=500)
    options, rest = parser.parse_known_args(arguments)
    outcome = run(ModelStore().load("default"), options.seconds, options.alone, *rest)
    print(json.dumps({"reliability": "overload", **asdict(outcome)}))
    return 1 if outcome.mistakes else 0


if __name__ == "__main__":
    sys.exit(main())

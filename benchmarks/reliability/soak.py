"""Ask a million times, and see whether the service grows.

    python -m benchmarks.reliability.soak --requests 1000000

Designs with 0 to 3 updates and with every method, and requests that are refused, by several clients at once who all
ask the same for a while, so that there are batches of every size. Memory is the process's resident size, looked at
every 10,000 requests: its median over the last tenth of the run against that over the second tenth, when everything
is warm. A drift of more than 1 % is a mistake.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

from benchmarks import long_form
from benchmarks.reliability.served import Served, served
from benchmarks.reliability.traffic import ANSWER_BYTES, Connection, request
from model_store.checkpoint import Checkpoint
from model_store.store import ModelStore

MODEL = "soaked"
LOOK_EVERY, MIN_LOOKS = 10_000, 20
MAX_DRIFT = 0.01
PATIENT = {"X-Deadline-Ms": "60000"}
MIXTURE = {
    "/refine?k=0": (200, 5),
    "/refine?k=1": (200, 5),
    "/refine?k=2": (200, 2),
    "/refine?k=3": (200, 2),
    "/refine?k=1&method=ratio_base": (200, 1),
    "/refine?k=1&method=projected_ratio": (200, 2),
    "/refine?k=1&method=wmmse": (200, 1),
    "/refine?k=99": (422, 8),
    "/synthesize?model=nobody": (404, 6),
    "/synthesize": (400, 8),  # sent with a checksum that does not match
}
"""The status expected, and how often in a turn of forty: what costs little is the bulk."""


@dataclass
class Outcome:
    """Of the whole run. resident_bytes: pairs of requests answered and memory. drift: relative growth of resident
    memory from the second tenth of the run to the last, drift_bytes: the same in bytes."""

    n_requests: int = 0
    per_s: float = 0.0
    asked: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    mistakes: Counter[str] = field(default_factory=Counter)
    drift: float = 0.0
    drift_bytes: int = 0
    resident_bytes: list[tuple[int, int]] = field(default_factory=list)

    def measure_drift(self) -> None:
        """From what was looked at so far."""
        looks = [resident for _, resident in self.resident_bytes]
        tenth = max(len(looks) // 10, 1)
        if len(looks) > tenth:
            warm, last = (median(looks[part]) for part in (slice(tenth, 2 * tenth), slice(-tenth, None)))
            self.drift, self.drift_bytes = last / warm - 1, round(last - warm)


def run(
    checkpoint: Checkpoint, n_requests: int, n_clients: int, *arguments: str, into: Outcome | None = None
) -> Outcome:
    """Ask a service of its own so many times."""
    outcome = Outcome() if into is None else into
    with tempfile.TemporaryDirectory() as folder:
        store = ModelStore(Path(folder), include_bundled=False)
        store.publish(MODEL, checkpoint)
        with served(store.root, "--model", MODEL, *arguments) as service:
            asyncio.run(_soak(service, checkpoint, n_requests, n_clients, outcome))
    return outcome


async def _soak(service: Served, checkpoint: Checkpoint, n_requests: int, n_clients: int, outcome: Outcome) -> None:
    contents = {path: request(checkpoint.golden, path, PATIENT) for path in MIXTURE}
    contents["/synthesize"] = contents["/synthesize"][:-4] + b"\1\2\3\4"
    turn = [path for path, (_, weight) in MIXTURE.items() for _ in range(weight)]
    Random(0).shuffle(turn)
    left, began = long_form.counted(n_requests, "requests"), time.perf_counter()
    look_every = max(min(LOOK_EVERY, n_requests // MIN_LOOKS), 1)

    async def client() -> None:
        connection = Connection(service.port)
        for number in left:
            path = turn[number // n_clients % len(turn)]
            expected, _ = MIXTURE[path]
            answer = await connection.ask(contents[path])
            outcome.asked[path] += 1
            outcome.statuses[answer.status] += 1
            if answer.status != expected:
                outcome.mistakes[f"status {answer.status} for {expected}"] += 1
            elif answer.status == 200 and len(answer.body) != ANSWER_BYTES:
                outcome.mistakes["an answer that is no filter"] += 1
            outcome.n_requests += 1
            if outcome.n_requests % look_every == 0:
                look = outcome.n_requests, await asyncio.to_thread(service.resident_bytes)
                outcome.resident_bytes.append(look)
                outcome.per_s = outcome.n_requests / (time.perf_counter() - began)
                outcome.measure_drift()
        connection.close()

    await asyncio.gather(*(client() for _ in range(n_clients)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the long form; the exit status says whether it held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.soak", description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=16)
    outcome = Outcome()

    def work(options: argparse.Namespace, rest: Sequence[str]) -> None:
        run(ModelStore().load("default"), options.requests, options.clients, *rest, into=outcome)
        if outcome.drift > MAX_DRIFT:
            outcome.mistakes[f"memory grew by {outcome.drift:.1%}"] += 1

    return long_form.main("soak", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

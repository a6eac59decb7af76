"""Ask a million times, and see whether the service grows.

    python -m benchmarks.reliability.soak --requests 1000000

Designs with 0 to 3 updates and with every method, and requests that are refused, by several clients at once. Memory
is the process's resident size: its median over the last tenth of the run against that over the second tenth, when
everything is warm. Prints one line of JSON; the exit status is 1 after a mistake or a drift of more than 1 %.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.reliability.served import Served, served
from benchmarks.reliability.traffic import Connection, request
from model_store.checkpoint import Checkpoint
from model_store.store import ModelStore
from synthesis.synthesizer import METHODS

MODEL = "soaked"
N_LOOKS = 200
MAX_DRIFT = 0.01
PATIENT = {"X-Deadline-Ms": "60000"}


@dataclass
class Outcome:
    """Of the whole run. drift: relative growth of resident memory from the second tenth to the last."""

    n_requests: int = 0
    per_s: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    mistakes: Counter[str] = field(default_factory=Counter)
    resident_bytes: list[int] = field(default_factory=list)
    drift: float = 0.0


def run(checkpoint: Checkpoint, n_requests: int, n_clients: int, *arguments: str) -> Outcome:
    """Ask a service of its own so many times."""
    with tempfile.TemporaryDirectory() as folder:
        store = ModelStore(Path(folder), include_bundled=False)
        store.publish(MODEL, checkpoint)
        with served(store.root, "--model", MODEL, *arguments) as service:
            outcome = asyncio.run(_soak(service, checkpoint, n_requests, n_clients))
    tenth = max(len(outcome.resident_bytes) // 10, 1)
    warm, last = (median(outcome.resident_bytes[part]) for part in (slice(tenth, 2 * tenth), slice(-tenth, None)))
    outcome.drift = last / warm - 1
    return outcome


async def _soak(service: Served, checkpoint: Checkpoint, n_requests: int, n_clients: int) -> Outcome:
    golden = checkpoint.golden
    kinds = [(request(golden, f"/refine?k={k}", PATIENT), 200) for k in range(4) for _ in range(4)]
    kinds += [(request(golden, f"/refine?k=1&method={method}", PATIENT), 200) for method in METHODS]
    kinds += [
        (request(golden, "/refine?k=99"), 422),
        (request(golden, "/synthesize?model=nobody"), 404),
        (request(golden, "/synthesize")[:-4] + b"\1\2\3\4", 400),  # a checksum that does not match
    ]
    outcome, left = Outcome(), iter(range(n_requests))
    look_every = max(n_requests // N_LOOKS, 1)

    async def client() -> None:
        connection = Connection(service.port)
        for number in left:
            content, expected = kinds[number % len(kinds)]
            answer = await connection.ask(content)
            outcome.statuses[answer.status] += 1
            if answer.status != expected:
                outcome.mistakes[f"status {answer.status} for {expected}"] += 1
            if number % look_every == 0:
                outcome.resident_bytes.append(await asyncio.to_thread(service.resident_bytes))
        connection.close()

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(n_clients)))
    outcome.n_requests = n_requests
    outcome.per_s = n_requests / (time.perf_counter() - began)
    return outcome


def main(arguments: list[str] | None = None) -> int:
    """Run the long form; the exit status says whether it held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.soak")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=4)
    options, rest = parser.parse_known_args(arguments)
    outcome = run(ModelStore().load("default"), options.requests, options.clients, *rest)
    print(json.dumps({"reliability": "soak", **asdict(outcome)}))
    return 1 if outcome.mistakes or outcome.drift > MAX_DRIFT else 0


if __name__ == "__main__":
    sys.exit(main())

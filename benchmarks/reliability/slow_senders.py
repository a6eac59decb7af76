"""Let a thousand sockets drip, and see what the others notice.

    python -m benchmarks.reliability.slow_senders --sockets 1000 --requests 2000

A third of them send a head line by line, a third a body, a third nothing at all; each that is closed is opened
anew. Meanwhile one client goes on asking, as it did before. What must hold: it is always answered, and its p99 is
at most twice that without them. All of them yield to the service, whose cores a slow sender does not have, and with
fewer than four cores the service's own times (`server`) are judged.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import long_form
from benchmarks.reliability.served import Served, served
from benchmarks.reliability.traffic import CLIENTS_NICENESS, Tally, in_turn, request, whose_times
from benchmarks.timing import summary
from model_store.checkpoint import Checkpoint
from model_store.store import ModelStore

MODEL = "waiting"
HEAD = b"POST /synthesize HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
KINDS: dict[str, tuple[bytes, bytes]] = {
    "head": (HEAD, b"X: y\r\n"),
    "body": (HEAD + b"Content-Length: 200000\r\n\r\n", b"PRME"),
    "nothing": (b"", b""),
}
"""What is sent at first, and what drips."""
SPARE_FILES = 200
SLOWER = 2.0
JUDGED_FROM_SOCKETS = 1000
"""What p99 may grow by, as a factor, and how many sockets a run must have to be judged by it."""


@dataclass
class Outcome:
    """Times in ms. ended: how the drips ended, by kind and status; 0 is a connection closed without a word."""

    n_cores: int = 0
    before: dict[str, Any] = field(default_factory=dict)
    meanwhile: dict[str, Any] = field(default_factory=dict)
    n_opened: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    mistakes: Counter[str] = field(default_factory=Counter)


def run(
    checkpoint: Checkpoint,
    n_sockets: int,
    n_requests: int,
    drip_every_s: float,
    *arguments: str,
    niceness: int = 0,
    into: Outcome | None = None,
) -> Outcome:
    """Drip on a service of its own from so many sockets while a client asks so often. niceness: by which this
    process, for good, yields to the service, whose cores a slow sender does not have."""
    outcome = Outcome() if into is None else into
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < n_sockets + SPARE_FILES:
        raise RuntimeError(f"found room for {hard} open files, expected {n_sockets + SPARE_FILES}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n_sockets + SPARE_FILES), hard))
    with tempfile.TemporaryDirectory() as folder:
        store = ModelStore(Path(folder), include_bundled=False)
        store.publish(MODEL, checkpoint)
        with served(store.root, "--model", MODEL, *arguments) as service:
            os.nice(niceness)
            asyncio.run(_drip(service, checkpoint, n_sockets, n_requests, drip_every_s, outcome))
    return outcome


async def _drip(
    service: Served,
    checkpoint: Checkpoint,
    n_sockets: int,
    n_requests: int,
    drip_every_s: float,
    outcome: Outcome,
) -> None:
    outcome.n_cores = os.cpu_count() or 1
    plain = request(checkpoint.golden, "/refine?k=1", {"X-Deadline-Ms": "60000"})
    await in_turn(service.port, plain, 20)
    before = await in_turn(service.port, plain, n_requests)
    outcome.before = _times(before)
    outcome.mistakes += before.mistakes

    async def sender(kind: str) -> None:
        first, drip = KINDS[kind]
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            outcome.n_opened += 1
            received = b""
            try:
                writer.write(first)
                while not reader.at_eof():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(drip_every_s):
                            received += await reader.read(4096)
                    writer.write(drip)
            except OSError:  # closed while we were sending
                pass
            finally:
                writer.close()
            outcome.ended[f"{kind}: {received[9:12].decode() or 0}"] += 1

    senders = [asyncio.create_task(sender(list(KINDS)[number % len(KINDS)])) for number in range(n_sockets)]
    while outcome.n_opened < n_sockets:
        await asyncio.sleep(0.01)
    meanwhile = await in_turn(service.port, plain, n_requests)
    for task in senders:
        task.cancel()
    done = await asyncio.gather(*senders, return_exceptions=True)
    await asyncio.sleep(drip_every_s)  # in which the sockets are closed
    outcome.meanwhile = _times(meanwhile)
    outcome.mistakes += meanwhile.mistakes
    outcome.mistakes.update(type(each).__name__ for each in done if not isinstance(each, asyncio.CancelledError))


def _times(tally: Tally) -> dict[str, Any]:
    return {"client": summary(tally.accepted_ms), "server": summary(tally.accepted_server_ms)}


def judge(outcome: Outcome) -> None:
    """Add to the mistakes what took too long."""
    who = whose_times(outcome.n_cores)
    before_ms, found_ms = outcome.before[who]["p99"], outcome.meanwhile[who]["p99"]
    if found_ms > SLOWER * before_ms:
        outcome.mistakes[f"found a p99 of {found_ms:.1f} ms, expected at most {SLOWER:g} x {before_ms:.1f} ms"] += 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the long form; the exit status says whether it held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.slow_senders", description=__doc__)
    parser.add_argument("--sockets", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--drip-every-s", type=float, default=1.0)
    parser.add_argument("--niceness", type=int, default=CLIENTS_NICENESS, help="of the clients")
    outcome = Outcome()

    def work(options: argparse.Namespace, rest: Sequence[str]) -> None:
        checkpoint = ModelStore().load("default")
        asked = options.sockets, options.requests, options.drip_every_s
        run(checkpoint, *asked, *rest, niceness=options.niceness, into=outcome)
        if options.sockets >= JUDGED_FROM_SOCKETS:
            judge(outcome)

    return long_form.main("slow_senders", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

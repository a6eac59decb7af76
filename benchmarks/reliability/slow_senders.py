"""Let a thousand sockets drip, and see what the others notice.

    python -m benchmarks.reliability.slow_senders --sockets 1000 --requests 2000

A third of them send a head line by line, a third a body, a third nothing at all; each that is closed is opened
anew. Meanwhile one client goes on asking, as it did before. What must hold: it is always answered, and its p99 is
at most twice that without them; with fewer than four cores judge by the service's own times (`server`). Prints one
line of JSON; the exit status is 1 after a mistake.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.reliability.served import Served, served
from benchmarks.reliability.traffic import Tally, in_turn, request
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


@dataclass
class Outcome:
    """Times in ms. ended: how the drips ended, by kind and status; 0 is a connection closed without a word."""

    n_cores: int = 0
    before: dict[str, Any] = field(default_factory=dict)
    meanwhile: dict[str, Any] = field(default_factory=dict)
    n_opened: int = 0
    ended: dict[str, int] = field(default_factory=dict)
    mistakes: dict[str, int] = field(default_factory=dict)


def run(checkpoint: Checkpoint, n_sockets: int, n_requests: int, drip_every_s: float, *arguments: str) -> Outcome:
    """Drip on a service of its own from so many sockets while a client asks so often."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < n_sockets + SPARE_FILES:
        raise RuntimeError(f"found room for {hard} open files, expected {n_sockets + SPARE_FILES}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n_sockets + SPARE_FILES), hard))
    with tempfile.TemporaryDirectory() as folder:
        store = ModelStore(Path(folder), include_bundled=False)
        store.publish(MODEL, checkpoint)
        with served(store.root, "--model", MODEL, *arguments) as service:
            return asyncio.run(_drip(service, checkpoint, n_sockets, n_requests, drip_every_s))


async def _drip(
    service: Served, checkpoint: Checkpoint, n_sockets: int, n_requests: int, drip_every_s: float
) -> Outcome:
    plain = request(checkpoint.golden, "/refine?k=1", {"X-Deadline-Ms": "60000"})
    await in_turn(service.port, plain, 20)
    before = await in_turn(service.port, plain, n_requests)
    ended: Counter[str] = Counter()
    n_opened = 0

    async def sender(kind: str) -> None:
        nonlocal n_opened
        first, drip = KINDS[kind]
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            n_opened += 1
            received = b""
            try:
                writer.write(first)
                while not reader.at_eof():
                    with suppress(TimeoutError):
                        received += await asyncio.wait_for(reader.read(4096), drip_every_s)
                    writer.write(drip)
            except OSError:  # closed while we were sending
                pass
            finally:
                writer.close()
            ended[f"{kind}: {received[9:12].decode() or 0}"] += 1

    senders = [asyncio.create_task(sender(list(KINDS)[number % len(KINDS)])) for number in range(n_sockets)]
    while n_opened < n_sockets:
        await asyncio.sleep(0.01)
    meanwhile = await in_turn(service.port, plain, n_requests)
    for task in senders:
        task.cancel()
    done = await asyncio.gather(*senders, return_exceptions=True)
    await asyncio.sleep(drip_every_s)  # in which the sockets are closed
    mistakes = before.mistakes + meanwhile.mistakes
    mistakes.update(type(each).__name__ for each in done if not isinstance(each, asyncio.CancelledError))
    return Outcome(
        n_cores=os.cpu_count() or 1,
        before=_times(before),
        meanwhile=_times(meanwhile),
        n_opened=n_opened,
        ended=dict(ended),
        mistakes=dict(mistakes),
    )


def _times(tally: Tally) -> dict[str, Any]:
    return {"client": summary(tally.accepted_ms), "server": summary(tally.accepted_server_ms)}


def main(arguments: list[str] | None = None) -> int:
    """Run the long form; the exit status says whether it held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.slow_senders")
    parser.add_argument("--sockets", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--drip-every-s", type=float, default=1.0)
    options, rest = parser.parse_known_args(arguments)
    checkpoint = ModelStore().load("default")
    outcome = run(checkpoint, options.sockets, options.requests, options.drip_every_s, *rest)
    print(json.dumps({"reliability": "slow senders", **asdict(outcome)}))
    return 1 if outcome.mistakes else 0


if __name__ == "__main__":
    sys.exit(main())

"""Let a thousand sockets send slowly, and see what another client notices.

    python -m benchmarks.reliability.slow_senders --sockets 1000 --requests 2000

A third of them send a head line by line, a third a body piece by piece, a third nothing; each is opened again when
the service closes it. What must hold: one more client is always answered, and its p99 is at most twice that without
them. With fewer than four cores the service's own times are judged.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from benchmarks.reliability.command import Outcome, run_command
from benchmarks.reliability.service_process import Target, target_for
from benchmarks.reliability.traffic import CLIENT_NICENESS, PATIENT, closed_loop, design_request, judged_by
from model_store.store import ModelStore

HEAD = b"POST /synthesize HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
KINDS: dict[str, tuple[bytes, bytes]] = {
    "head": (HEAD, b"X: y\r\n"),
    "body": (HEAD + b"Content-Length: 200000\r\n\r\n", b"PRME"),
    "nothing": (b"", b""),
}
"""What is sent at once, and what is sent again and again."""
SPARE_FILES = 200
MAX_SLOWDOWN = 2.0
JUDGED_FROM_SOCKETS = 1000


@dataclass
class SlowSenders(Outcome):
    """Times in ms. ended: how slow connections ended, by kind and status; 0: closed without an answer."""

    before: dict[str, Any] = field(default_factory=dict)
    meanwhile: dict[str, Any] = field(default_factory=dict)
    n_opened: int = 0
    ended: Counter[str] = field(default_factory=Counter)

    def judge(self) -> None:
        """Add to the mistakes what took too long."""
        before_ms, found_ms = (each[judged_by()]["p99"] for each in (self.before, self.meanwhile))
        if found_ms > MAX_SLOWDOWN * before_ms:
            self.mistakes[
                f"p99 is {found_ms:.1f} ms, at most {MAX_SLOWDOWN:g} x {before_ms:.1f} ms is allowed"
            ] += 1


async def run(target: Target, n_sockets: int, n_requests: int, every_s: float, outcome: SlowSenders) -> None:
    """Send slowly from so many sockets, a piece every `every_s` seconds, while a client makes `n_requests`."""
    port = target.service.port
    plain = design_request(target.checkpoint.golden, "/refine?k=1", PATIENT)
    await closed_loop(port, plain, 20)
    before = await closed_loop(port, plain, n_requests)

    async def sender(kind: str) -> None:
        first, piece = KINDS[kind]
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            outcome.n_opened += 1
            received = b""
            try:
                writer.write(first)
                while not reader.at_eof():
                    with suppress(TimeoutError):
                        async with asyncio.timeout(every_s):
                            received += await reader.read(4096)
                    writer.write(piece)
            except OSError:  # the service closed the connection while a piece was sent
                pass
            finally:
                writer.close()
            outcome.ended[f"{kind}: {received[9:12].decode() or 0}"] += 1

    senders = [asyncio.create_task(sender(list(KINDS)[number % len(KINDS)])) for number in range(n_sockets)]
    while outcome.n_opened < n_sockets:
        await asyncio.sleep(0.01)
    meanwhile = await closed_loop(port, plain, n_requests)
    while not outcome.ended:  # on a fast machine the requests are answered before the first sender's time is over
        await asyncio.sleep(every_s)
    for task in senders:
        task.cancel()
    done = await asyncio.gather(*senders, return_exceptions=True)
    await asyncio.sleep(every_s)  # in which the sockets are closed
    outcome.before, outcome.meanwhile = before.accepted(), meanwhile.accepted()
    outcome.mistakes += before.mistakes + meanwhile.mistakes
    outcome.mistakes.update(type(each).__name__ for each in done if not isinstance(each, asyncio.CancelledError))


def allow_open_files(n_sockets: int) -> None:
    """Raise this process's limit; RuntimeError where the system does not allow so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < n_sockets + SPARE_FILES:
        raise RuntimeError(f"at most {hard} files may be open; raise the limit to {n_sockets + SPARE_FILES}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n_sockets + SPARE_FILES), hard))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.slow_senders", description=__doc__)
    parser.add_argument("--sockets", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--every-s", type=float, default=1.0, help="pause between two pieces")
    parser.add_argument("--niceness", type=int, default=CLIENT_NICENESS, help="of the clients")
    outcome = SlowSenders()

    def work(options: argparse.Namespace, service_options: Sequence[str]) -> None:
        allow_open_files(options.sockets)
        with target_for(ModelStore().load("default"), *service_options) as target:
            os.nice(options.niceness)
            asyncio.run(run(target, options.sockets, options.requests, options.every_s, outcome))
        if options.sockets >= JUDGED_FROM_SOCKETS:
            outcome.judge()

    return run_command("slow_senders", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

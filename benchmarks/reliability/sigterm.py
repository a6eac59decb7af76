"""End a service under load, again and again, and count the requests that it had taken and did not answer.

    python -m benchmarks.reliability.sigterm --rounds 100 --clients 4

A request counts as taken once it was sent on a connection that the service had accepted: an answer must come, a 200
or a 503 that says so. A connection that is refused, or reset before anything came back on a fresh one, was not
accepted; it ends that client. Each round's service must exit within its time.
"""

from __future__ import annotations

import argparse
import http.client
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from benchmarks import long_form
from benchmarks.reliability.served import Served, served
from model_store.checkpoint import Checkpoint
from model_store.store import ModelStore
from service.formats import wire

MODEL = "ended"
HEADERS = {"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"}
DRAIN_S = 0.5
EXIT_WITHIN_S = 15.0


@dataclass
class Outcome:
    """What was seen. mistakes: by kind; nothing in it is what must hold."""

    n_rounds: int = 0
    answers: Counter[int] = field(default_factory=Counter)
    n_not_accepted: int = 0
    mistakes: Counter[str] = field(default_factory=Counter)
    longest_exit_s: float = 0.0


def run(
    checkpoint: Checkpoint,
    n_rounds: int,
    n_clients: int,
    *arguments: str,
    at_once: int = 1,
    into: Outcome | None = None,
) -> Outcome:
    """Start, load and end a service that many times; arguments: more of the service's. at_once: services."""
    outcome, draw = Outcome() if into is None else into, Random(0)
    golden = checkpoint.golden
    request = wire.encode(golden.primary.numpy(), golden.secondary.numpy())
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(at_once) as pool:
        store = ModelStore(Path(folder), include_bundled=False)
        store.publish(MODEL, checkpoint)
        arguments = ("--model", MODEL, "--drain-s", str(DRAIN_S), *arguments)
        rounds = [
            # Ended somewhere in a design, not always at its start.
            pool.submit(_round, store.root, arguments, request, n_clients, draw.uniform(0.2, 0.6), outcome)
            for _ in range(n_rounds)
        ]
        try:
            for _, done in zip(long_form.counted(n_rounds, "rounds"), as_completed(rounds), strict=False):
                done.result()
        finally:
            pool.shutdown(cancel_futures=True)
    return outcome


def _round(
    store: Path, arguments: Sequence[str], request: bytes, n_clients: int, for_s: float, outcome: Outcome
) -> None:
    """One service from its start to its end, which comes when it has been asked for `for_s` seconds."""
    with served(store, *arguments) as service:
        clients = [
            threading.Thread(target=_ask_until_refused, args=(service, request, outcome)) for _ in range(n_clients)
        ]
        for client in clients:
            client.start()
        time.sleep(for_s)
        told = time.monotonic()
        service.process.terminate()
        service.process.wait(EXIT_WITHIN_S)
        outcome.longest_exit_s = max(outcome.longest_exit_s, time.monotonic() - told)
        for client in clients:
            client.join()
    if any("Traceback" in line for line in service.log):
        outcome.mistakes["a traceback in the log"] += 1
    outcome.n_rounds += 1


def _ask_until_refused(service: Served, request: bytes, outcome: Outcome) -> None:
    """One client; it opens a new connection where the service closed the one before with an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    is_fresh = True
    while True:
        try:
            connection.request("POST", "/refine?k=1", request, HEADERS)
            answer = connection.getresponse()
            body = answer.read()
        except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError, http.client.HTTPException) as error:
            if not is_fresh or isinstance(error, http.client.HTTPException):
                outcome.mistakes[type(error).__name__] += 1
            outcome.n_not_accepted += 1
            break
        outcome.answers[answer.status] += 1
        if answer.status == 200 and len(body) != 8192:
            outcome.mistakes[f"{len(body)} bytes"] += 1
        elif answer.status not in (200, 503):
            outcome.mistakes[f"status {answer.status}"] += 1
        is_fresh = connection.sock is None
    connection.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the long form; the exit status says whether it held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.sigterm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--clients", type=int, default=4, help="of each service")
    parser.add_argument("--at-once", type=int, default=2, help="services, each in a round of its own")
    outcome = Outcome()

    def work(options: argparse.Namespace, rest: Sequence[str]) -> None:
        checkpoint = ModelStore().load("default")
        run(checkpoint, options.rounds, options.clients, *rest, at_once=options.at_once, into=outcome)

    return long_form.main("sigterm", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

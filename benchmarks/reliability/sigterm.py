"""Stop a service under load repeatedly, and count accepted requests without an answer.

    python -m benchmarks.reliability.sigterm --rounds 100 --clients 4

A request counts as accepted once it was sent on a connection that the service had accepted: its answer must be 200 or
503. A connection that is refused, or reset before its first answer, was not accepted; it ends that client.
"""

from __future__ import annotations

import argparse
import http.client
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from random import Random

from benchmarks.reliability.command import Outcome, counted, run_command
from benchmarks.reliability.service_process import ServiceProcess, target_for
from benchmarks.reliability.traffic import design_body, is_filter
from model_store.checkpoint import Checkpoint
from model_store.store import ModelStore

HEADERS = {"Content-Type": "application/x-safetensors", "Accept": "application/octet-stream"}
DRAIN_S = 0.5
EXIT_WITHIN_S = 15.0


@dataclass
class Sigterm(Outcome):
    """Result of the stops."""

    n_rounds: int = 0
    # Answers by status.
    answers: Counter[int] = field(default_factory=Counter)
    # Clients that ended at a connection that was not accepted.
    n_not_accepted: int = 0
    longest_exit_s: float = 0.0


def run(
    checkpoint: Checkpoint, n_rounds: int, n_clients: int, at_once: int, outcome: Sigterm, *arguments: str
) -> None:
    """Start, load and stop services, `at_once` at a time."""
    draw = Random(0)
    with ThreadPoolExecutor(at_once) as pool:
        # Stops fall somewhere within a design, not always at its start.
        rounds = [
            pool.submit(_round, checkpoint, n_clients, draw.uniform(0.2, 0.6), outcome, arguments)
            for _ in range(n_rounds)
        ]
        try:
            for _, done in zip(counted(n_rounds, "rounds"), as_completed(rounds), strict=False):
                done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _round(
    checkpoint: Checkpoint, n_clients: int, for_s: float, outcome: Sigterm, arguments: Sequence[str]
) -> None:
    body = design_body(checkpoint.golden)
    with target_for(checkpoint, "--drain-s", str(DRAIN_S), *arguments) as target:
        service = target.service
        clients = [
            threading.Thread(target=_ask_until_refused, args=(service, body, outcome)) for _ in range(n_clients)
        ]
        for client in clients:
            client.start()
        time.sleep(for_s)
        began = time.monotonic()
        service.process.terminate()
        service.process.wait(EXIT_WITHIN_S)
        outcome.longest_exit_s = max(outcome.longest_exit_s, time.monotonic() - began)
        for client in clients:
            client.join()
    if any("Traceback" in line for line in service.log):
        outcome.mistakes["a traceback in the log"] += 1
    outcome.n_rounds += 1


def _ask_until_refused(service: ServiceProcess, body: bytes, outcome: Sigterm) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    is_fresh = True
    while True:
        try:
            connection.request("POST", "/refine?k=1", body, HEADERS)
            answer = connection.getresponse()
            content = answer.read()
        except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError, http.client.HTTPException) as error:
            if not is_fresh or isinstance(error, http.client.HTTPException):
                outcome.mistakes[type(error).__name__] += 1
            outcome.n_not_accepted += 1
            break
        outcome.answers[answer.status] += 1
        if answer.status == 200 and not is_filter(content):
            outcome.mistakes["an answer that is not a filter"] += 1
        elif answer.status not in (200, 503):
            outcome.mistakes[f"status {answer.status}"] += 1
        is_fresh = connection.sock is None
    connection.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.sigterm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--clients", type=int, default=4, help="number per service")
    parser.add_argument("--at-once", type=int, default=2, help="services at a time")
    outcome = Sigterm()

    def work(options: argparse.Namespace, service_options: Sequence[str]) -> None:
        checkpoint = ModelStore().load("bose-qc20")
        run(checkpoint, options.rounds, options.clients, options.at_once, outcome, *service_options)

    return run_command("sigterm", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

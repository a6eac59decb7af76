"""End a service under load, again and again, and count the requests that it had taken and did not answer.

    python -m benchmarks.reliability.sigterm --rounds 100 --clients 4

A request counts as taken once it was sent on a connection that the service had accepted: an answer must come, a 200
or a 503 that says so. A connection that is refused, or reset before anything came back on a fresh one, was not
accepted; it ends that client. Each round's service must exit within its time. Prints one line of JSON; the exit
status is 1 if anything was dropped.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

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


def run(checkpoint: Checkpoint, n_rounds: int, n_clients: int, *arguments: str) -> Outcome:
    """Start, load and end a service that many times; arguments: more of the service's."""
    outcome, draw = Outcome(), Random(0)
    golden = checkpoint.golden
    request = wire.encode(golden.primary.numpy(), golden.secondary.numpy())
    with tempfile.TemporaryDirectory() as folder:
        store = ModelStore(Path(folder), include_bundled=False)
        store.publish(MODEL, checkpoint)
        for _ in range(n_rounds):
            with served(store.root, "--model", MODEL, "--drain-s", str(DRAIN_S), *arguments) as service:
                clients = [
                    threading.Thread(target=_ask_until_refused, args=(service, request, outcome))
                    for _ in range(n_clients)
                ]
                for client in clients:
                    client.start()
                time.sleep(draw.uniform(0.2, 0.6))  # somewhere in a design, not always at its start
                told = time.monotonic()
                service.process.terminate()
                service.process.wait(EXIT_WITHIN_S)
                outcome.longest_exit_s = max(outcome.longest_exit_s, time.monotonic() - told)
                for client in clients:
                    client.join()
            if any("Traceback" in line for line in service.log):
                outcome.mistakes["a traceback in the log"] += 1
            outcome.n_rounds += 1
    return outcome


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


def main(arguments: list[str] | None = None) -> int:
    """Run the long form; the exit status says whether it held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.sigterm")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--clients", type=int, default=4)
    options, rest = parser.parse_known_args(arguments)
    outcome = run(ModelStore().load("default"), options.rounds, options.clients, *rest)
    print(json.dumps({"reliability": "SIGTERM", **asdict(outcome)}))
    return 1 if outcome.mistakes else 0


if __name__ == "__main__":
    sys.exit(main())

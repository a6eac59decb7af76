"""Publish new versions and load them while clients request designs.

    python -m benchmarks.reliability.hot_swap --swaps 200 --clients 4

Two checkpoints with different weights are published in turn as new versions of one model. Every answer must be a 200
with a published digest and the filter of that digest's weights.
"""

from __future__ import annotations

import argparse
import http.client
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from benchmarks.reliability.command import Outcome, counted, run_command
from benchmarks.reliability.service_process import MANAGEMENT, MODEL, ServiceProcess, ServiceTarget, target_for
from benchmarks.reliability.traffic import design_body
from model_store.checkpoint import Checkpoint, GoldenCase
from model_store.store import ModelStore

# Largest relative l2 distance between filters of the same weights; other weights must differ ten times more.
SAME_FILTER = 1e-2

# Standard deviation of the change of the last layer's weights; a larger one would trigger the Wiener fallback.
WEIGHT_NOISE = 0.03


@dataclass
class HotSwap(Outcome):
    """Result of hot swapping."""

    n_swaps: int = 0
    n_answers: int = 0
    # Versions that answered.
    n_digests: int = 0
    longest_answer_s: float = 0.0
    median_swap_s: float = 0.0
    resident_bytes_at_start: int = 0
    resident_bytes_at_end: int = 0
    answers_by_digest: Counter[str] = field(default_factory=Counter)


def run(target: ServiceTarget, second: Checkpoint, n_swaps: int, n_clients: int, outcome: HotSwap) -> None:
    """Swap the target's checkpoint and `second` under load."""
    service, store, first = target.service, target.store, target.checkpoint
    filters = [np.asarray(item.golden.taps) for item in (first, second)]
    difference = np.linalg.norm(filters[0] - filters[1]) / np.linalg.norm(filters[0])
    if difference < 10 * SAME_FILTER:
        raise RuntimeError(f"the two models' filters differ by {difference:.2g}: less than {10 * SAME_FILTER:.2g}")
    expected = {store.resolve(MODEL).digest: filters[0]}
    body, stop, times = design_body(first.golden), threading.Event(), []
    outcome.resident_bytes_at_start = service.resident_bytes()
    clients = [
        threading.Thread(target=_ask_until, args=(stop, service, body, expected, outcome)) for _ in range(n_clients)
    ]
    for client in clients:
        client.start()
    try:
        for number in counted(n_swaps, "swaps"):
            which = (number + 1) % 2
            # The digest is recorded before the reload, so before the new version can answer.
            expected[store.publish(MODEL, (first, second)[which]).digest] = filters[which]
            began = perf_counter()
            status, answer = service.ask("POST", "/models/reload", headers=MANAGEMENT)
            times.append(perf_counter() - began)
            if status != 200:
                outcome.mistakes[f"reload answered {status}: {answer!r}"] += 1
            outcome.n_swaps, outcome.median_swap_s = len(times), float(np.median(times))
    finally:
        stop.set()
        for client in clients:
            client.join()
    outcome.n_digests = len(outcome.answers_by_digest)
    outcome.resident_bytes_at_end = service.resident_bytes()


def _ask_until(
    stop: threading.Event,
    service: ServiceProcess,
    body: bytes,
    expected: dict[str, np.ndarray],
    outcome: HotSwap,
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    headers = {"Content-Type": "application/x-safetensors", "Accept": "application/octet-stream"}
    while not stop.is_set():
        began = perf_counter()
        try:
            connection.request("POST", "/synthesize", body, headers)
            answer = connection.getresponse()
            content, digest = answer.read(), answer.headers.get("X-Model-Digest", "")
        except OSError as error:
            outcome.mistakes[f"connection: {type(error).__name__}"] += 1
            connection.close()
            continue
        outcome.longest_answer_s = max(outcome.longest_answer_s, perf_counter() - began)
        outcome.n_answers += 1
        outcome.answers_by_digest[digest] += 1
        if answer.status != 200:
            outcome.mistakes[f"status {answer.status}"] += 1
        elif digest not in expected:
            outcome.mistakes["a digest that was never published"] += 1
        else:
            taps, wanted = np.frombuffer(content, "<f4"), expected[digest]
            if not np.linalg.norm(taps - wanted) < SAME_FILTER * np.linalg.norm(wanted):
                outcome.mistakes["a filter of other weights than its digest's"] += 1
    connection.close()


def perturbed(checkpoint: Checkpoint) -> Checkpoint:
    """Return the model with other weights in its last layer, and its golden case."""
    parameters, golden = checkpoint.parameters, checkpoint.golden
    last = max(name for name in parameters.weights if name.startswith("head.") and name.endswith(".weight"))
    weight = parameters.weights[last]
    noise = WEIGHT_NOISE * np.random.default_rng(1).standard_normal(weight.shape)
    changed = replace(parameters, weights=dict(parameters.weights) | {last: (weight + noise).astype(np.float32)})
    made = GoldenCase.make(changed, golden.primary, golden.secondary)
    return replace(checkpoint, parameters=changed, golden=made)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.hot_swap", description=__doc__)
    parser.add_argument("--swaps", type=int, default=200)
    parser.add_argument("--clients", type=int, default=4)
    outcome = HotSwap()

    def work(options: argparse.Namespace, service_options: Sequence[str]) -> None:
        checkpoint = ModelStore().load("bose-qc20")
        with target_for(checkpoint, "--fallback-margin-db", "1000", *service_options) as target:
            run(target, perturbed(checkpoint), options.swaps, options.clients, outcome)

    return run_command("hot_swap", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

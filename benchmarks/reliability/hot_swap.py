"""Publish a new version and let it take over, again and again, while clients ask for designs.

    python -m benchmarks.reliability.hot_swap --swaps 200 --clients 4

Two checkpoints with different weights are published in turn as new versions of one model. Every answer must be a
200 whose digest is one that was published, and whose filter is the one that the weights behind that digest design:
an answer under the wrong name is found by its filter.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import http.client
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from benchmarks import long_form
from benchmarks.reliability.served import Served, served
from model_store.checkpoint import Checkpoint
from model_store.golden import GoldenCase
from model_store.store import ModelStore
from service.formats import wire

MODEL = "swapped"
KEY = "operator"
SAME_FILTER = 1e-2
"""Largest relative l2 distance from a filter of the same weights; other weights must differ by ten times that."""

WEIGHT_NOISE = 0.03
"""Standard deviation of what is added to every weight of the output layer to make the second model. A model that
designs too poorly would not do: the service answers with the Wiener filter in its place."""


@dataclass
class Outcome:
    """What was seen. mistakes: by kind; nothing in it is what must hold."""

    n_swaps: int = 0
    n_answers: int = 0
    answers_by_digest: Counter[str] = field(default_factory=Counter)
    mistakes: Counter[str] = field(default_factory=Counter)
    longest_answer_s: float = 0.0
    median_swap_s: float = 0.0
    resident_bytes_at_start: int = 0
    resident_bytes_at_end: int = 0


def run(first: Checkpoint, n_swaps: int, n_clients: int, *arguments: str, into: Outcome | None = None) -> Outcome:
    """Swap `first` and a model with other weights for each other under load; arguments: more of the service's."""
    second = _other_weights(first)
    filters = [_golden_filter(each) for each in (first, second)]
    apart = np.linalg.norm(filters[0] - filters[1]) / np.linalg.norm(filters[0])
    if apart < 10 * SAME_FILTER:
        raise RuntimeError(f"found models whose filters differ by {apart:.2g}, expected {10 * SAME_FILTER:.2g}")
    golden = first.golden
    request = wire.encode(golden.primary.numpy(), golden.secondary.numpy())
    outcome = Outcome() if into is None else into
    expected: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = ModelStore(Path(folder), include_bundled=False)
        expected[store.publish(MODEL, first).digest] = filters[0]
        key = hashlib.sha256(KEY.encode()).hexdigest()
        with served(store.root, "--model", MODEL, "--management-keys", key, *arguments) as service:
            outcome.resident_bytes_at_start = service.resident_bytes()
            stop = threading.Event()
            clients = [
                threading.Thread(target=_ask_until, args=(stop, service, request, expected, outcome))
                for _ in range(n_clients)
            ]
            for client in clients:
                client.start()
            times = []
            try:
                for number in long_form.counted(n_swaps, "swaps"):
                    which = (number + 1) % 2
                    # Known before it can answer, for the digest is known only once it is published.
                    expected[store.publish(MODEL, (first, second)[which]).digest] = filters[which]
                    began = perf_counter()
                    status, body = service.ask("POST", "/models/reload", headers={"Authorization": f"Bearer {KEY}"})
                    times.append(perf_counter() - began)
                    if status != 200:
                        outcome.mistakes[f"reload answered {status}: {body!r}"] += 1
                    outcome.n_swaps, outcome.median_swap_s = len(times), float(np.median(times))
            finally:
                stop.set()
                for client in clients:
                    client.join()
            outcome.resident_bytes_at_end = service.resident_bytes()
    return outcome


def _ask_until(
    stop: threading.Event,
    service: Served,
    request: bytes,
    expected: dict[str, np.ndarray],
    outcome: Outcome,
) -> None:
    """One client on one connection. Counting from several threads is safe: each step holds Python's lock."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)
    headers = {"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"}
    while not stop.is_set():
        began = perf_counter()
        try:
            connection.request("POST", "/synthesize", request, headers)
            answer = connection.getresponse()
            body, digest = answer.read(), answer.headers.get("X-Model-Digest", "")
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
            taps, wanted = np.frombuffer(body, "<f4"), expected[digest]
            if not np.linalg.norm(taps - wanted) < SAME_FILTER * np.linalg.norm(wanted):
                outcome.mistakes["a filter of other weights than its digest's"] += 1
    connection.close()


def _other_weights(checkpoint: Checkpoint) -> Checkpoint:
    """The same model but for its output layer, with the golden case that its weights give."""
    generator, golden = copy.deepcopy(checkpoint.generator), checkpoint.golden
    with torch.no_grad():
        *_, weight, _ = generator.head.parameters()  # of the last layer, before its bias
        weight.add_(WEIGHT_NOISE * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)))
    question = (golden.primary, golden.secondary, golden.coherence)
    answered = GoldenCase.make(generator, checkpoint.reference_psd, checkpoint.band_uncertainty, *question)
    return replace(checkpoint, generator=generator, golden=answered)


def _golden_filter(checkpoint: Checkpoint) -> np.ndarray:
    return checkpoint.golden.taps.numpy()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the long form; the exit status says whether it held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.hot_swap", description=__doc__)
    parser.add_argument("--swaps", type=int, default=200)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--model", default="default", help="reference of the published model to start from")
    outcome = Outcome()

    def work(options: argparse.Namespace, rest: Sequence[str]) -> None:
        run(ModelStore().load(options.model), options.swaps, options.clients, *rest, into=outcome)

    def shown() -> dict[str, object]:
        return vars(outcome) | {"answers_by_digest": len(outcome.answers_by_digest)}

    return long_form.main("hot_swap", parser, arguments, outcome, work, shown)


if __name__ == "__main__":
    sys.exit(main())

"""Whole requests to the services of two checkouts in turns: whether HTTP costs more than it did.

    git worktree add ../before COMMIT
    python -m benchmarks.side_by_side --other ../before

Both run at once, this checkout's service and the other's, each with its own bundled default model, and only one is
asked at a time: so many requests of one kind, then the same of the other service, in an order drawn anew for each
round, so that whatever disturbs the machine disturbs both alike. The two may design at different speeds; what is
compared is therefore the latency at the client less the service's own `core` and `decode`: the queue, the
prediction, the encoding and the sockets. A ratio is this checkout over the other; its interval holds nine of ten
ratios of rounds drawn again with replacement. A mistake is an interval that lies above what is allowed as a whole.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ears as ears_module
from benchmarks import http, long_form
from benchmarks.ears import Ears
from benchmarks.http import Loop, closed_loop
from benchmarks.reliability.served import served

ALLOWED = 1.05
"""Ratio up to which a difference is not called one."""
LEVELS = (50, 99)
N_DRAWN = 500

Rounds = dict[str, list[Loop]]
"""What each service was measured at, round by round."""


@dataclass
class Outcome:
    """rows: latency and overhead of each kind of request and service; ratios: of the overheads, with intervals."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    ratios: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    mistakes: Counter[str] = field(default_factory=Counter)


def run(
    other: Path,
    ears: Ears,
    k: int,
    n_requests: int,
    n_rounds: int,
    kinds: str,
    *arguments: str,
    into: Outcome | None = None,
) -> Outcome:
    """Measure. other: root of the other checkout. kinds: part of their names. n_requests: of a kind in a round."""
    outcome = Outcome() if into is None else into
    cores = http.split_cores()
    with ExitStack() as running:
        with http.on_cores(cores["server"]):
            ports = {
                "this": running.enter_context(served(None, *arguments)).port,
                "other": running.enter_context(served(None, *arguments, checkout=other)).port,
            }
        running.enter_context(http.on_cores(cores["client"]))
        requests = {
            name: {kind: each for kind, each in http.kinds(ears, k, port).items() if kinds in kind}
            for name, port in ports.items()
        }
        found: dict[str, Rounds] = {kind: {name: [] for name in ports} for kind in requests["this"]}
        draw = random.Random(0)
        for number in long_form.counted(1 + n_rounds, "rounds"):  # the first warms up, and is not counted
            turns = [(kind, name) for kind in found for name in ports]
            draw.shuffle(turns)
            for kind, name in turns:
                loop = closed_loop(requests[name][kind], ports[name], n_requests)
                if number:
                    found[kind][name].append(loop)
    for kind, rounds in found.items():
        outcome.rows += [{"request": kind, "service": name, **together(loops)} for name, loops in rounds.items()]
        outcome.ratios[kind] = {f"p{level}": ratio(rounds, level) for level in LEVELS}
        for level, (_, low, _) in zip(LEVELS, outcome.ratios[kind].values(), strict=True):
            if low > ALLOWED:
                outcome.mistakes[f"{kind}: p{level} of the overhead has grown"] += 1
    outcome.mistakes.update(f"status {status}" for row in outcome.rows for status in row["failed"])
    return outcome


def together(loops: Sequence[Loop]) -> dict[str, Any]:
    """All rounds of one service as one loop."""
    whole = Loop()
    for loop in loops:
        whole.latency_ms += loop.latency_ms
        whole.server_ms += loop.server_ms
        whole.failed += loop.failed
        whole.seconds += loop.seconds
    return whole.row()


def overheads(loop: Loop) -> list[float]:
    """Latency less core and decode of each answer, ms."""
    pairs = zip(loop.latency_ms, loop.server_ms, strict=True)
    return [spent - server["core"] - server["decode"] for spent, server in pairs]


def ratio(rounds: Rounds, level: int) -> list[float]:
    """This over the other, at one percentile of the overheads: of all rounds, and the interval from 5 to 95 %.

    Rounds are drawn in pairs, since what disturbed one service in a round disturbed the other too.
    """
    each = {name: [overheads(loop) for loop in loops] for name, loops in rounds.items()}

    def of(places: Iterable[int]) -> float:
        chosen = list(places)
        this, other = (
            float(np.percentile(np.concatenate([each[name][place] for place in chosen]), level))
            for name in ("this", "other")
        )
        return this / other

    n_rounds, draw = len(each["this"]), np.random.default_rng(0)
    drawn = [of(draw.integers(n_rounds, size=n_rounds)) for _ in range(N_DRAWN)]
    return [of(range(n_rounds)), *(float(each) for each in np.percentile(drawn, (5, 95)))]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the verdict; exit status 1 where an overhead has grown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.side_by_side", description=__doc__)
    parser.add_argument("--other", type=Path, required=True, help="root of the other checkout")
    ears_module.add_options(parser)
    parser.add_argument("--updates", type=int, default=1, metavar="K")
    parser.add_argument("--requests", type=int, default=100, help="of each kind to each service in a round")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="few ears")
    parser.add_argument("--kinds", default="binary", help="part of the names of the kinds of requests; '' for all")
    outcome = Outcome()

    def work(options: argparse.Namespace, rest: Sequence[str]) -> None:
        ears = ears_module.chosen(options)
        how = (options.updates, options.requests, options.rounds, options.kinds)
        run(options.other, ears, *how, *rest, into=outcome)
        for row in outcome.rows:
            print(f"{row['service']:6}", end=" ")
            http.show({"loop": "closed", "k": options.updates} | row)
        for kind, ratios in outcome.ratios.items():
            shown = ", ".join(
                f"{name} {of:.2f} ({low:.2f} to {high:.2f})" for name, (of, low, high) in ratios.items()
            )
            print(f"{kind}: overhead of this over the other: {shown}")

    return long_form.main("side_by_side", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

"""Measure several contenders in turns, and summarise many times."""

from __future__ import annotations

import gc
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

# Milliseconds by stage.
Times = dict[str, float]

# One measurement, given the number of the round.
Turn = Callable[[int], Times]


def summary(samples: Sequence[float]) -> dict[str, Any]:
    """Return median, 99th percentile and number of samples; None for both without samples."""
    if not len(samples):
        return {"p50": None, "p99": None, "n": 0}
    p50, p99 = np.percentile(samples, (50, 99))
    return {"p50": float(p50), "p99": float(p99), "n": len(samples)}


def take_turns(turns: Mapping[str, Turn], n_rounds: int) -> dict[str, dict[str, list[float]]]:
    """Call every contender once per round, in random order, so that disturbances hit all alike.

    Returns contender -> stage -> times. The garbage collector runs between rounds only.
    """
    taken: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in turns}
    draw, names = random.Random(0), list(turns)
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for number in range(n_rounds):
            draw.shuffle(names)
            for name in names:
                for stage, spent in turns[name](number).items():
                    taken[name][stage].append(spent)
            gc.collect(0)
    finally:
        if was_enabled:
            gc.enable()
    return {name: dict(stages) for name, stages in taken.items()}

"""Taking turns, and what is said of many times."""

from __future__ import annotations

import gc
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Times = dict[str, float]
"""Milliseconds by stage."""

Turn = Callable[[int], Times]
"""One measurement, given the number of the round."""


def summary(samples: Sequence[float]) -> dict[str, Any]:
    """Median, 99th percentile and number of samples; without one, Nones."""
    if not samples:
        return {"p50": None, "p99": None, "n": 0}
    p50, p99 = np.percentile(samples, (50, 99))
    return {"p50": float(p50), "p99": float(p99), "n": len(samples)}


def summaries(samples: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    """`summary` of each stage."""
    return {stage: summary(each) for stage, each in samples.items()}


def take_turns(turns: Mapping[str, Turn], n_rounds: int, seed: int = 0) -> dict[str, dict[str, list[float]]]:
    """Every contender once a round, in an order drawn anew for each: whatever disturbs, disturbs all alike, and
    nobody always runs on the caches that the same neighbour leaves. Returns name -> stage -> times."""
    taken: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in turns}
    draw, names = random.Random(seed), list(turns)
    collecting = gc.isenabled()
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
        if collecting:
            gc.enable()
    return {name: dict(stages) for name, stages in taken.items()}


def total(times: Times, stages: Iterable[str]) -> float:
    """Sum over those of the stages that were timed."""
    return sum(times[stage] for stage in stages if stage in times)

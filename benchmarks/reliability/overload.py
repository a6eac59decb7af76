"""Offer three times the load that the service can handle.

    python -m benchmarks.reliability.overload --seconds 600
    python -m benchmarks.reliability.overload --mixed --seconds 120

Measures one client alone, then the capacity (many clients), then offers three times the capacity with a deadline of
twice the unloaded p99, then measures one client alone again two seconds later. What must hold: only 200 and 503,
503 only with Retry-After and within 5 ms, p99 of accepted requests within twice the unloaded one, and unloaded
times afterwards. With fewer than four cores the service's times are judged, because the clients share its
cores; runs of less than a minute do not judge times.

With `--mixed` the requests are of all kinds (`kinds`), in the same proportions throughout and with default
deadlines: no kind may be served less than half as often as its part of the capacity.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import orjson

from benchmarks.reliability.command import Outcome, log, run_command
from benchmarks.reliability.service_process import ServiceTarget, target_for
from benchmarks.reliability.traffic import (
    CLIENT_NICENESS,
    PATIENT,
    Draw,
    Tally,
    TrafficConnection,
    closed_loop,
    closed_loop_of,
    design_request,
    is_filter,
    judged_by,
    open_loop,
    open_loop_of,
    request,
)
from model_store.checkpoint import GoldenCase
from model_store.store import ModelStore
from prime_anc.client import Take, wire

OVERLOAD = 3.0
DEADLINE_OVER_P99 = 2.0
RECOVERS_WITHIN_S = 2.0
# Allowed ratio of p99 after to before; 500 requests scatter that much.
RECOVERED_OVER_UNLOADED = 1.5
SHED_WITHIN_MS = 5.0
JUDGED_FROM_S = 60.0
N_MANY = 16
LEAST_SHARE = 0.5


@dataclass
class Overload(Outcome):
    """Times in ms, p50 and p99, at the client and the server."""

    unloaded: dict[str, Any] = field(default_factory=dict)
    capacity_per_s: float = 0.0
    deadline_ms: float = 0.0
    accepted: dict[str, Any] = field(default_factory=dict)
    shed: dict[str, Any] = field(default_factory=dict)
    applied: dict[int, int] = field(default_factory=dict)
    statuses: dict[int, int] = field(default_factory=dict)
    recovered: dict[str, Any] = field(default_factory=dict)
    # With `--mixed`, by kind: `share`, requests served per second over the same in a capacity test; statuses and times.
    kinds: dict[str, dict[str, Any]] = field(default_factory=dict)

    def judge_shares(self) -> None:
        """Record kinds that were served too little as mistakes."""
        for name, found in self.kinds.items():
            if found["share"] < LEAST_SHARE:
                text = f"{name}: {found['share']:.2f} of its share was served, at least {LEAST_SHARE} is expected"
                self.mistakes[text] += 1

    def judge(self) -> None:
        """Record times that are too long as mistakes."""
        kind = judged_by()
        unloaded_ms = self.unloaded[kind]["p99"]
        for what, found_ms, allowed_ms in (
            ("accepted", self.accepted[kind]["p99"], DEADLINE_OVER_P99 * unloaded_ms),
            ("shed", self.shed[kind]["p99"], SHED_WITHIN_MS),
            ("recovered", self.recovered[kind]["p99"], RECOVERED_OVER_UNLOADED * unloaded_ms),
        ):
            if found_ms > allowed_ms:
                self.mistakes[f"{what}: p99 is {found_ms:.1f} ms, at most {allowed_ms:.1f} ms is allowed"] += 1


async def run(target: ServiceTarget, for_s: float, n_alone: int, outcome: Overload) -> None:
    """Overload a service for a time; n_alone: requests of one client, before and after."""
    port, golden = target.service.port, target.checkpoint.golden

    def add(tally: Tally) -> Tally:
        outcome.mistakes += tally.mistakes
        return tally

    plain = design_request(golden, "/refine?k=1", PATIENT)
    await closed_loop(port, plain, 20)
    outcome.unloaded = add(await closed_loop(port, plain, n_alone)).accepted()
    began = time.perf_counter()
    add(await closed_loop(port, plain, 4 * n_alone, N_MANY))
    outcome.capacity_per_s = 4 * n_alone / (time.perf_counter() - began)
    unloaded_ms = outcome.unloaded[judged_by()]["p99"]
    outcome.deadline_ms = DEADLINE_OVER_P99 * unloaded_ms
    log(f"one client: p99 {unloaded_ms:.1f} ms; {N_MANY} clients: {outcome.capacity_per_s:.1f}/s")
    urgent = design_request(golden, "/refine?k=1", {"X-Deadline-Ms": f"{outcome.deadline_ms:.3f}"})
    loaded = add(await open_loop(port, urgent, OVERLOAD * outcome.capacity_per_s, for_s))
    outcome.accepted, outcome.shed = loaded.accepted(), loaded.shed()
    outcome.applied, outcome.statuses = dict(loaded.applied), dict(loaded.statuses)
    await asyncio.sleep(RECOVERS_WITHIN_S)
    outcome.recovered = add(await closed_loop(port, plain, n_alone)).accepted()


async def run_mixed(target: ServiceTarget, for_s: float, n_alone: int, outcome: Overload) -> None:
    """Overload a service with requests of every kind."""
    port = target.service.port
    contents = await kinds(target.checkpoint.golden, port)
    names, weights, random = list(contents), [weight for _, weight in contents.values()], Random(0)

    def tallies() -> tuple[dict[str, Tally], Draw]:
        """Return empty tallies by kind, and a function that draws requests for them."""
        found = {name: Tally(is_filter if name == "binary" else _is_object) for name in names}

        def draw() -> tuple[bytes, Tally]:
            (name,) = random.choices(names, weights)
            return contents[name][0], found[name]

        return found, draw

    alone, draw = tallies()
    await closed_loop_of(port, draw, n_alone)
    began = time.perf_counter()
    many, draw = tallies()
    await closed_loop_of(port, draw, 4 * n_alone, N_MANY)
    took_s = time.perf_counter() - began
    outcome.capacity_per_s = 4 * n_alone / took_s
    log(f"{N_MANY} clients: {outcome.capacity_per_s:.1f}/s")
    loaded, draw = tallies()
    await open_loop_of(port, draw, OVERLOAD * outcome.capacity_per_s, for_s)
    for name, tally in loaded.items():
        outcome.mistakes += tally.mistakes
        served_per_s, capacity_per_s = tally.statuses[200] / for_s, many[name].statuses[200] / took_s
        outcome.kinds[name] = {
            "share": served_per_s / max(capacity_per_s, 1 / took_s),
            "statuses": dict(tally.statuses),
            "unloaded": alone[name].accepted(),
            "accepted": tally.accepted(),
            "shed": tally.shed(),
        }


async def kinds(golden: GoldenCase, port: int) -> dict[str, tuple[bytes, int]]:
    """Return requests by name, with their percentages. JSON is short, except `long_json`."""
    primary, secondary = np.asarray(golden.primary)[:512], np.asarray(golden.secondary)[:256]
    known = {"primary": primary, "secondary": secondary}
    binary = design_request(golden, "/refine?k=1")
    connection = TrafficConnection(port)
    taps = np.frombuffer((await connection.ask(binary)).body, "<f4")
    connection.close()
    noise = np.random.default_rng(0).standard_normal(96_000).astype(np.float32)
    off, loudspeaker = (np.convolve(noise, item)[: len(noise)] for item in (primary, 0.35 * secondary))
    takes = wire.takes([Take(0.0, noise, off), Take(0.35, noise, off - loudspeaker)])
    recordings = wire.encode_request({"sample_rate": wire.RATE_HZ, "takes": takes})

    def json_request(path: str, **more: object) -> bytes:
        paths = {name: {"impulse_response": item.tolist()} for name, item in known.items()}
        body = json.dumps({"sample_rate": 48_000, **paths, **more}).encode()
        return request("POST", path, body, {"Content-Type": "application/json"})

    return {
        "binary": (binary, 70),
        "json": (json_request("/refine?k=3"), 15),
        "evaluate": (json_request("/evaluate", fir=taps.tolist()), 5),
        "export": (json_request("/export", fir=taps.tolist(), target={"n_sections": 4}), 5),
        "calibrate": (request("POST", "/calibrate", recordings, {"Content-Type": "application/x-safetensors"}), 5),
    }


def _is_object(body: bytes) -> bool:
    return isinstance(orjson.loads(body), dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.overload", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--alone", type=int, default=500, help="requests of one client, before and after")
    parser.add_argument("--niceness", type=int, default=CLIENT_NICENESS, help="of the clients")
    parser.add_argument("--mixed", action="store_true", help="requests of all kinds")
    outcome = Overload()

    def work(options: argparse.Namespace, service_options: Sequence[str]) -> None:
        with target_for(ModelStore().load("bose-qc20"), *service_options) as target:
            os.nice(options.niceness)
            kind = run_mixed if options.mixed else run
            asyncio.run(kind(target, options.seconds, options.alone, outcome))
        if options.seconds >= JUDGED_FROM_S:
            (outcome.judge_shares if options.mixed else outcome.judge)()

    return run_command("overload", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

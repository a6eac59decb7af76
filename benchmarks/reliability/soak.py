"""Send a million requests and check whether the service's memory grows.

    python -m benchmarks.reliability.soak --requests 1000000

Designs with 0 to 3 updates, every method and several conditions, refused requests, and small forms of known attacks, in
random order from several clients. Resident memory is read every 10,000 requests; its median over the last tenth of the
run may exceed that over the second tenth, after warm-up, by at most 1 %.

A request refused for load is repeated after a pause: on a busy machine a design for several conditions, up to a hundred
times as long as others, may delay those behind it too much. More than TRIES refusals in a row are a mistake.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import re
import struct
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import NamedTuple

import numpy as np

from benchmarks.reliability.command import Outcome, counted, run_command
from benchmarks.reliability.service_process import ServiceTarget, target_for
from benchmarks.reliability.traffic import (
    PATIENT,
    TrafficConnection,
    design_body,
    design_request,
    is_filter,
    request,
)
from model_store.checkpoint import GoldenCase
from model_store.store import ModelStore
from prime_anc.client import wire
from prime_anc.method.methods import STARTS

SAMPLE_EVERY, MIN_SAMPLES = 10_000, 20
MAX_DRIFT = 0.01
TRIES, PAUSE_S = 20, 0.5
# Code of a problem document.
_CODE = re.compile(rb'"type":"[^"]*[:/#]([a-z-]+)"')


class Kind(NamedTuple):
    """A request, its expected status, and its frequency in about 400 requests."""

    content: bytes
    status: int
    weight: int


def kinds(golden: GoldenCase) -> dict[str, Kind]:
    """Return the mixture, by name."""

    def design(path: str, status: int, weight: int) -> Kind:
        return Kind(design_request(golden, path, PATIENT), status, weight)

    json_type = {"Content-Type": "application/json", **PATIENT}
    tensors_type = {"Content-Type": wire.MEDIA_TYPE, **PATIENT}
    return {
        "k=0": design("/refine?k=0", 200, 60),
        "k=1": design("/refine?k=1", 200, 60),
        "k=2": design("/refine?k=2", 200, 4),
        "k=3": design("/refine?k=3", 200, 4),
        **{name: design(f"/refine?k=1&method={name}", 200, 4) for name in ("ratio_base", "wmmse", *STARTS)},
        "two conditions": Kind(_conditions_request(golden, 2), 200, 1),
        "three conditions": Kind(_conditions_request(golden, 3, "&leave_one_out=true"), 200, 1),
        "k out of range": design("/refine?k=99", 422, 110),
        "unknown model": design("/synthesize?model=nobody", 404, 60),
        "cut tensors": Kind(request("POST", "/synthesize", design_body(golden)[:-4], tensors_type), 400, 60),
        "empty conditions": Kind(request("POST", "/refine", _empty_conditions(20_000), json_type), 422, 10),
        "WAV of empty chunks": Kind(request("POST", "/calibrate", _wav_of_empty_chunks(2_000), json_type), 422, 2),
        "odd Accept": Kind(
            request("GET", "/metrics", headers={"Accept": "application/openmetrics-text;version=zz"}), 200, 2
        ),
    }


def _conditions_request(golden: GoldenCase, n: int, more: str = "") -> bytes:
    """Compose a request of n conditions (at most three) with a latency and feedback paths; more: options."""
    primary, secondary = np.asarray(golden.primary), np.asarray(golden.secondary)
    conditions = [
        wire.paths(primary, gain * secondary, feedback=np.float32(0.01) * secondary) | {"weight": weight}
        for gain, weight in ((np.float32(1), 2.0), (np.float32(0.8), 1.0), (np.float32(1.2), 1.0))[:n]
    ]
    body = wire.encode_request({"sample_rate": 48_000, "conditions": conditions, "latency_samples": 1.5})
    headers = {"Content-Type": wire.MEDIA_TYPE, "Accept": "application/octet-stream", **PATIENT}
    return request("POST", f"/refine?k=1{more}", body, headers)


@dataclass
class Soak(Outcome):
    """Result of a soak."""

    n_requests: int = 0
    # Refusals that were followed by another try.
    n_refused: int = 0
    per_s: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    # Relative growth of resident memory from the second tenth of the run to the last.
    drift: float = 0.0
    # The same in bytes.
    drift_bytes: int = 0
    # Pairs of requests answered and memory.
    resident_bytes: list[tuple[int, int]] = field(default_factory=list)

    def measure_drift(self) -> None:
        """Compute the drift from the samples so far."""
        samples = [resident for _, resident in self.resident_bytes]
        tenth = max(len(samples) // 10, 1)
        if len(samples) > tenth:
            warm, last = (median(samples[part]) for part in (slice(tenth, 2 * tenth), slice(-tenth, None)))
            self.drift, self.drift_bytes = last / warm - 1, round(last - warm)


async def run(target: ServiceTarget, n_requests: int, n_clients: int, outcome: Soak) -> None:
    """Send n requests."""
    mixture = kinds(target.checkpoint.golden)
    names, weights = list(mixture), [kind.weight for kind in mixture.values()]
    left, began = counted(n_requests, "requests"), time.perf_counter()
    draw = Random(0)
    sample_every = max(min(SAMPLE_EVERY, n_requests // MIN_SAMPLES), 1)

    async def client() -> None:
        connection = TrafficConnection(target.service.port)
        for number in left:
            name = names[number] if number < len(names) else draw.choices(names, weights)[0]
            for _ in range(TRIES):
                answer = await connection.ask(mixture[name].content)
                if answer.status != 503:
                    break
                outcome.n_refused += 1
                await asyncio.sleep(PAUSE_S)
            outcome.statuses[f"{name}: {answer.status}"] += 1
            if answer.status != mixture[name].status:
                code = _CODE.search(answer.body)
                found = f"{answer.status} {code.group(1).decode() if code else ''}"
                outcome.mistakes[f"{name}: status {found}, not {mixture[name].status}"] += 1
            elif name != "odd Accept" and answer.status == 200 and not is_filter(answer.body):
                outcome.mistakes["an answer that is not a filter"] += 1
            outcome.n_requests += 1
            if outcome.n_requests % sample_every == 0:
                resident = await asyncio.to_thread(target.service.resident_bytes)
                outcome.resident_bytes.append((outcome.n_requests, resident))
                outcome.per_s = outcome.n_requests / (time.perf_counter() - began)
                outcome.measure_drift()
        connection.close()

    await asyncio.gather(*(client() for _ in range(n_clients)))


def _empty_conditions(n_bytes: int) -> bytes:
    """Compose a design request of many empty objects."""
    return b'{"conditions":[' + b"{}," * (n_bytes // 3) + b"{}]}"


def _wav_of_empty_chunks(n_chunks: int) -> bytes:
    """Compose a calibration whose recordings are WAV files of empty chunks."""
    chunks = b"junk\0\0\0\0" * n_chunks
    wav = b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks
    signal = {"wav": base64.b64encode(wav).decode()}
    return json.dumps({"takes": [{"gain": gain, "x": signal, "e": signal} for gain in (0, 0.5)]}).encode()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.soak", description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=16)
    outcome = Soak()

    def work(options: argparse.Namespace, service_options: Sequence[str]) -> None:
        with target_for(ModelStore().load("bose-qc20"), *service_options) as target:
            asyncio.run(run(target, options.requests, options.clients, outcome))
        if outcome.drift > MAX_DRIFT:
            outcome.mistakes[f"memory grew by {outcome.drift:.1%}"] += 1

    return run_command("soak", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

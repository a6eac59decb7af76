"""Send JSON of a megabyte without pause, and see what a binary client notices.

    python -m benchmarks.reliability.long_json --turns 10 --seconds 10

A client asks for designs at a steady rate, in turns alone and beside one that sends both spectra and a reference
spectrum as lists, one request after the other. What must hold: every answer is a filter, and the p99 of the binary
client by the service's own times is at most 1.2 times that without the other. Runs of less than a minute of each
do not judge times.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from benchmarks.reliability.command import Outcome, run_command
from benchmarks.reliability.service_process import Target, target_for
from benchmarks.reliability.traffic import (
    CLIENT_NICENESS,
    PATIENT,
    Connection,
    Tally,
    design_request,
    open_loop,
    request,
)
from benchmarks.timing import summary
from model_store.golden import GoldenCase
from model_store.store import ModelStore
from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ

PER_S = 50.0
SETTLE_S = 0.5
MAX_SLOWDOWN = 1.2
JUDGED_FROM_S = 60.0


@dataclass
class LongJson(Outcome):
    """alone, beside: the service's times of the binary client, p50 and p99 in ms. n_long: JSON answers."""

    alone: dict[str, Any] = field(default_factory=dict)
    beside: dict[str, Any] = field(default_factory=dict)
    n_long: int = 0
    long_bytes: int = 0

    def judge(self) -> None:
        """Add to the mistakes what took too long."""
        alone_ms, beside_ms = self.alone["p99"], self.beside["p99"]
        if beside_ms > MAX_SLOWDOWN * alone_ms:
            self.mistakes[
                f"p99 is {beside_ms:.1f} ms, at most {MAX_SLOWDOWN:g} x {alone_ms:.1f} ms is allowed"
            ] += 1


def json_request(golden: GoldenCase) -> bytes:
    """A design of which all is sent as lists of numbers, about a megabyte."""
    document: dict[str, Any] = {"sample_rate": SAMPLE_RATE_HZ}
    for name, path in (("primary", golden.primary), ("secondary", golden.secondary)):
        spectrum = np.fft.rfft(np.asarray(path), DESIGN_N_FFT).astype(np.complex64)
        document[name] = {"real": spectrum.real.copy(), "imag": spectrum.imag.copy()}
    document["reference_psd"] = np.full(DESIGN_N_FFT // 2 + 1, 1.2345678e-9, np.float32)
    body = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    binary = {"Content-Type": "application/json", "Accept": "application/octet-stream"}
    return request("POST", "/refine?k=1", body, binary | PATIENT)


async def run(target: Target, n_turns: int, for_s: float, outcome: LongJson) -> None:
    """Ask for designs for so many seconds alone and so many beside the other client, in turns."""
    port, golden = target.service.port, target.checkpoint.golden
    plain, long = design_request(golden, "/refine?k=1", PATIENT), json_request(golden)
    outcome.long_bytes = len(long)
    others = Tally()

    async def send_json() -> None:
        connection = Connection(port)
        try:
            while True:
                others.add(await connection.ask(long))
        finally:
            connection.close()

    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(n_turns):
        for beside in times:
            sending = asyncio.create_task(send_json()) if beside else None
            await asyncio.sleep(SETTLE_S)
            tally = await open_loop(port, plain, PER_S, for_s)
            times[beside] += tally.accepted_server_ms
            outcome.mistakes += tally.mistakes
            if sending is not None:
                sending.cancel()
                await asyncio.wait([sending])
    outcome.alone, outcome.beside = summary(times[False]), summary(times[True])
    outcome.mistakes += others.mistakes
    outcome.n_long = others.statuses[200]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.long_json", description=__doc__)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each part of a turn")
    parser.add_argument("--niceness", type=int, default=CLIENT_NICENESS, help="of the clients")
    outcome = LongJson()

    def work(options: argparse.Namespace, service_options: Sequence[str]) -> None:
        with target_for(ModelStore().load("default"), *service_options) as target:
            os.nice(options.niceness)
            asyncio.run(run(target, options.turns, options.seconds, outcome))
        if options.turns * options.seconds >= JUDGED_FROM_S:
            outcome.judge()

    return run_command("long_json", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

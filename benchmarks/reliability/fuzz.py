"""Send malformed requests and check that all are answered or refused.

    python -m benchmarks.reliability.fuzz --bodies 1000000 --examples 200

Binary bodies first: valid ones of every form with flipped bits, missing, doubled and inserted bytes, random header
fields, and NaN, infinity and the limits of float32 for numbers. Then schemathesis draws valid and invalid requests from
the OpenAPI document. Expected: no 5xx except a 503 with Retry-After, and no NaN in an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from benchmarks.reliability.command import Outcome, counted, log, run_command
from benchmarks.reliability.service_process import MODEL, ServiceProcess, ServiceTarget, target_for
from benchmarks.reliability.traffic import ANSWER_BYTES, TrafficConnection
from model_store.golden import GoldenCase
from model_store.store import ModelStore
from prime_anc_client import Take, wire
from synthesis.methods import STARTS

FLOATS = tuple(
    struct.pack("<f", value)
    for value in (np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38, -3.4e38, 1e-45, 1e-38, 1e19, 1e-19, 1.0)
)
LENGTHS = (0, 1, 2, 2048, 2049, 4097, 16_384, 16_385, 32_768, 32_769, 65_536, 2**31 - 1, 2**31, 2**32 - 1)
DESIGN_PATHS = {
    "/synthesize": 16,
    "/refine": 8,
    "/refine?k=1": 8,
    "/refine?k=8&profile=paper": 1,
    "/synthesize?method=wmmse": 2,
    "/refine?method=wmmse": 2,
    "/synthesize?method=ratio_base": 4,
    **{f"/refine?method={name}": 4 for name in STARTS},
    "/synthesize?sign=plus": 4,
    "/refine?sign=plus": 4,
}
# Relative frequencies of paths and forms; slow ones are rare.
SHARES = {"design": 20, "inference": 4, "calibration": 1}

# A request may have an impossible deadline; the mutated bodies check Retry-After of such answers.
SCHEMATHESIS_CONFIG = '[checks]\nnot_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503]\n'
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@dataclass
class Fuzz(Outcome):
    """Result of fuzzing."""

    n_bodies: int = 0
    bodies_per_s: float = 0.0
    # Statuses of the mutated bodies, by form.
    statuses: Counter[str] = field(default_factory=Counter)
    # Codes of their refusals.
    codes: Counter[str] = field(default_factory=Counter)
    # Its exit status; None if it did not run.
    schemathesis: int | None = None
    schemathesis_output: str = ""


@dataclass(frozen=True)
class Form:
    """One kind of binary body."""

    # Addresses with relative frequencies.
    paths: dict[str, int]
    # Valid bodies, short enough that mutations hit relevant bytes.
    bodies: list[bytes]
    # Further headers of the request.
    headers: str = ""
    media_type: str = wire.MEDIA_TYPE
    accept: str = "application/octet-stream"

    def request(self, draw: Random) -> bytes:
        """Compose a request with a mutated body."""
        (path,) = draw.choices(list(self.paths), list(self.paths.values()))
        body = mutated(draw.choice(self.bodies), draw)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAccept: {self.accept}\r\nX-Deadline-Ms: 60000\r\n"
        head += f"Content-Type: {self.media_type}\r\nContent-Length: {len(body)}\r\n{self.headers}\r\n"
        return head.encode() + body


def forms(golden: GoldenCase) -> dict[str, Form]:
    """Return all forms, with bodies of the golden case's paths."""
    primary, secondary = np.asarray(golden.primary)[:512], np.asarray(golden.secondary)[:256]
    p, s = (np.fft.rfft(item, 4096).astype(np.complex64) for item in (primary, secondary))
    designs = [
        wire.encode(primary, secondary),
        wire.encode(primary, secondary, np.asarray(golden.coherence)),
        wire.encode(p, s),
        wire.encode(p, s, np.full(2049, 0.9, np.float32)),
    ]
    inference, n_json = _inference_body({"primary": p, "secondary": s})
    noise = np.random.default_rng(0).standard_normal(3072).astype(np.float32)
    off, loudspeaker = (np.convolve(noise, item)[: len(noise)] for item in (primary, 0.35 * secondary))
    takes = [Take(0.0, noise, off), Take(0.35, noise, off - loudspeaker)]
    return {
        "design": Form(DESIGN_PATHS, designs),
        "inference": Form(
            {f"/v2/models/{MODEL}/infer": 1},
            [inference],
            f"Inference-Header-Content-Length: {n_json}\r\n",
            "application/octet-stream",
        ),
        "calibration": Form(
            {"/calibrate": 3, "/calibrate?n_windows=3": 1}, [wire.encode_takes(takes)], accept=wire.MEDIA_TYPE
        ),
    }


def _inference_body(paths: dict[str, NDArray[np.complex64]]) -> tuple[bytes, int]:
    """Compose a request of the Open Inference Protocol with binary tensors; also the length of its JSON part."""
    inputs = [
        {
            "name": name,
            "shape": [len(path), 2],
            "datatype": "FP32",
            "parameters": {"binary_data_size": path.nbytes},
        }
        for name, path in paths.items()
    ]
    document = json.dumps({"inputs": inputs, "parameters": {"k": 1, "binary_data_output": True}}).encode()
    return document + b"".join(path.tobytes() for path in paths.values()), len(document)


def mutated(body: bytes, draw: Random) -> bytes:
    """Mutate a body with one to four faults."""
    mutant = bytearray(body)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(max(len(mutant), 1))
        numbers = re.findall(rb"[0-9]+", bytes(mutant[:1000]))
        match draw.randrange(6):
            case 0 if mutant:
                mutant[place] ^= 1 << draw.randrange(8)
            case 1:
                del mutant[place : place + draw.randint(1, 64)]
            case 2:
                mutant[place:place] = draw.randbytes(draw.randint(1, 64))
            case 3:
                mutant += mutant[place : place + 4096]
            case 4 if numbers:  # a number in the header: shapes and offsets
                mutant = mutant.replace(draw.choice(numbers), str(draw.choice(LENGTHS)).encode(), 1)
            case _ if len(mutant) > 4:
                at = len(mutant) % 4 + 4 * draw.randrange(len(mutant) // 4)
                mutant[at : at + 4] = draw.choice(FLOATS)
    return bytes(mutant)


def numbers_of(form: str, answer: bytes) -> NDArray[np.float32]:
    """Extract the float32 numbers of a binary answer: a filter, a filter after JSON, or tensors of paths."""
    begin = 8 + int.from_bytes(answer[:8], "little")
    content = {"design": answer, "inference": answer[-ANSWER_BYTES:], "calibration": answer[begin:]}[form]
    return np.frombuffer(content, "<f4")


async def send_mutants(target: ServiceTarget, n_bodies: int, n_clients: int, seed: int, outcome: Fuzz) -> None:
    """Send mutated bodies."""
    known, left, draw = forms(target.checkpoint.golden), counted(n_bodies, "bodies"), Random(seed)
    began = time.perf_counter()

    async def client() -> None:
        connection = TrafficConnection(target.service.port)
        for _ in left:
            (form,) = draw.choices(list(SHARES), list(SHARES.values()))
            answer = await connection.ask(known[form].request(draw))
            outcome.statuses[f"{form}: {answer.status}"] += 1
            if answer.status == 200:
                if len(answer.body) < ANSWER_BYTES or not np.isfinite(numbers_of(form, answer.body)).all():
                    outcome.mistakes[f"{form}: an answer without finite numbers"] += 1
            elif answer.status >= 500 and not (answer.status == 503 and answer.has_retry_after):
                outcome.mistakes[f"{form}: status {answer.status}"] += 1
            else:
                code = (
                    json.loads(answer.body).get("type", "").rsplit(":", 1)[-1]
                )  # answers of the inference protocol have none
                outcome.codes[f"{form}: {code}"] += 1
            outcome.n_bodies += 1
            outcome.bodies_per_s = outcome.n_bodies / (time.perf_counter() - began)
        connection.close()

    await asyncio.gather(*(client() for _ in range(n_clients)))
    if any("Traceback" in line for line in target.service.log):
        outcome.mistakes["a traceback in the log"] += 1


PHASES = ("examples", "coverage", "fuzzing")


def check_document(
    service: ServiceProcess, n_examples: int, seed: int, outcome: Fuzz, phases: Sequence[str] = PHASES
) -> None:
    """Test all operations of the OpenAPI document with schemathesis."""
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"http://127.0.0.1:{service.port}/openapi.json",
        f"--checks={CHECKS}",
        f"--max-examples={n_examples}",
        f"--seed={seed}",
        f"--phases={','.join(phases)}",
        "--request-timeout=60",
        "--continue-on-failure",
        "--no-color",
        "--warnings=off",
    ]
    log("schemathesis: started")
    with tempfile.TemporaryDirectory() as folder:  # it leaves files in its working folder
        Path(folder, "schemathesis.toml").write_text(SCHEMATHESIS_CONFIG)
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    outcome.schemathesis = done.returncode
    if done.returncode:
        outcome.schemathesis_output = "\n".join(line[:400] for line in done.stdout.splitlines())[-8000:]
        outcome.mistakes["schemathesis"] += 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.fuzz", description=__doc__)
    parser.add_argument("--bodies", type=int, default=1_000_000)
    parser.add_argument("--examples", type=int, default=200, help="number per operation; 0: no schemathesis")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    outcome = Fuzz()

    def work(options: argparse.Namespace, service_options: Sequence[str]) -> None:
        with target_for(ModelStore().load("bose-qc20"), *service_options) as target:
            asyncio.run(send_mutants(target, options.bodies, options.clients, options.seed, outcome))
            if options.examples:
                check_document(target.service, options.examples, options.seed, outcome)

    return run_command("fuzz", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

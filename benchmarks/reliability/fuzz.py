"""Send what nobody would, and see that it is read or refused.

    python -m benchmarks.reliability.fuzz --bodies 1000000 --examples 200

Binary bodies: good ones of every form (paths, tensors of the Open Inference Protocol, takes of a calibration), then
bits turned over, bytes cut off, doubled and inserted, header fields drawn anew, numbers replaced by NaN, infinity
and the edges of float32; half of those with a checksum get one that matches again, so that they are read to the
end. Then the OpenAPI document: schemathesis draws requests from it, good and bad, and holds the answers to it. What
must hold: no 5xx but a 503 that says when to come back, and no NaN in an answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from benchmarks import long_form
from benchmarks.reliability.served import Served, served
from benchmarks.reliability.traffic import ANSWER_BYTES, Connection
from model_store.checkpoint import Checkpoint
from model_store.golden import GoldenCase
from model_store.store import ModelStore
from service.calibration import take_wire
from service.calibration.takes import ProbeTake
from service.designs import Float32
from service.formats import wire
from service.formats.open_inference import HEADER_LENGTH
from synthesis.calibration import MIN_SAMPLES

MODEL = "fuzzed"
FLOATS = tuple(
    struct.pack("<f", value)
    for value in (np.nan, np.inf, -np.inf, 0.0, -0.0, 3.4e38, -3.4e38, 1e-45, 1e-38, 1e19, 1e-19, 1.0)
)
LENGTHS = (0, 1, 2, 2048, 2049, 4097, 16_384, 16_385, 32_768, 32_769, 65_536, 2**31 - 1, 2**31, 2**32 - 1)
DESIGNS = {
    "/synthesize": 16,
    "/refine": 8,
    "/refine?k=1": 8,
    "/refine?k=8&profile=paper": 1,
    "/synthesize?method=wmmse": 2,
    "/refine?method=wmmse": 2,
    "/synthesize?method=ratio_base": 4,
    "/refine?method=ratio_base": 4,
    "/synthesize?method=projected_ratio": 4,
    "/refine?method=projected_ratio": 4,
    "/synthesize?sign=plus": 4,
    "/refine?sign=plus": 4,
}
INFER = f"/v2/models/{MODEL}/infer"
SHARES = {"paths": 20, "tensors": 4, "takes": 1}
"""How often each address and each form is drawn; what takes long is rare."""
# A deadline of a millisecond cannot be met, and the document says so; `_mutants` looks closer at such answers.
CONFIGURATION = '[checks]\nnot_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", 503]\n'
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@dataclass
class Outcome:
    """statuses: of the mutated bodies, by form. schemathesis: its exit status, 0: nothing found; None: not run."""

    n_bodies: int = 0
    bodies_per_s: float = 0.0
    statuses: Counter[str] = field(default_factory=Counter)
    schemathesis: int | None = None
    found: str = ""
    mistakes: Counter[str] = field(default_factory=Counter)


def run(
    checkpoint: Checkpoint,
    n_bodies: int,
    n_examples: int,
    seed: int,
    *arguments: str,
    n_clients: int = 8,
    into: Outcome | None = None,
) -> Outcome:
    """Fuzz a service of its own. n_examples: for each operation of the document; 0 leaves it out."""
    outcome = Outcome() if into is None else into
    with tempfile.TemporaryDirectory() as folder:
        store = ModelStore(Path(folder), include_bundled=False)
        store.publish(MODEL, checkpoint)
        with served(store.root, "--model", MODEL, *arguments) as service:
            asyncio.run(_mutants(service, checkpoint.golden, n_bodies, n_clients, Random(seed), outcome))
            if n_examples:
                _document(service, n_examples, seed, outcome)
            if any("Traceback" in line for line in service.log):
                outcome.mistakes["a traceback in the log"] += 1
    return outcome


@dataclass(frozen=True)
class Form:
    """One kind of binary body.

    addresses: with how often each is asked. bodies: good ones, short enough that most of a mutation's bytes matter.
    header_bytes: after which float32 follow. fields: places of the header's numbers. checksum_at: place of that of
    what follows the header, where there is one. numbers: those of an answer. headers: of a request.
    """

    addresses: dict[str, int]
    bodies: list[bytes]
    header_bytes: int
    fields: tuple[int, ...]
    checksum_at: int | None
    numbers: Callable[[bytes], Float32]
    headers: str = ""

    def asked(self, draw: Random) -> bytes:
        """A request with a mutant."""
        (address,) = draw.choices(list(self.addresses), list(self.addresses.values()))
        body = mutated(draw.choice(self.bodies), draw, self)
        head = f"POST {address} HTTP/1.1\r\nHost: x\r\nAccept: application/octet-stream\r\nX-Deadline-Ms: 60000\r\n"
        head += f"Content-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n{self.headers}\r\n"
        return head.encode() + body


def forms(golden: GoldenCase) -> dict[str, Form]:
    """Every form, good bodies made of the golden ear's paths."""
    primary, secondary = golden.primary.numpy()[:512], golden.secondary.numpy()[:256]
    p, s = (np.fft.rfft(each, 4096).astype(np.complex64) for each in (primary, secondary))
    coherence = np.full(2049, 0.9, np.float32)
    paths = [
        wire.encode(primary, secondary),
        wire.encode(primary, secondary, golden.coherence.numpy()),
        wire.encode(p, s),
        wire.encode(p, s, coherence),
    ]
    tensors, n_json = _tensors({"primary": p, "secondary": s})
    noise = np.random.default_rng(0).standard_normal(MIN_SAMPLES).astype(np.float32)
    errors = [fftconvolve(noise, primary)[: len(noise)], 0.35 * fftconvolve(noise, secondary)[: len(noise)]]
    takes = [ProbeTake(0.0, noise, errors[0]), ProbeTake(0.35, noise, errors[0] - errors[1])]
    return {
        "paths": Form(DESIGNS, paths, wire.HEADER_BYTES, (0, 4, 6, 8, 12, 16, 24), 20, _all_of(0)),
        "tensors": Form(
            {INFER: 1},
            [tensors],
            n_json,
            (),
            None,
            lambda answer: np.frombuffer(answer[-ANSWER_BYTES:], "<f4"),
            f"{HEADER_LENGTH}: {n_json}\r\n",
        ),
        "takes": Form(
            {"/calibrate": 3, "/calibrate?n_windows=3": 1},
            [take_wire.encode(takes)],
            take_wire.HEADER_BYTES,
            (0, 4, 6, 8, 12, 20, 32, 36, 40, 44),
            16,
            _all_of(wire.HEADER_BYTES),
        ),
    }


def _all_of(header_bytes: int) -> Callable[[bytes], Float32]:
    return lambda answer: np.frombuffer(answer[header_bytes:], "<f4")


def _tensors(paths: dict[str, NDArray[np.complex64]]) -> tuple[bytes, int]:
    """An inference request with binary tensors, and the length of its JSON object."""
    inputs = [
        {
            "name": name,
            "shape": [len(each), 2],
            "datatype": "FP32",
            "parameters": {"binary_data_size": each.nbytes},
        }
        for name, each in paths.items()
    ]
    document = json.dumps({"inputs": inputs, "parameters": {"k": 1, "binary_data_output": True}}).encode()
    return document + b"".join(each.tobytes() for each in paths.values()), len(document)


def mutated(body: bytes, draw: Random, form: Form) -> bytes:
    """A body with one to four faults, half the time with a checksum that matches what is there."""
    mutant = bytearray(body)
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(max(len(mutant), 1))
        match draw.randrange(6):
            case 0 if mutant:
                mutant[place] ^= 1 << draw.randrange(8)
            case 1:
                del mutant[place : place + draw.randint(1, 64)]
            case 2:
                mutant[place:place] = draw.randbytes(draw.randint(1, 64))
            case 3:
                mutant += mutant[place : place + 4096]
            case 4 if form.fields and len(mutant) >= form.fields[-1] + 4:
                struct.pack_into("<I", mutant, draw.choice(form.fields), draw.choice(LENGTHS))
            case _ if len(mutant) > form.header_bytes + 4:
                at = form.header_bytes + 4 * draw.randrange((len(mutant) - form.header_bytes) // 4)
                mutant[at : at + 4] = draw.choice(FLOATS)
    if form.checksum_at is not None and draw.random() < 0.5 and len(mutant) >= form.header_bytes:
        struct.pack_into("<I", mutant, form.checksum_at, zlib.crc32(mutant[form.header_bytes :]))
    return bytes(mutant)


async def _mutants(
    service: Served, golden: GoldenCase, n_bodies: int, n_clients: int, draw: Random, outcome: Outcome
) -> None:
    kinds, left = forms(golden), long_form.counted(n_bodies, "bodies")
    began = time.perf_counter()

    async def client() -> None:
        connection = Connection(service.port)
        for _ in left:
            (kind,) = draw.choices(list(SHARES), list(SHARES.values()))
            answer = await connection.ask(kinds[kind].asked(draw))
            outcome.statuses[f"{kind}: {answer.status}"] += 1
            if answer.status == 200:
                numbers = kinds[kind].numbers(answer.body)
                if len(answer.body) < ANSWER_BYTES or not np.isfinite(numbers).all():
                    outcome.mistakes[f"{kind}: an answer that is none"] += 1
            elif answer.status >= 500 and not (answer.status == 503 and answer.says_when):
                outcome.mistakes[f"{kind}: status {answer.status}"] += 1
            outcome.n_bodies += 1
            outcome.bodies_per_s = outcome.n_bodies / (time.perf_counter() - began)
        connection.close()

    await asyncio.gather(*(client() for _ in range(n_clients)))


def _document(service: Served, n_examples: int, seed: int, outcome: Outcome) -> None:
    """Let schemathesis go through every operation."""
    command = [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"http://127.0.0.1:{service.port}/openapi.json",
        f"--checks={CHECKS}",
        f"--max-examples={n_examples}",
        f"--seed={seed}",
        "--phases=examples,coverage,fuzzing",
        "--request-timeout=60",
        "--continue-on-failure",
        "--no-color",
        "--warnings=off",
    ]
    with tempfile.TemporaryDirectory() as folder:  # it leaves files where it runs
        Path(folder, "schemathesis.toml").write_text(CONFIGURATION)
        code, printed = _run(command, folder)
    outcome.schemathesis = code
    if code:
        outcome.found = "\n".join(line[:400] for line in printed.splitlines())[-8000:]
        outcome.mistakes["schemathesis"] += 1


def _run(command: Sequence[str], folder: str) -> tuple[int, str]:
    """Exit status and output of a program that does not tell how far it has come."""
    began = time.monotonic()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=folder
    ) as process:
        try:
            while True:
                try:
                    printed, _ = process.communicate(timeout=long_form.TELL_EVERY_S)
                    return process.returncode, printed
                except subprocess.TimeoutExpired:
                    long_form.say(f"schemathesis: {long_form.as_time(time.monotonic() - began)} so far")
        except BaseException:
            process.kill()
            raise


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the long form; the exit status says whether it held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.fuzz", description=__doc__)
    parser.add_argument("--bodies", type=int, default=1_000_000)
    parser.add_argument(
        "--examples", type=int, default=200, help="of each operation of the document; 0: leave it out"
    )
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    outcome = Outcome()

    def work(options: argparse.Namespace, rest: Sequence[str]) -> None:
        run(
            ModelStore().load("default"),
            options.bodies,
            options.examples,
            options.seed,
            *rest,
            n_clients=options.clients,
            into=outcome,
        )

    return long_form.main("fuzz", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

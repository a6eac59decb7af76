"""Break what a service stands on while it serves, and see that it goes on.

    python -m benchmarks.reliability.faults

Clients ask for designs all the time while, one after the other: checkpoints are damaged in the store (weights that
are not numbers, cut short, a bit turned over, a link in a file's place) and their loading is asked for; the process
that reads long JSON is killed, then the one that designs; a publisher runs out of disk. What must hold: each fault
is refused or recovered from, every client is given the old model's filter throughout, and the store lists what it
listed before. (A GPU whose memory is full: `tests/service/engine/test_engine.py`.)
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from benchmarks import long_form
from benchmarks.long_form import say
from benchmarks.reliability.served import Served, served
from benchmarks.reliability.traffic import Tally, in_turn, request
from model_store.checkpoint import Checkpoint
from model_store.manifest import Manifest, sha256
from model_store.store import ModelStore
from model_store.version_folder import MANIFEST_DIGEST_FILE, MANIFEST_FILE, manifest_digest_line

MODEL, DAMAGED = "serving", "damaged"
KEY = "operator"
N_CLIENTS = 2
LONG_JSON = b'{"primary": {"impulse_response": [0.5' + b", 0.125" * 20_000 + b"]}}"
"""Long enough to be read in a process of its own; what it says is refused, for its length."""


@dataclass
class Outcome:
    """faults: what came of each. n_answers: filters that clients were given meanwhile."""

    faults: dict[str, str] = field(default_factory=dict)
    n_answers: int = 0
    mistakes: Counter[str] = field(default_factory=Counter)


def _not_numbers(weights: Path) -> None:
    """With digests that are right, so that it is the numbers that are found."""
    tensors = load_file(weights)
    _writable(weights)
    save_file({name: torch.full_like(tensor, torch.nan) for name, tensor in tensors.items()}, weights)
    file = _writable(weights.parent / MANIFEST_FILE)
    manifest = Manifest.from_bytes(file.read_bytes())
    manifest.files[weights.name] = sha256(weights.read_bytes())
    file.write_bytes(manifest.to_bytes())
    _writable(weights.parent / MANIFEST_DIGEST_FILE).write_bytes(manifest_digest_line(manifest.to_bytes()))


def _cut_short(weights: Path) -> None:
    _writable(weights).write_bytes(weights.read_bytes()[:-100])


def _bit_turned_over(weights: Path) -> None:
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    _writable(weights).write_bytes(content)


def _linked(weights: Path) -> None:
    elsewhere = weights.parents[2] / "elsewhere.safetensors"
    weights.parent.chmod(0o755)
    weights.rename(elsewhere)
    weights.symlink_to(elsewhere)


def _writable(file: Path) -> Path:
    file.parent.chmod(0o755)
    file.chmod(0o644)
    return file


DAMAGES: dict[str, Callable[[Path], None]] = {
    "weights that are not numbers": _not_numbers,
    "a checkpoint cut short": _cut_short,
    "a bit turned over": _bit_turned_over,
    "a link in a file's place": _linked,
}


def run(checkpoint: Checkpoint, *arguments: str, into: Outcome | None = None) -> Outcome:
    """Break a service of its own in every way."""
    outcome = Outcome() if into is None else into
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        store = ModelStore(Path(folder), include_bundled=False)
        store.publish(MODEL, checkpoint)
        for number, damage in enumerate(DAMAGES.values()):
            version = store.publish(f"{DAMAGED}-{number}", checkpoint)
            damage(next(version.folder.glob("generator*")))
        keys = ("--management-keys", f'["{digest}"]')
        with served(store.root, "--model", MODEL, *keys, *arguments) as service:
            asyncio.run(_break(service, store, checkpoint, outcome))
    return outcome


async def _break(service: Served, store: ModelStore, checkpoint: Checkpoint, outcome: Outcome) -> None:
    tally, listed = Tally(), store.list()
    plain = request(checkpoint.golden, "/refine?k=1", {"X-Deadline-Ms": "60000"})
    expected = (await _filters(service, plain, Tally()))[0]
    is_over = asyncio.Event()

    async def client() -> None:
        while not is_over.is_set():
            for found in await _filters(service, plain, tally):
                if np.abs(found - expected).max() > 1e-3 * np.abs(expected).max():
                    outcome.mistakes["another filter"] += 1

    async def seen(name: str, fault: Callable[[], str]) -> None:
        outcome.faults[name] = await asyncio.to_thread(fault)
        say(f"{name}: {outcome.faults[name]}")

    clients = [asyncio.create_task(client()) for _ in range(N_CLIENTS)]
    for number, name in enumerate(DAMAGES):
        await seen(name, partial(_refused_load, service, f"{DAMAGED}-{number}"))
    if Path("/proc/self/task").exists():
        await seen("a killed process that reads", partial(_killed_reader, service))
        if _designers(service):  # on a GPU there is none
            await seen("a killed process that designs", partial(_killed_designer, service, plain))
    await seen("a full disk", partial(_full_disk, store))
    is_over.set()
    await asyncio.gather(*clients)
    outcome.n_answers = tally.statuses[200]
    outcome.mistakes += tally.mistakes
    outcome.mistakes.update(f"status {status}" for status in tally.statuses if status != 200)
    if store.list() != listed:
        outcome.mistakes["the store has changed"] += 1
    outcome.mistakes.update(name for name, found in outcome.faults.items() if "as it should be" not in found)


async def _filters(service: Served, content: bytes, tally: Tally) -> list[np.ndarray]:
    """The filter that one client is given now."""
    once = await in_turn(service.port, content, 1)
    tally.statuses += once.statuses
    tally.mistakes += once.mistakes
    return [np.frombuffer(once.last, "<f4")] if once.statuses[200] else []


def _refused_load(service: Served, name: str) -> str:
    status, body = service.ask("POST", f"/models/{name}/load", b"", {"Authorization": f"Bearer {KEY}"})
    code = json.loads(body).get("type", "").rsplit(":", 1)[-1]
    leaks = b"/" in body.replace(b"application/", b"") or b"Traceback" in body
    held = status == 503 and code == "model-unavailable" and not leaks
    return f"{status} {code}{', as it should be' if held else ''}"


def _children(service: Served) -> dict[int, bytes]:
    """Processes that the service has started, and their command lines."""
    files = Path(f"/proc/{service.process.pid}/task").glob("*/children")
    return {
        int(child): Path(f"/proc/{child}/cmdline").read_bytes()
        for file in files
        for child in file.read_text().split()
    }


def _designers(service: Served) -> list[int]:
    """The process that designs: the service's own program, forked."""
    return [child for child, command in _children(service).items() if b"-m\0service" in command]


def _killed_designer(service: Served, plain: bytes) -> str:
    """Kill the process that designs, and ask at once."""
    designers = _designers(service)
    for each in designers:
        os.kill(each, signal.SIGKILL)
    answered = asyncio.run(in_turn(service.port, plain, 1)).statuses
    held = ", as it should be" if designers and answered[200] else ""
    return f"{len(designers)} killed, then {', '.join(map(str, answered))}{held}"


def _killed_reader(service: Served) -> str:
    """Kill every process that reads, then have long JSON read."""
    readers = [child for child, command in _children(service).items() if b"spawn_main" in command]
    for reader in readers:
        os.kill(reader, signal.SIGKILL)
    patient = {"Content-Type": "application/json", "X-Deadline-Ms": "60000"}  # a new process imports all anew
    status, _ = service.ask("POST", "/synthesize", LONG_JSON, patient)
    return f"{len(readers)} killed, then {status}{', as it should be' if readers and status == 422 else ''}"


_PUBLISH = """
import resource, signal, sys
from pathlib import Path
from model_store.store import ModelStore
store = ModelStore(Path(sys.argv[1]), include_bundled=False)
checkpoint = store.load(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
store.publish("half", checkpoint)
"""


def _full_disk(store: ModelStore) -> str:
    """Publish in a process whose files may not grow, which is what a full disk does to them."""
    command = [sys.executable, "-c", _PUBLISH, str(store.root), MODEL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    left = [each.name for each in store.root.iterdir() if each.name.startswith("half") and any(each.iterdir())]
    held = done.returncode != 0 and not left
    return f"publishing ended with {done.returncode}, {len(left)} left over{', as it should be' if held else ''}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the long form; the exit status says whether it held."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.faults", description=__doc__)
    outcome = Outcome()

    def work(_: argparse.Namespace, rest: Sequence[str]) -> None:
        run(ModelStore().load("default"), *rest, into=outcome)

    return long_form.main("faults", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

"""Break what a running service depends on and see that it goes on serving.

    python -m benchmarks.reliability.faults

While clients ask for designs, checkpoints in the store are damaged (NaN weights, a truncated file, a flipped bit, a
link in place of a file) and then loaded, and a publisher runs out of disk space. What must hold: each fault is
refused, every client gets the old model's filter throughout, and the store lists what it listed before.
(`tests/service/engine` covers a GPU that is out of memory.)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from benchmarks.reliability.command import Outcome, log, run_command
from benchmarks.reliability.service_process import MANAGEMENT, MODEL, Target, target_for
from benchmarks.reliability.traffic import PATIENT, Tally, closed_loop, design_request
from model_store.manifest import Manifest, sha256
from model_store.store import ModelStore
from model_store.version_folder import GENERATOR_FILE, MANIFEST_DIGEST_FILE, MANIFEST_FILE, manifest_digest_line

N_CLIENTS = 2


@dataclass
class Faults(Outcome):
    """found: what became of each fault. n_answers: filters that clients received meanwhile."""

    found: dict[str, str] = field(default_factory=dict)
    n_answers: int = 0


def _not_numbers(weights: Path) -> None:
    """NaN under a correct digest, so that only the numbers can be found wrong."""
    tensors = {name: np.full_like(tensor, np.nan) for name, tensor in load_file(weights).items()}
    save_file(tensors, weights)
    file = weights.parent / MANIFEST_FILE
    manifest = Manifest.from_bytes(file.read_bytes())
    manifest.files[weights.name] = sha256(weights.read_bytes())
    file.write_bytes(manifest.to_bytes())
    (weights.parent / MANIFEST_DIGEST_FILE).write_bytes(manifest_digest_line(manifest.to_bytes()))


def _truncated(weights: Path) -> None:
    weights.write_bytes(weights.read_bytes()[:-100])


def _flipped_bit(weights: Path) -> None:
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)


def _linked(weights: Path) -> None:
    elsewhere = weights.parents[2] / "elsewhere.safetensors"
    weights.rename(elsewhere)
    weights.symlink_to(elsewhere)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "nan-weights": _not_numbers,
    "truncated": _truncated,
    "flipped-bit": _flipped_bit,
    "linked": _linked,
}


async def run(target: Target, outcome: Faults) -> None:
    """Break the store of a service in every way."""
    for name, damage in DAMAGES.items():
        folder = target.store.root / name / "1"
        shutil.copytree(target.store.resolve(MODEL).folder, folder, copy_function=shutil.copyfile)
        folder.chmod(0o755)
        damage(folder / GENERATOR_FILE)
    tally, listed = Tally(), target.store.list()
    content = design_request(target.checkpoint.golden, "/refine?k=1", PATIENT)
    expected = (await _filters(target, content, Tally()))[0]
    is_over = asyncio.Event()

    async def client() -> None:
        while not is_over.is_set():
            for found in await _filters(target, content, tally):
                if np.abs(found - expected).max() > 1e-3 * np.abs(expected).max():
                    outcome.mistakes["another filter"] += 1

    clients = [asyncio.create_task(client()) for _ in range(N_CLIENTS)]
    faults = {name: partial(_refused_load, target, name) for name in DAMAGES} | {
        "full-disk": partial(_full_disk, target.store)
    }
    for name, fault in faults.items():
        outcome.found[name], held = await asyncio.to_thread(fault)
        log(f"{name}: {outcome.found[name]}")
        if not held:
            outcome.mistakes[name] += 1
    is_over.set()
    await asyncio.gather(*clients)
    outcome.n_answers = tally.statuses[200]
    outcome.mistakes += tally.mistakes
    outcome.mistakes.update(f"status {status}" for status in tally.statuses if status != 200)
    if target.store.list() != listed:
        outcome.mistakes["the store has changed"] += 1
    for name in DAMAGES:
        shutil.rmtree(target.store.root / name)


async def _filters(target: Target, content: bytes, tally: Tally) -> list[np.ndarray]:
    """The filter that a client receives now; empty where it receives none."""
    once = await closed_loop(target.service.port, content, 1)
    tally.statuses += once.statuses
    tally.mistakes += once.mistakes
    return [np.frombuffer(once.last, "<f4")] if once.statuses[200] else []


def _refused_load(target: Target, name: str) -> tuple[str, bool]:
    status, body = target.service.ask("POST", f"/models/{name}/load", b"", MANAGEMENT)
    code = json.loads(body).get("type", "").rsplit(":", 1)[-1]
    leaks = str(target.store.root).encode() in body or b"Traceback" in body
    return f"{status} {code}", status == 503 and code == "model-unavailable" and not leaks


PUBLISH_WITHOUT_SPACE = """
import resource, signal, sys
from pathlib import Path
from model_store.store import ModelStore
store = ModelStore(Path(sys.argv[1]), include_bundled=False)
checkpoint = store.load(sys.argv[2])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
store.publish("half", checkpoint)
"""


def _full_disk(store: ModelStore) -> tuple[str, bool]:
    """Publish in a process whose files may not grow, as on a full disk."""
    command = [sys.executable, "-c", PUBLISH_WITHOUT_SPACE, str(store.root), MODEL]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    left = [each.name for each in store.root.iterdir() if each.name.startswith("half") and any(each.iterdir())]
    return f"publishing ended with {done.returncode}, {len(left)} folders left", done.returncode != 0 and not left


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.faults", description=__doc__)
    outcome = Faults()

    def work(_: argparse.Namespace, service_options: Sequence[str]) -> None:
        with target_for(ModelStore().load("default"), *service_options) as target:
            asyncio.run(run(target, outcome))

    return run_command("faults", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

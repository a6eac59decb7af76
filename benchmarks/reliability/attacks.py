"""Requests, store entries and options that once exhausted memory, blocked the service or ended in a traceback.

    python -m benchmarks.reliability.attacks

What must hold: each is answered (or refused at the start) within seconds and without a 5xx or a traceback, the
service's peak memory grows by no more than a few times what was sent, and a design is served afterwards.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.reliability.command import Outcome, log, run_command
from benchmarks.reliability.service_process import MODEL, Target, target_for
from benchmarks.reliability.traffic import design_body, is_filter
from model_store.store import ALIASES_FILE, ModelStore
from model_store.version_folder import MANIFEST_DIGEST_FILE, MANIFEST_FILE, manifest_digest_line

WITHIN_S, TIMEOUT_S, STARTS_WITHIN_S = 5.0, 20.0, 60.0
MEMORY_PER_BYTE = 4.0
SPARE_BYTES = 60_000_000
"""Peak memory may grow by this, and by four bytes for each byte of a request."""
ODD_ACCEPT = "application/openmetrics-text;version=zz"
JSON_TYPE = {"Content-Type": "application/json", "X-Deadline-Ms": "60000"}


@dataclass
class Attacks(Outcome):
    """found: what became of each attack. took_s: how long its answer took."""

    found: dict[str, str] = field(default_factory=dict)
    took_s: dict[str, float] = field(default_factory=dict)

    def judge(self) -> None:
        """Add to the mistakes what took too long."""
        for name, spent_s in self.took_s.items():
            if spent_s > WITHIN_S:
                self.mistakes[f"{name}: took {spent_s:.1f} s"] += 1


def empty_items(n_bytes: int) -> bytes:
    """A design request of many empty objects."""
    return b'{"items":[' + b"{}," * (n_bytes // 3) + b"{}]}"


def empty_takes(n_bytes: int) -> bytes:
    """A calibration of many empty objects."""
    return b'{"takes":[' + b"{}," * (n_bytes // 3) + b"{}]}"


def wav_of_empty_chunks(n_chunks: int) -> bytes:
    """A calibration whose recordings are WAV files of chunks without content."""
    chunks = b"junk\0\0\0\0" * n_chunks
    wav = b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks
    signal = {"wav": base64.b64encode(wav).decode()}
    return json.dumps({"takes": [{"gain": gain, "x": signal, "e": signal} for gain in (0, 0.5)]}).encode()


def run(target: Target, n_bytes: int, outcome: Attacks) -> None:
    """Try every attack; n_bytes: the size of the large ones."""
    service = target.service
    pid = service.process.pid

    def post(path: str, body: bytes) -> tuple[int, int]:
        return service.ask("POST", path, body, JSON_TYPE)[0], len(body)

    requests: dict[str, Callable[[], tuple[int, int]]] = {
        "trailers without end": lambda: _endless_trailers(service.port, 4 * n_bytes),
        "empty items": lambda: post("/refine", empty_items(min(n_bytes, 12_000_000))),
        "empty takes": lambda: post("/calibrate", empty_takes(n_bytes)),
        "WAV of empty chunks": lambda: post("/calibrate", wav_of_empty_chunks(n_bytes // 24)),
        "odd Accept": lambda: (service.ask("GET", "/metrics", headers={"Accept": ODD_ACCEPT})[0], 0),
        "odd store entries": lambda: (_odd_store_entries(target), 0),
    }
    for name, attack in requests.items():
        reset_peak_memory(pid)
        before, began = peak_memory(pid), time.monotonic()
        status, n_sent = attack()
        took_s, grown = time.monotonic() - began, peak_memory(pid) - before
        outcome.found[name] = f"status {status}, {took_s:.1f} s, {grown / 1e6:.0f} MB for {n_sent / 1e6:.1f} MB"
        log(f"{name}: {outcome.found[name]}")
        if status >= 500:
            outcome.mistakes[f"{name}: status {status}"] += 1
        outcome.took_s[name] = took_s
        if grown > SPARE_BYTES + MEMORY_PER_BYTE * n_sent:
            outcome.mistakes[f"{name}: memory grew by {grown / 1e6:.0f} MB for {n_sent / 1e6:.1f} MB"] += 1
    binary = {"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"}
    status, body = service.ask("POST", "/refine?k=1", design_body(target.checkpoint.golden), binary)
    if status != 200 or not is_filter(body):
        outcome.mistakes[f"a design afterwards: status {status}"] += 1
    if any("Traceback" in line for line in service.log):
        outcome.mistakes["a traceback in the log"] += 1
    for name, arguments in odd_options().items():
        outcome.found[name] = _start_with(name, arguments, outcome)


def _endless_trailers(port: int, n_bytes: int) -> tuple[int, int]:
    """Send trailers after an empty chunked body until the service closes; status of its answer and bytes sent."""
    line, n_sent = b"X-Trailer: " + 8000 * b"y" + b"\r\n", 0
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as connection:
        try:
            connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
            while n_sent < n_bytes:
                connection.sendall(line)
                n_sent += len(line)
            time.sleep(0.5)  # in which the service reads them
            answer = connection.recv(4096)
        except OSError:  # closed by the service
            try:
                answer = connection.recv(4096)
            except OSError:
                answer = b""
    # What was sent is not counted: nothing of it may stay in memory.
    return int(answer[9:12] or 0), 0


def _odd_store_entries(target: Target) -> int:
    """Put manifests and aliases into the store that no publisher writes; the worst status of GET /models."""
    root = target.store.root
    good = target.store.resolve(MODEL).folder
    manifest = json.dumps(json.loads((good / MANIFEST_FILE).read_text()) | {"seed": 0})
    odd = {
        "nested": b"[" * 200_000,
        "long-number": manifest.replace('"seed": 0', '"seed": ' + 4000 * "9").encode(),
    }
    for name, content in odd.items():
        folder = root / name / "1"
        shutil.copytree(good, folder, copy_function=shutil.copyfile)
        folder.chmod(0o755)
        (folder / MANIFEST_FILE).write_bytes(content)
        (folder / MANIFEST_DIGEST_FILE).write_bytes(manifest_digest_line(content))
    aliases = root / ALIASES_FILE
    before = aliases.read_bytes() if aliases.exists() else None
    statuses = [target.service.ask("GET", "/models")[0]]
    aliases.write_bytes(b"[" * 100_000)
    statuses.append(target.service.ask("GET", "/models")[0])
    aliases.unlink()
    if before is not None:
        aliases.write_bytes(before)
    for name in odd:
        shutil.rmtree(root / name)
    return max(statuses)


def odd_options() -> dict[str, tuple[str, ...]]:
    """Options that the service must refuse, or start with, at once."""
    return {
        "a FIFO of API keys": ("--api-keys-file", "{folder}/fifo"),
        "a store that is a file": ("--store", "{folder}/file"),
        "a store at an address that nothing can read": ("--store", "zip://a::file:///tmp/none.zip"),
    }


def _start_with(name: str, arguments: Sequence[str], outcome: Attacks) -> str:
    """Start a service with odd options: it must end or listen within `STARTS_WITHIN_S`, without a traceback."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkfifo(Path(folder, "fifo"))
        Path(folder, "file").write_bytes(b"")
        given = [each.format(folder=folder) for each in arguments]
        command = [sys.executable, "-m", "service", "--port", "0", "--device", "cpu", *given]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            late = threading.Timer(STARTS_WITHIN_S, process.kill)
            late.start()
            assert process.stderr is not None
            lines = []
            for line in process.stderr:
                lines.append(line)
                if "running on http" in line:
                    process.terminate()
            status = process.wait()
            late.cancel()
    found = f"ended with {status}"
    log(f"{name}: {found}")
    if status == -signal.SIGKILL:
        outcome.mistakes[f"{name}: neither ended nor listened"] += 1
    if any("Traceback" in line for line in lines):
        outcome.mistakes[f"{name}: a traceback"] += 1
    return found


def peak_memory(pid: int) -> int:
    """Largest resident memory of a process since `reset_peak_memory`, bytes."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return 1024 * int(found.group(1)) if found else 0


def reset_peak_memory(pid: int) -> None:
    """Begin anew with what is resident now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability.attacks", description=__doc__)
    parser.add_argument("--bytes", type=int, default=64_000_000, help="size of the large requests")
    outcome = Attacks()

    def work(options: argparse.Namespace, service_options: Sequence[str]) -> None:
        with target_for(ModelStore().load("default"), *service_options) as target:
            run(target, options.bytes, outcome)
        outcome.judge()

    return run_command("attacks", parser, arguments, outcome, work)


if __name__ == "__main__":
    sys.exit(main())

"""A service in a process of its own, and what is asked of it."""

from __future__ import annotations

import http.client
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

READY_WITHIN_S = 120.0
STOPPED_WITHIN_S = 60.0
POLL_S = 0.02

LEASHED = (
    "import ctypes, os, sys; prctl = getattr(ctypes.CDLL(None), 'prctl', None); prctl and prctl(1, 15); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
"""Program that becomes another one, which Linux tells to stop when we are gone (PR_SET_PDEATHSIG, SIGTERM)."""


@dataclass
class Served:
    """A service that is ready. log: its lines so far, read as they are written. ready_s: seconds from the start of
    its process until it was ready."""

    process: subprocess.Popen[str]
    port: int
    log: list[str]
    ready_s: float = 0.0

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """One request on a connection of its own: status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def resident_bytes(self) -> int:
        """Resident memory of the service and of its process that designs, from its own metrics."""
        _, text = self.ask("GET", "/metrics")
        found = [
            re.search(rb"^%s ([0-9.e+]+)" % name, text, re.MULTILINE)
            for name in (b"process_resident_memory_bytes", b"prime_design_process_memory_bytes")
        ]
        if found[0] is None:
            raise RuntimeError("found no process_resident_memory_bytes in the service's metrics")
        return sum(int(float(each.group(1))) for each in found if each)  # an older one designs itself


@contextmanager
def served(
    store: Path | None,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    checkout: Path | None = None,
) -> Iterator[Served]:
    """`python -m service` over a store, on a port of its own choosing, from ready until the block ends.

    store: by default the bundled one. checkout: whose service; by default the one that is imported here.
    """
    arguments = arguments if store is None else ("--store", str(store), *arguments)
    command = [sys.executable, "-c", LEASHED, "-m", "service", "--port", "0", *arguments]
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,  # ours may be a pipe that somebody reads to its end
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | dict(environment or {}),
        cwd=checkout,  # comes first where Python looks for modules
        process_group=0,  # a signal to our group, as Ctrl-C sends, is ours: we end the service
    )
    log: list[str] = []
    reader = threading.Thread(target=_read, args=(process, log), daemon=True)
    reader.start()
    try:
        found = Served(process, _port(process, log), log)
        _wait_until_ready(found)
        found.ready_s = time.monotonic() - started
        yield found
    finally:
        process.terminate()
        try:
            process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()
        assert process.stderr is not None
        process.stderr.close()


def _read(process: subprocess.Popen[str], log: list[str]) -> None:
    assert process.stderr is not None
    log.extend(iter(process.stderr.readline, ""))


def _port(process: subprocess.Popen[str], log: list[str]) -> int:
    given_up = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < given_up and process.poll() is None:
        if found := re.search(r"running on http://127\.0\.0\.1:(\d+)", "".join(log)):
            return int(found.group(1))
        time.sleep(POLL_S)
    raise RuntimeError("the service does not listen:\n" + "".join(log))


def _wait_until_ready(service: Served) -> None:
    given_up = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < given_up and service.process.poll() is None:
        if service.ask("GET", "/health/ready")[0] == 200:
            return
        time.sleep(POLL_S)
    raise RuntimeError("the service does not become ready:\n" + "".join(service.log))

"""A service in a separate process, for benchmarks and tests."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")
READY_WITHIN_S = 1200.0
STOPPED_WITHIN_S = 60.0
POLL_S = 0.02

# Launcher to which Linux sends SIGTERM when this process ends (PR_SET_PDEATHSIG).
STOPPED_WITH_PARENT = (
    "import ctypes, os, sys; prctl = getattr(ctypes.CDLL(None), 'prctl', None); prctl and prctl(1, 15); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


@dataclass
class ServiceProcess:
    """A ready service."""

    process: subprocess.Popen[str]
    port: int
    # Its lines so far.
    log: list[str]
    # Seconds from the start of the process to ready.
    ready_s: float = 0.0

    @property
    def address(self) -> str:
        """Return its URL."""
        return f"http://127.0.0.1:{self.port}"

    def logged(self, pattern: str) -> str:
        """Wait for a line of the log and return the pattern's group; RuntimeError if there is none in time."""
        found = self._wait(lambda: re.search(pattern, "".join(self.log)), f"logs no {pattern!r}")
        return found.group(1)

    def wait_until_ready(self) -> None:
        """Wait for 200 from `/health/ready`; RuntimeError if it does not come in time."""
        self._wait(lambda: self.ask("GET", "/health/ready")[0] == 200, "does not become ready")

    def _wait(self, look: Callable[[], Found | None], fault: str) -> Found:
        deadline = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < deadline and self.process.poll() is None:
            if found := look():
                return found
            time.sleep(POLL_S)
        raise RuntimeError(f"the service {fault}:\n" + "".join(self.log))

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Send one request on a new connection; return status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def resident_bytes(self) -> int:
        """Return the resident memory of the service and its child processes, shared memory counted repeatedly.

        Other programs with the same libraries do not affect it. Needs Linux's /proc.
        """
        total = 0
        for pid in self._processes():
            found = re.search(r"^Rss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
            total += 1024 * int(found.group(1)) if found else 0
        return total

    def _processes(self) -> list[int]:
        found = [self.process.pid]
        for pid in found:
            for file in Path(f"/proc/{pid}/task").glob("*/children"):
                found += [int(child) for child in file.read_text().split()]
        return found


@contextmanager
def started_service(store: Path | None, *arguments: str) -> Iterator[ServiceProcess]:
    """Run `python -m service` on a free port, from ready until the block ends.

    Parameters
    ----------
    store
        Folder of the store; by default the bundled one.
    arguments
        Further options of the service.
    """
    arguments = arguments if store is None else ("--store", str(store), *arguments)
    command = [sys.executable, "-c", STOPPED_WITH_PARENT, "-m", "service", "--port", "0", *arguments]
    began = time.monotonic()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,  # Ctrl-C reaches only this process, which then ends the service
    )
    assert process.stderr is not None
    log: list[str] = []
    reader = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
    reader.start()
    try:
        service = ServiceProcess(process, 0, log)
        service.port = int(service.logged(r"running on http://127\.0\.0\.1:(\d+)"))
        service.wait_until_ready()
        service.ready_s = time.monotonic() - began
        yield service
    finally:
        process.terminate()
        try:
            process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()
        process.stderr.close()

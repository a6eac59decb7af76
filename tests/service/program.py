"""`python -m service` as a process, for tests that need more than the application."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

# A slow machine is ready, and cuts no design short.
PATIENT = ("--deadline-ms", "60000", "--ready-budget-ms", "60000")


class Program:
    """`python -m service` on a free port, with its log read as it is written."""

    def __init__(self, store: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "service", "--port", "0", "--device", "cpu", "--threads", "1"]
        self.process = subprocess.Popen(
            [*command, "--store", str(store), "--model", "ears", *PATIENT, *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = int(self.logged(r"running on http://127\.0\.0\.1:(\d+)"))
        self.address = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(iter(self.process.stderr.readline, ""))

    def logged(self, pattern: str) -> str:
        """Wait for a line of the log and return the pattern's group."""
        given_up = time.monotonic() + 240
        while time.monotonic() < given_up:
            if found := re.search(pattern, "".join(self.log)):
                return found.group(1)
            time.sleep(0.02)
        pytest.fail(f"no {pattern!r} in the log:\n{''.join(self.log)}")

    def wait_until_ready(self, within_s: float = 240) -> None:
        given_up = time.monotonic() + within_s
        while time.monotonic() < given_up:
            if httpx.get(f"{self.address}/health/ready", timeout=60).status_code == 200:
                return
            time.sleep(0.05)
        pytest.fail(f"not ready:\n{''.join(self.log)}")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(120)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status

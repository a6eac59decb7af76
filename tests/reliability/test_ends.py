"""A long form that is told to stop, or is killed, leaves no service behind."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

WITHIN_S = 120.0

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")


def wait_for(what: str, found: Callable[[], bool]) -> None:
    given_up = time.monotonic() + WITHIN_S
    while not found():
        assert time.monotonic() < given_up, f"found no {what} after {WITHIN_S} s"
        time.sleep(0.05)


def services_of(pid: int) -> list[int]:
    """Processes that run the service and that this one has started."""
    files = Path(f"/proc/{pid}/task").glob("*/children")
    started = [int(child) for file in files for child in file.read_text().split()]
    return [child for child in started if b"-m\0service" in Path(f"/proc/{child}/cmdline").read_bytes()]


def is_running(pid: int) -> bool:
    """Whether there is such a process that is more than an entry in a table."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


TALKATIVE = """
import sys
from benchmarks import long_form
from benchmarks.reliability import soak

long_form.TELL_EVERY_S = 0.5
sys.exit(soak.main(sys.argv[1:]))
"""
"""The command, which else tells how far it has come every ten seconds."""


@contextmanager
def soaking(out: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A long form at work, and its service's process."""
    command = [sys.executable, "-c", TALKATIVE, "--device", "cpu", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for("service", lambda: bool(services_of(process.pid)))
            assert process.stderr is not None
            progress = (line for line in process.stderr if "requests" in line)
            assert "left" in next(progress)  # it tells how far it has come, so it is at work
            yield process, services_of(process.pid)[0]
        finally:
            process.kill()


def test_told_to_stop_it_ends_its_service_and_says_how_far_it_came(tmp_path: Path) -> None:
    file = tmp_path / "soak.json"
    with soaking(file) as (process, service):
        process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 130
        assert not is_running(service)
    verdict = json.loads(printed)
    assert verdict["interrupted"]
    assert not verdict["held"]
    assert not verdict["mistakes"]
    assert verdict["n_requests"] > 0
    written = json.loads(file.read_text())
    assert written["rows"][0]["n_requests"] == verdict["n_requests"]
    assert {"created", "device", "commit"} <= set(written["machine"])


def test_killed_it_takes_its_service_along(tmp_path: Path) -> None:
    with soaking(tmp_path / "soak.json") as (process, service):
        process.kill()
        process.wait()
        wait_for("end of the service", lambda: not is_running(service))
        assert not is_running(service)

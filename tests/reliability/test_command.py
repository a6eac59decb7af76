"""Common parts of the reliability commands: progress, an orderly end, a verdict."""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.reliability import command


def arguments(file: Path) -> tuple[str, ...]:
    return ("--device", "cpu", "--out", str(file), "--log-level", "error")


@pytest.mark.parametrize(
    ("mistake", "stop_signal", "status"),
    [(None, None, 0), ("a mistake", None, 1), (None, signal.SIGINT, 130)],
)
def test_verdict_is_printed_and_written(
    mistake: str | None,
    stop_signal: signal.Signals | None,
    status: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome, before, file = command.Outcome(), signal.getsignal(signal.SIGTERM), tmp_path / "new" / "outcome.json"

    def work(_: argparse.Namespace, service_options: Sequence[str]) -> None:
        assert list(service_options) == ["--device", "cpu", "--log-level", "error"]
        if mistake:
            outcome.mistakes[mistake] += 1
        if stop_signal:
            signal.raise_signal(stop_signal)
            outcome.mistakes["not stopped"] += 1

    assert command.run_command("nothing", argparse.ArgumentParser(), arguments(file), outcome, work) == status
    verdict = json.loads(capsys.readouterr().out.splitlines()[0])
    assert verdict["mistakes"] == ({mistake: 1} if mistake else {})
    assert (verdict["held"], verdict["interrupted"]) == (status == 0, stop_signal is not None)
    written = json.loads(file.read_text())
    assert written["rows"] == [{key: value for key, value in verdict.items() if key != "benchmark"}]
    assert {"created", "device", "commit"} <= set(written["machine"])
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux's /proc")
def test_killed_command_takes_service_along() -> None:
    program = (
        "from benchmarks.reliability.service_process import started_service; import time\n"
        "with started_service(None, '--device', 'cpu') as service:\n"
        "    print(service.process.pid, flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        pid = int(process.stdout.readline())
        process.kill()
    deadline = time.monotonic() + 60
    while _is_running(pid):
        assert time.monotonic() < deadline, "the service goes on"
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False

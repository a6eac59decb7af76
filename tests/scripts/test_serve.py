"""`scripts/serve.py` as a user meets it: it serves, designs, stops on Ctrl-C, and says when a port is taken."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVE = [sys.executable, str(ROOT / "scripts" / "serve.py")]


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.fixture
def serving(free_port: int, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    command = [*SERVE, "--port", str(free_port), "--device", "cpu", "--store", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as program:
        yield program
        if program.poll() is None:
            program.terminate()


def read_until(program: "subprocess.Popen[str]", text: str) -> str:
    """Output up to the line that starts with `text`; what there is when it ends before that."""
    assert program.stdout is not None
    give_up = threading.Timer(120, program.terminate)  # a kill would leave the service alone, and running
    give_up.start()
    lines = []
    for line in program.stdout:
        lines.append(line)
        if line.startswith(text):
            break
    give_up.cancel()
    return "".join(lines)


def test_serves_designs_and_stops_on_ctrl_c(serving: "subprocess.Popen[str]", free_port: int) -> None:
    shown = read_until(serving, "Ctrl-C here stops the service")
    assert f"The service answers at http://127.0.0.1:{free_port}" in shown, shown
    assert "predicted noise reduction" in shown
    with urllib.request.urlopen(f"http://127.0.0.1:{free_port}/models", timeout=120) as reply:
        assert json.load(reply)

    serving.send_signal(signal.SIGINT)
    shown = read_until(serving, "Stopped.")
    assert "Stopped." in shown, shown
    assert serving.wait(120) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", free_port), 1)


def test_taken_port_is_named_with_way_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = subprocess.run([*SERVE, "--port", str(port)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 1
    assert f"Cannot listen on 127.0.0.1 port {port}" in done.stderr
    assert f"make serve PORT={port + 1}" in done.stderr


def test_default_model_that_cannot_be_used_ends_wait(free_port: int, tmp_path: Path) -> None:
    (tmp_path / "generic").mkdir()
    (tmp_path / "generic" / f"1.{'0' * 64}.safetensors").touch()
    done = subprocess.run(
        [*SERVE, "--port", str(free_port), "--store", str(tmp_path)], capture_output=True, text=True, timeout=240
    )
    assert done.returncode != 0
    assert "The default model cannot be used" in done.stderr
    assert "generic/1.000" in done.stderr

"""`scripts/serve.py` as a user meets it: it serves, designs, stops on Ctrl-C, and says when a port is taken."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SERVE = [sys.executable, str(ROOT / "scripts" / "serve.py")]


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


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
        [*SERVE, "--port", str(free_port)],
        env=os.environ | {"PRIME_STORE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode != 0
    assert "The default model cannot be used" in done.stderr
    assert "generic/1.000" in done.stderr


def test_make_serve_leaves_store_to_environment() -> None:
    for given, n_options in (("HOST=::1", 0), ("STORE=models", 1)):
        # -o: nothing is installed.
        command = ["make", "-n", "-o", ".venv/.serving", "serve", given]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.stdout.count("--store") == n_options, done.stderr

"""The Dockerfile passes a linter, copies only files of its build context, and sets existing settings."""

import json
import re
import socket
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"
LOCK = (ROOT / "requirements.txt").read_text()
TEXT = re.sub(r"\\\n", " ", DOCKERFILE.read_text())


def test_hadolint_accepts_it() -> None:
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, DOCKERFILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("answering", ["PRIME_PORT", "PRIME_MANAGEMENT_PORT"])
def test_health_check_prefers_management_port(answering: str) -> None:
    """Clients may have used up the connections of the other port."""
    (command,) = re.findall(r"^HEALTHCHECK .*?CMD (\[.*\])$", TEXT, re.MULTILINE)
    check = [sys.executable, *json.loads(command)[1:]]

    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health/ready" else 404)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Healthy) as server, socket.create_server(("127.0.0.1", 0)) as silent:
        environment = {"PRIME_PORT": str(silent.getsockname()[1])} | {answering: str(server.server_port)}
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert subprocess.run(check, env=environment, timeout=20, stderr=subprocess.DEVNULL).returncode == 0


def test_served_packages_have_digests_of_pinned_versions() -> None:
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    blocks = re.findall(r"^([\w.-]+)==(\S+)(.*\n(?:    --hash=sha256:[0-9a-f]{64}.*\n?)+)", LOCK, re.MULTILINE)
    assert len(blocks) == len(re.findall(r"^[\w.-]+==", LOCK, re.MULTILINE))
    normalised = {re.sub(r"[_.]", "-", name).lower(): version for name, version in pins.items()}
    for name, version, _ in blocks:
        assert normalised.get(name, version) == version
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.match(r"[\w-]+", item)[0] for item in needed} <= {name for name, *_ in blocks}  # type: ignore[index]


def test_every_dependency_is_pinned() -> None:
    pins = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [item for extra in project["optional-dependencies"].values() for item in extra]
    requirements = [*project["dependencies"], *extras]
    names = {re.match(r"[\w-]+", item)[0] for item in requirements} - {"prime-anc"}  # type: ignore[index]
    assert names - {re.sub(r"[_.]", "-", pin).lower() for pin in pins} == set()

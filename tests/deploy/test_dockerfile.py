"""Dockerfile and Compose file pass a linter, copy only files of the build context, and set existing settings."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from service.settings import Settings, misspelt

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "Dockerfile"
TEXT = re.sub(r"\\\n", " ", DOCKERFILE.read_text())


def test_hadolint_accepts_it() -> None:
    program = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([program, DOCKERFILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")


def test_health_check_asks_configured_port() -> None:
    (command,) = re.findall(r"^HEALTHCHECK .*?CMD (\[.*\])$", TEXT, re.MULTILINE)
    check = [sys.executable, *json.loads(command)[1:]]

    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health/ready" else 404)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Healthy) as server:
        environment = {"PRIME_PORT": str(server.server_port)}
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert subprocess.run(check, env=environment, timeout=120, stderr=subprocess.DEVNULL).returncode == 0


def test_command_needs_only_what_is_copied(tmp_path: Path) -> None:
    """What the build context has and the Dockerfile copies."""
    ignored = (ROOT / ".dockerignore").read_text().split()
    for copied in re.findall(r"^COPY (?!-)(.*) \S+$", TEXT, re.MULTILINE):
        for item in copied.split():
            assert f"!{item}" in ignored or f"!{item.partition('/')[0]}" in ignored
            (tmp_path / item).parent.mkdir(exist_ok=True)
            (tmp_path / item).symlink_to(ROOT / item)
    code = "import service.app, prime_anc.cli.__main__ as cli; cli.main()"
    environment = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib")}  # without this checkout, as `-S` says
    command = [sys.executable, "-S", "-c", code, "--help"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


SERVICE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["service"]


def test_settings_exist_and_refuse_foreign_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the container does not listen on loopback."""
    assert misspelt(SERVICE["environment"]) == {}
    (default,) = re.findall(r"^\$\{PRIME_ALLOWED_HOSTS:-(.*)\}$", SERVICE["environment"]["PRIME_ALLOWED_HOSTS"])
    monkeypatch.setenv("PRIME_ALLOWED_HOSTS", default)
    assert Settings().allowed_hosts == ("localhost",)

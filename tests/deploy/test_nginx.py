"""Two replicas behind a real nginx: work is shared, and one that is killed under load is not noticed."""

import http.client
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.reliability.served import Served, served
from model_store.store import ModelStore
from service.formats import wire
from tests.service import models

CONFIGURATION = Path(__file__).resolve().parents[2] / "deploy" / "nginx" / "nginx.conf"
HEADERS = {"Content-Type": "application/octet-stream", "Accept": "application/octet-stream"}


def nginx() -> str:
    program = shutil.which("nginx")
    if program is None:
        pytest.skip("nginx is not on PATH (`make deploy-check` fetches it)")
    return program


def configured(folder: Path, port: int, replicas: tuple[int, ...]) -> list[str]:
    """The command for the deployment's own configuration, its addresses replaced."""
    text = CONFIGURATION.read_text()
    if os.geteuid() == 0:  # its workers would be somebody who may not look into a test's folder
        text = "user root;\n" + text
    for number, replica in enumerate(replicas):
        text = text.replace(f"server 127.0.0.1:{8000 + number} ", f"server 127.0.0.1:{replica} ")
    (folder / "nginx.conf").write_text(text.replace("listen 127.0.0.1:8080", f"listen 127.0.0.1:{port}"))
    return [nginx(), "-p", str(folder), "-c", str(folder / "nginx.conf")]


def test_nginx_accepts_its_configuration(tmp_path: Path) -> None:
    done = subprocess.run([*configured(tmp_path, 8080, (8000, 8001)), "-t"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[list[Served]]:
    """Two services over one store."""
    store = ModelStore(tmp_path / "store", include_bundled=False)
    store.publish("default", models.checkpoint(1))
    with ExitStack() as stack:
        yield [stack.enter_context(served(store.root, "--device", "cpu", "--threads", "1")) for _ in range(2)]


@pytest.fixture
def port(replicas: list[Served], tmp_path: Path) -> Iterator[int]:
    """Where nginx listens in front of them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path / "nginx"
    folder.mkdir()
    first, second = replicas
    process = subprocess.Popen(configured(folder, port, (first.port, second.port)))
    given_up = time.monotonic() + 20
    while time.monotonic() < given_up:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.02)
    yield port
    process.terminate()
    process.wait(20)


def n_designs(replica: Served) -> int:
    """Designs that a replica has answered, from its metrics."""
    _, text = replica.ask("GET", "/metrics")
    found = re.findall(rb'^prime_requests_total\{.*status="200"\} ([0-9.]+)', text, re.MULTILINE)
    return int(sum(float(each) for each in found))


def test_a_replica_killed_under_load_costs_no_answer(replicas: list[Served], port: int) -> None:
    primary, secondary = (each.numpy() for each in models.responses(7))
    body, outcomes, stop = wire.encode(primary, secondary), Counter[str](), threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        while not stop.is_set():
            connection.request("POST", "/synthesize", body, HEADERS)
            answer = connection.getresponse()
            outcomes[f"{answer.status} {len(answer.read())} bytes"] += 1
        connection.close()

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    before = wait_for(outcomes, 40)
    assert all(n_designs(replica) > 0 for replica in replicas)  # both are asked
    replicas[0].process.kill()
    replicas[0].process.wait()
    wait_for(outcomes, before + 40)
    stop.set()
    for client in clients:
        client.join()
    assert set(outcomes) == {"200 8192 bytes"}


def test_what_is_shed_keeps_nobody_else_out(port: int) -> None:
    """Refusals pass through with their Retry-After, and the next request is served."""
    primary, secondary = (each.numpy() for each in models.responses(7))
    body = wire.encode(primary, secondary)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def ask(deadline_ms: str) -> http.client.HTTPResponse:
        connection.request("POST", "/refine?k=3", body, HEADERS | {"X-Deadline-Ms": deadline_ms})
        answer = connection.getresponse()
        answer.read()
        return answer

    hurried = [ask("1") for _ in range(6)]
    shed = [each for each in hurried if each.status == 503]
    assert {each.status for each in hurried} <= {200, 503}  # an idle replica tries one now and then
    assert shed
    assert all(each.headers["Retry-After"] for each in shed)
    assert ask("60000").status == 200
    connection.close()


def test_a_calibration_may_be_longer_than_a_request(port: int) -> None:
    """It reaches the service, which finds that it is no recording."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", "/calibrate", bytes(12_000_000), {"Content-Type": "application/octet-stream"})
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Type"]) == (400, "application/problem+json")
    connection.close()


def wait_for(outcomes: Counter[str], n: int) -> int:
    given_up = time.monotonic() + 60
    while outcomes.total() < n and time.monotonic() < given_up:
        time.sleep(0.02)
    return outcomes.total()


def test_the_operator_s_endpoints_are_not_passed_on(port: int) -> None:
    for method, path, status in (
        ("GET", "/metrics", 404),
        ("POST", "/models/reload", 404),
        ("POST", "/models/default/load", 404),
        ("POST", "/models/default/unload", 404),
        ("GET", "/models/default", 200),
        ("GET", "/health/ready", 200),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request(method, path)
        assert connection.getresponse().status == status, path
        connection.close()

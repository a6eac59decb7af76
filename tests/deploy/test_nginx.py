"""Two replicas behind a real nginx share work; a killed or silent replica costs no answer."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from inspect import getclosurevars
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute, iter_route_contexts

from benchmarks.service_process import ServiceProcess, started_service
from model_store.store import ModelStore
from prime_anc.client import wire
from service.admission import MAX_BODY_BYTES, MAX_JSON_BYTES, MAX_RECORDINGS_BYTES
from service.api.state import Policy, operator_key
from service.app import create_app
from service.errors import HttpProblem
from service.server import KEEP_ALIVE_S
from service.settings import MAX_DEADLINE_MS, Settings
from tests.service import models
from tests.service.program import PATIENT, exchange, free_port, wait_for

CONFIGURATION = Path(__file__).resolve().parents[2] / "deploy" / "nginx" / "nginx.conf"
HEADERS = {"Content-Type": "application/x-safetensors", "Accept": "application/octet-stream"}
OVERLOADED, DESIGNED = "503 overloaded", b'status="200"'
# A design, on which requests do not depend.
BODY = wire.encode(*models.responses(7))


def configured(folder: Path, port: int, replicas: tuple[int, ...]) -> list[str]:
    """Return the command for the deployment's configuration with its addresses replaced."""
    nginx = shutil.which("nginx") or pytest.skip("nginx is not on PATH (`make programs` fetches it)")
    text = CONFIGURATION.read_text()
    if os.geteuid() == 0:  # nginx's workers could not read a test's folder
        text = "user root;\n" + text
    for number, replica in enumerate(replicas):
        text = text.replace(f"server 127.0.0.1:{8000 + number} ", f"server 127.0.0.1:{replica} ")
    text = re.sub(r"(client_(header|body)_timeout |fail_timeout=|flush=)\d+s", r"\g<1>1s", text)
    (folder / "nginx.conf").write_text(text.replace("listen 127.0.0.1:8080", f"listen 127.0.0.1:{port}"))
    return [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf")]


def test_optional_blocks_are_valid(tmp_path: Path) -> None:
    """TLS, quotas and the limits by client address, uncommented."""
    command, file = configured(tmp_path, 8080, (8000, 8001)), tmp_path / "nginx.conf"
    openssl = shutil.which("openssl") or pytest.skip("openssl is not on PATH")
    options = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=anc"]
    files = ["-keyout", tmp_path / "privkey.pem", "-out", tmp_path / "fullchain.pem"]
    subprocess.run([openssl, *options, *files], check=True, capture_output=True)
    text, n_used = re.subn(r"# (listen 443|ssl_|server_name|limit_)", r"\1", file.read_text())
    assert n_used == 11
    text = re.sub(r"listen 127.0.0.1:\d+;", "", text).replace("443", "0.0.0.0:18443")
    file.write_text(text.replace("/etc/ssl/anc", str(tmp_path)))
    done = subprocess.run([*command, "-t"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_lists_are_those_of_service() -> None:
    """Addresses with a long deadline, with recordings, and of the operator, and times that suffice."""
    text, settings = CONFIGURATION.read_text(), Settings()
    table = re.search(r'map "\$http_x_deadline_ms\$uri" \$is_long \{(.*?)\n    \}', text, re.DOTALL)
    assert table is not None
    rows = re.findall(r'"~(.*)" ([01]);', table[1])
    (recordings,) = re.findall(r"location ~ (\S*calibrate\S*) \{\n *client_max_body_size 64m;", text)
    (operators,) = re.findall(r"location ~ (\S*metrics\S*) \{", text)
    short_s, long_s = (float(re.findall(rf"proxy_read_timeout ({n})s", text)[0]) for n in (5, 70))
    assert settings.deadline_ms < 1e3 * short_s < settings.calibration_deadline_ms
    assert 1e3 * long_s > MAX_DEADLINE_MS

    def is_long(deadline: str, path: str) -> bool:
        return next((value for row, value in rows if re.search(row, deadline + path)), "1") == "1"

    n_policies = 0
    for route in iter_route_contexts(create_app(settings).routes):
        if not isinstance(route.original_route, APIRoute):
            continue
        path = (route.path or "").replace("{name}", "generic")
        needs = [item.call for item in route.dependant.dependencies]
        assert bool(re.search(operators, path)) == (operator_key in needs or path.endswith("/metrics")), path
        for policy in (getclosurevars(need).nonlocals.get("policy") for need in needs):
            if isinstance(policy, Policy):
                n_policies += 1
                assert is_long("", path) == policy.is_long, path
                assert bool(re.search(recordings, path)) == (policy.max_bytes == MAX_RECORDINGS_BYTES), path
                deadlines = ("999", "2000.5", "3000", "60000")
                assert [is_long(item, path) for item in deadlines] == [False, False, True, True]
    assert n_policies >= 14
    assert max(map(int, re.findall(r"keepalive_timeout (\d+)s", text))) < KEEP_ALIVE_S


@contextmanager
def in_front_of(ports: list[int], folder: Path, change: Callable[[str], str] = lambda text: text) -> Iterator[int]:
    """Yield the port of a new nginx with a changed configuration, in front of replicas at two ports."""
    port = free_port()
    command = configured(folder, port, (ports[0], ports[1]))
    file = folder / "nginx.conf"
    file.write_text(change(file.read_text()))
    process = subprocess.Popen(command)
    with socket.socket() as probe:
        wait_for(lambda: probe.connect_ex(("127.0.0.1", port)) == 0)
    yield port
    process.terminate()
    process.wait(120)


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServiceProcess]]:
    """Two replicas over one store; only the last test stops one."""
    store = ModelStore(tmp_path_factory.mktemp("store"), include_bundled=False)
    store.publish("generic", models.checkpoint(1))
    with ExitStack() as stack:
        yield [stack.enter_context(started_service(store.root, *PATIENT)) for _ in range(2)]


@pytest.fixture(scope="module")
def port(replicas: list[ServiceProcess], tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Port of nginx in front of the replicas."""
    with in_front_of([replica.port for replica in replicas], tmp_path_factory.mktemp("nginx")) as port:
        yield port


def post(port: int, path: str, body: bytes, **headers: str) -> httpx.Response:
    """POST on a new connection."""
    return httpx.post(f"http://127.0.0.1:{port}{path}", content=body, headers=HEADERS | headers, timeout=120)


def n_counted(replica: ServiceProcess, label: bytes) -> int:
    """Requests with a label, from a replica's metrics."""
    _, text = replica.ask("GET", "/metrics")
    found = re.findall(rb"^prime_requests_total\{.*" + label + rb".*\} ([0-9.]+)", text, re.MULTILINE)
    return int(sum(float(item) for item in found))


def test_quota_is_counted_by_key_and_logged(replicas: list[ServiceProcess], tmp_path: Path) -> None:
    def change(text: str) -> str:
        text = re.sub(r"# (limit_req_zone \$key .*|limit_req zone=keys .*)", r"\1", text)
        return text.replace("zone=keys:10m rate=50r/s", "zone=keys:10m rate=1r/m").replace("burst=100", "burst=1")

    with in_front_of([replica.port for replica in replicas], tmp_path, change) as port:

        def ask(**headers: str) -> httpx.Response:
            return httpx.get(f"http://127.0.0.1:{port}/models", headers=headers, timeout=60)

        assert [ask(Authorization="Bearer one").status_code for _ in range(3)] == [200, 200, 429]
        refused = ask(Authorization="Bearer one", **{"X-Request-Id": "mine"})
        assert refused.json()["type"] == "urn:prime-anc:problem:over-quota"
        assert (refused.headers["X-Request-Id"], refused.headers["Access-Control-Allow-Origin"]) == ("mine", "*")
        for written in (f"Bearer{60 * ' '}one", "\tBEARER \tone\t"):
            sent = f"GET /models HTTP/1.0\r\nAuthorization: {written}\r\n\r\n".encode()
            assert b" 429 " in exchange(port, sent).partition(b"\r\n")[0], written
        assert ask(Authorization="Bearer two").status_code == 200
        assert [ask().status_code for _ in range(4)] == [200] * 4
        log = tmp_path / "access.log"
        wait_for(lambda: "mine\n" in log.read_text())
    assert re.search(r' 127\.0\.0\.1 "GET /models" 429 [\d.]+ s mine\n', log.read_text())


def test_computed_request_is_not_repeated(replicas: list[ServiceProcess], port: int) -> None:
    """A request that one replica could not answer by its deadline is not sent to the other, nor blocks the next."""
    path = {"impulse_response": [1.0] * 2048}
    conditions = 16 * [{"primary": {"impulse_response": [0.0, 1.0]}, "secondary": path, "feedback": path}]
    body = json.dumps({"conditions": conditions, "sample_rate": 48_000}).encode()
    n_before = sum(n_counted(item, b'code="deadline-passed"') for item in replicas)
    headers = dict.fromkeys(("Content-Type", "Accept"), "application/json") | {"X-Deadline-Ms": "1000"}
    answer = post(port, "/refine?leave_one_out=true", body, **headers)
    assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (503, "deadline-passed")
    assert answer.headers["Retry-After"]
    assert sum(n_counted(item, b'code="deadline-passed"') for item in replicas) == n_before + 1
    assert statuses(port, 4) == [200] * 4


def statuses(port: int, n: int) -> list[int]:
    """Return the status of consecutive designs."""
    return [post(port, "/synthesize", BODY).status_code for _ in range(n)]


def test_silent_replica_is_skipped(replicas: list[ServiceProcess], port: int) -> None:
    """The replica accepts connections without answering, then recovers. Its request is not sent to the other replica,
    since it may have caused the silence.
    """
    assert set(statuses(port, 8)) == {200}
    silent = replicas[0]
    silent.process.send_signal(signal.SIGSTOP)
    try:
        began, found = time.monotonic(), statuses(port, 20)
        # It is tried again every second, of which a busy machine needs several for these.
        assert 1 <= found.count(503) <= 2 + (time.monotonic() - began) / 5
        assert set(found) == {200, 503}
    finally:
        silent.process.send_signal(signal.SIGCONT)
    before = n_counted(silent, DESIGNED)
    wait_for(lambda: bool(statuses(port, 4)) and n_counted(silent, DESIGNED) >= before + 3)


def test_dead_replicas_are_problem_to_retry(tmp_path: Path) -> None:
    with in_front_of([free_port()] * 2, tmp_path) as port:
        for deadline_ms in ("1000", "5000"):
            answer = post(port, "/refine", BODY, **{"X-Deadline-Ms": deadline_ms})
            assert (answer.status_code, answer.json()["type"]) == (503, "urn:prime-anc:problem:not-ready")
            assert answer.headers.keys() >= {"retry-after", "x-request-id"}


def test_too_large_body_gets_service_problem(port: int) -> None:
    limits = {"/refine": MAX_BODY_BYTES, "/v1/calibrate": MAX_RECORDINGS_BYTES}
    expected = HttpProblem("too-large", "").document()
    for path, limit in limits.items():
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("POST", path, headers={"Content-Length": str(limit + 1)})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Type"]) == (413, "application/problem+json")
        found = json.loads(answer.read())
        connection.close()
        assert found == found | expected | {"detail": found["detail"]}
        assert all(str(item) in found["detail"] for item in (*limits.values(), MAX_JSON_BYTES))
    # nginx cannot pass on the replica's answer, so its own text has to be right.
    answer = post(port, "/refine", b" " * (MAX_JSON_BYTES + 1), **{"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["title"]) == (413, "The body is too large")


def test_large_and_slow_requests_end_here(port: int, replicas: list[ServiceProcess]) -> None:
    """Heads that are too large or endless, and clients that send too slowly or nothing."""
    head = b"POST /refine HTTP/1.1\r\nHost: x\r\n"
    before = sum(n_counted(item, b'endpoint="/refine"') for item in replicas)
    assert exchange(port, head + b"X: " + b"y" * 17_000 + b"\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    many = b"".join(b"X-%d: %s\r\n" % (number, b"y" * 1000) for number in range(70))
    assert exchange(port, head + many + b"\r\n").startswith(b"HTTP/1.1 400 ")
    for begun in (b"", head, head + b"Content-Length: 5\r\n\r\n1"):
        assert exchange(port, begun) == b""
    assert sum(n_counted(item, b'endpoint="/refine"') for item in replicas) == before


def test_upgrade_offers_and_chunks_are_served(port: int) -> None:
    """A bare replica rejects both; nginx passes on a plain request of known length."""
    host = b"Host: 127.0.0.1:%d\r\n" % port
    head = b"POST /synthesize HTTP/1.1\r\n" + host + b"Content-Type: application/x-safetensors\r\n"
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    closing_head = head + b"Connection: close\r\n"
    chunked = closing_head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"
    # A page's request from the address that it was loaded from: the replica sees the same host.
    offer += b"Origin: http://127.0.0.1:%d\r\n" % port
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(head + offer + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 ")
    assert exchange(port, chunked).startswith(b"HTTP/1.1 200 ")


def test_operator_endpoints_are_not_passed_on(port: int) -> None:
    """Which addresses are the operator's is decided by the lists above."""
    answer = httpx.get(f"http://127.0.0.1:{port}/v1/metrics", timeout=120)
    expected = HttpProblem("not-found", "there is nothing at this address; see /openapi.json").document()
    assert (answer.status_code, answer.json()) == (404, expected)
    assert httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=120).status_code == 200


def test_replica_killed_under_load_costs_no_answer(replicas: list[ServiceProcess], port: int) -> None:
    """nginx passes requests to the other replica; a client whose answer was cut off repeats its request.

    The last test of this file, since it stops a replica.
    """
    outcomes, stop = Counter[str](), threading.Event()
    designed = [n_counted(replica, DESIGNED) for replica in replicas]

    def ask() -> None:
        while not stop.is_set():
            try:
                answer = post(port, "/synthesize", BODY)
                is_refused = answer.status_code == 503 and "overloaded" in answer.text
                outcomes[OVERLOADED if is_refused else f"{answer.status_code} {len(answer.content)} bytes"] += 1
            except httpx.RemoteProtocolError:
                outcomes["cut off"] += 1

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    wait_for(lambda: outcomes.total() >= 20)
    before = outcomes.total()
    for replica, n in zip(replicas, designed, strict=True):  # both receive requests
        assert n_counted(replica, DESIGNED) > n
    replicas[0].process.kill()
    replicas[0].process.wait()
    wait_for(lambda: outcomes.total() >= before + 20)
    stop.set()
    for client in clients:
        client.join()
    assert outcomes.pop("cut off", 0) <= len(clients)  # at most the answers being sent then
    del outcomes[OVERLOADED]  # a busy machine may be too slow for four clients at once
    assert set(outcomes) == {"200 8192 bytes"}

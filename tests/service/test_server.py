"""Limits of the server: number of connections, keys, a separate management listener."""

import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from prime_anc.client import Client, wire
from prime_anc.method.types import Paths
from tests.service.bodies import digest
from tests.service.program import Program, exchange, started, wait_for

MAX_CONNECTIONS = 30
# Origin of a page that may send requests.
APP = "https://app.example.org"


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the client keys `first` and `secret`."""
    file = tmp_path_factory.mktemp("keys") / "clients"
    file.write_text(f"one:{digest('first')}\nphones:{digest('secret')}\n")
    return file


@pytest.fixture(scope="module")
def program(store_folder: Path, keys_file: Path) -> Iterator[Program]:
    """A program with few connections, a key file and a management listener."""
    limits = ["--receive-timeout-s", "60", "--max-connections", str(MAX_CONNECTIONS), "--keep-alive-s", "3"]
    limits += ["--access-log", "--cors-origins", f'["{APP}"]']
    with started(store_folder, *limits, "--api-keys-file", str(keys_file), "--management-port", "0") as program:
        yield program


@pytest.fixture(scope="module")
def management(program: Program) -> str:
    """Address of the management listener."""
    return program.logged(r"Management on (http://127\.0\.0\.1:\d+)")


HEAD = b"POST /synthesize HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-safetensors\r\n"
FIRST = b"Authorization: Bearer first\r\n"


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Content-Length: 5, 5\r\n\r\nhello",
        b"Content-Length: +5\r\n\r\nhello",
        b"Content-Length : 5\r\n\r\nhello",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    ],
)
def test_ambiguous_length_is_rejected(program: Program, lines: bytes) -> None:
    """Otherwise a proxy and the service might disagree on where the next request begins."""
    assert exchange(program.port, HEAD + FIRST + lines).startswith(b"HTTP/1.1 400 ")


def test_too_many_connections_leave_management_reachable(program: Program, management: str) -> None:
    open_ones = [socket.create_connection(("127.0.0.1", program.port)) for _ in range(MAX_CONNECTIONS)]
    live = b"GET /health/live HTTP/1.0\r\n\r\n"
    try:
        wait_for(lambda: b" 503 " in exchange(program.port, live))
        assert httpx.get(f"{management}/health/live", timeout=60).status_code == 200
        assert httpx.get(f"{management}/metrics", timeout=60).status_code == 200
    finally:
        for open_one in open_ones:
            open_one.close()
    wait_for(lambda: b"200 OK" in exchange(program.port, live))


def test_silent_connections_are_closed(store_folder: Path) -> None:
    """They would otherwise hold all places; refusals meanwhile are counted."""
    live = b"GET /health/live HTTP/1.1\r\n"
    limits = ["--receive-timeout-s", "5", "--max-connections", "3", "--management-port", "0"]
    with started(store_folder, *limits) as program, ExitStack() as stack:
        port, management = program.port, program.logged(r"Management on (http://127\.0\.0\.1:\d+)")
        silent, slow, answered = (
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(3)
        )
        slow.sendall(HEAD)
        answered.sendall(live + b"\r\n")
        assert answered.recv(65_536).startswith(b"HTTP/1.1 200 ")
        answered.sendall(live)
        assert b" 503 " in exchange(port, live + b"\r\n")
        assert 'code="overloaded",endpoint=""' in httpx.get(f"{management}/metrics", timeout=60).text
        for held in (silent, slow, answered):
            while received := held.recv(65_536):  # what is left of the first answer
                assert held is answered
                assert b"HTTP/1.1" not in received
        assert b" 200 OK" in exchange(port, live + b"Connection: close\r\n\r\n")


def test_management_has_separate_listener(program: Program, management: str) -> None:
    assert httpx.get(f"{management}/models", timeout=60).status_code == 200  # without a client's key
    described = httpx.get(f"{program.address}/openapi.json", timeout=60).json()["paths"]
    for path in ("/metrics", "/models/reload"):
        assert path not in described
        method = "GET" if path == "/metrics" else "POST"
        key = {"Authorization": "Bearer first"}
        refused = httpx.request(method, program.address + path, headers=key, timeout=60)
        assert (refused.status_code, refused.json()["type"][-9:]) == (404, "not-found")
        assert httpx.request(method, management + path, timeout=60).status_code == 200
    assert httpx.post(f"{management}/synthesize", content=b"", timeout=60).status_code == 404
    for path in ("/health/live", "/health/ready"):
        for listener in (management, program.address):
            assert httpx.get(listener + path, timeout=60).status_code == 200
    # A client cannot claim to come through that listener.
    claim = {"is_management": "1", "Host": management[7:]}
    refused = httpx.get(f"{program.address}/metrics", headers=claim, timeout=60)
    assert refused.status_code == 404


def test_unix_socket_serves_and_is_not_taken(store_folder: Path, ear: Paths) -> None:
    command = [sys.executable, "-m", "service", "--store", str(store_folder), "--model", "ears", "--device", "cpu"]
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's name has 107 bytes
        path = Path(folder) / "socket"
        with subprocess.Popen([*command, "--uds", str(path)], stderr=subprocess.DEVNULL) as first:
            try:
                wait_for(path.exists)
                assert stat.S_IMODE(path.stat().st_mode) == 0o660
                with Client(uds=path, timeout_s=60) as client:
                    assert client.refine(ear.primary, ear.secondary, k=1).taps.any()
                    second = subprocess.run(
                        [*command, "--uds", str(path)], capture_output=True, text=True, timeout=240
                    )
                    assert (second.returncode, "Traceback" in second.stderr) == (3, False)
                    assert "answers there" in second.stderr
                    assert client.synthesize(ear.primary, ear.secondary).taps.any()
            finally:
                first.terminate()
        assert not path.exists()


@pytest.mark.parametrize("place", ["--port", "--uds"])
def test_unusable_place_ends_program_with_line(
    program: Program, store_folder: Path, tmp_path: Path, place: str
) -> None:
    value, said = {
        "--port": (str(program.port), "address already in use"),
        "--uds": (str(tmp_path / "nowhere" / "socket"), "its folder does not exist"),
    }[place]
    command = [sys.executable, "-m", "service", "--store", str(store_folder), "--model", "ears", "--device", "cpu"]
    ended = subprocess.run([*command, place, value], capture_output=True, text=True, timeout=240)
    assert (ended.returncode, "Traceback" in ended.stderr) == (3, False)
    assert said in ended.stderr


def test_disconnect_with_two_requests_is_no_defect(program: Program, management: str, ear: Paths) -> None:
    body = wire.encode(ear.primary, ear.secondary)
    request = HEAD + FIRST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", program.port), timeout=120) as connection:
            connection.sendall(request + request)
    with httpx.Client(base_url=program.address, headers={"Authorization": "Bearer first"}, timeout=60) as client:
        answer = client.post("/synthesize", content=body, headers={"Content-Type": "application/x-safetensors"})
    assert answer.status_code == 200  # the later request is answered
    metrics = httpx.get(f"{management}/metrics", timeout=60).text
    assert "prime_defects_total 0.0" in metrics
    wait_for(lambda: "prime_queue_depth 0.0" in httpx.get(f"{management}/metrics", timeout=60).text)


def test_use_is_counted_and_logged_by_name(program: Program, management: str) -> None:
    headers = {"Authorization": "Bearer secret", "X-Request-Id": "ticket-7"}
    assert httpx.get(f"{program.address}/models", headers=headers, timeout=60).status_code == 200
    refused = httpx.post(
        f"{program.address}/refine", content=b"[", headers=headers | {"Content-Type": "text/plain"}, timeout=60
    )
    assert refused.status_code == 415
    assert httpx.get(f"{program.address}/models", timeout=60).status_code == 401
    metrics = httpx.get(f"{management}/metrics", timeout=60).text
    assert 'prime_key_requests_total{key="phones",outcome="ok"} 1.0' in metrics
    assert 'prime_key_requests_total{key="phones",outcome="refused"} 1.0' in metrics
    assert 'prime_key_seconds_total{key="phones"}' in metrics
    assert program.logged(r"GET '(/models)' 200 ok [\d.]+ ms, key 'phones', request ticket-7")
    assert program.logged(r"GET '/models' (401) unauthorised [\d.]+ ms, key '-'")


def test_only_named_origins_may_call(program: Program, management: str) -> None:
    asking = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    key = {"Content-Type": "application/json", "Authorization": "Bearer first"}
    for origin, status in ((APP, 422), ("https://evil.example", 403)):
        allowed = httpx.options(f"{program.address}/v1/refine", headers=asking | {"Origin": origin}, timeout=60)
        assert (allowed.headers.get("access-control-allow-origin") == APP) == (origin == APP)
        foreign = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
        answer = httpx.post(f"{program.address}/refine", content=b"{}", headers=key | foreign, timeout=60)
        assert answer.status_code == status, answer.text
    assert "access-control-allow-origin" not in answer.headers
    for address in (f"{management}/metrics", f"{program.address}/health/live", f"{program.address}/docs"):
        assert httpx.get(address, headers={"Host": "evil.example"}, timeout=60).status_code == 403


def test_half_closed_client_is_answered(program: Program, ear: Paths) -> None:
    body = wire.encode(ear.primary, ear.secondary)
    request = HEAD + FIRST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for sent, answers in ((request, 1), (request + request, 2), (request[:-1], 0), (HEAD, 0)):
        with socket.create_connection(("127.0.0.1", program.port), timeout=60) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: connection.recv(65_536), b""))
        assert received.count(b"HTTP/1.1 200 OK") == answers

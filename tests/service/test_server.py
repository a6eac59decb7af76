"""The server on a real socket: limits, keys, origins, broken connections."""

import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from prime_anc.client import Client, wire
from prime_anc.method.types import Paths
from service.__main__ import main
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
    """A program with few connections, a key file and an access log."""
    limits = ("--max-connections", str(MAX_CONNECTIONS), "--cors-origins", f'["{APP}"]', "--access-log")
    with started(store_folder, *limits, "--api-keys-file", str(keys_file)) as program:
        yield program


def metrics_of(program: Program) -> str:
    """What it tells without a key."""
    return httpx.get(f"{program.address}/metrics", timeout=60).text


HEAD = b"POST /synthesize HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-safetensors\r\n"
FIRST = b"Authorization: Bearer first\r\n"


@pytest.fixture
def request_of_ear(ear: Paths) -> bytes:
    """A design's bytes."""
    body = wire.encode(ear.primary, ear.secondary)
    return HEAD + FIRST + b"Content-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize(
    "lines",
    [
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"Content-Length: +5\r\n\r\nhello",
        b"Content-Length : 5\r\n\r\nhello",
        b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    ],
)
def test_ambiguous_length_is_rejected(program: Program, lines: bytes) -> None:
    """Otherwise a proxy and the service might disagree on where the next request begins."""
    assert exchange(program.port, HEAD + FIRST + lines).startswith(b"HTTP/1.1 400 ")


def test_connections_beyond_limit_are_refused(program: Program) -> None:
    open_ones = [socket.create_connection(("127.0.0.1", program.port)) for _ in range(MAX_CONNECTIONS)]
    live = b"GET /health/live HTTP/1.0\r\n\r\n"
    try:
        wait_for(lambda: b" 503 " in exchange(program.port, live))
    finally:
        for open_one in open_ones:
            open_one.close()
    wait_for(lambda: b"200 OK" in exchange(program.port, live))


def refusal(caplog: pytest.LogCaptureFixture, *arguments: str) -> str:
    """The log of a program that cannot listen."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code == 3
    return caplog.text


def listens(path: Path) -> bool:
    """Return whether a Unix socket accepts connections, which it does some time after it exists."""
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(path)) == 0


@pytest.mark.usefixtures("in_this_process")
def test_unix_socket_serves_and_is_not_taken(
    store_folder: Path, ear: Paths, caplog: pytest.LogCaptureFixture
) -> None:
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's name has 107 bytes
        path = Path(folder) / "socket"
        command = [sys.executable, "-m", "service", "--store", store_folder, "--model", "ears", "--uds", path]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as first:
            try:
                wait_for(lambda: listens(path))
                with Client(uds=path, timeout_s=60) as client:
                    assert client.refine(ear.primary, ear.secondary, k=1).taps.any()
                    assert stat.S_IMODE(path.stat().st_mode) == 0o660
                    assert "answers there" in refusal(caplog, "--uds", str(path))
                    assert client.synthesize(ear.primary, ear.secondary).taps.any()
            finally:
                first.terminate()
        assert not path.exists()


@pytest.mark.usefixtures("in_this_process")
def test_unusable_place_ends_program_with_line(
    program: Program, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert "address already in use" in refusal(caplog, "--port", str(program.port))
    assert "its folder does not exist" in refusal(caplog, "--uds", str(tmp_path / "nowhere" / "socket"))


def test_disconnect_with_two_requests_is_no_defect(program: Program, request_of_ear: bytes) -> None:
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", program.port), timeout=120) as connection:
            connection.sendall(request_of_ear + request_of_ear)
    assert "prime_defects_total 0.0" in metrics_of(program)
    wait_for(lambda: 'prime_queue_depth{lane="light"} 0.0' in metrics_of(program))


def test_use_is_counted_and_logged_by_name(program: Program) -> None:
    headers = {"Authorization": "Bearer secret", "X-Request-Id": "ticket-7"}
    assert httpx.get(f"{program.address}/models", headers=headers, timeout=60).status_code == 200
    refused = httpx.post(
        f"{program.address}/refine", content=b"[", headers=headers | {"Content-Type": "text/plain"}, timeout=60
    )
    assert refused.status_code == 415
    assert httpx.get(f"{program.address}/models", timeout=60).status_code == 401
    metrics = metrics_of(program)
    assert 'prime_key_requests_total{key="phones",outcome="ok"} 1.0' in metrics
    assert 'prime_key_requests_total{key="phones",outcome="refused"} 1.0' in metrics
    assert program.logged(r"GET '(/models)' 200 ok [\d.]+ ms, key 'phones', request ticket-7")
    assert program.logged(r"GET '/models' (401) unauthorised [\d.]+ ms, key '-'")


def test_only_named_origins_may_call(program: Program) -> None:
    asking = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    key = {"Content-Type": "application/json", "Authorization": "Bearer first"}
    for origin, status in ((APP, 422), ("https://evil.example", 403)):
        allowed = httpx.options(f"{program.address}/v1/refine", headers=asking | {"Origin": origin}, timeout=60)
        assert (allowed.headers.get("access-control-allow-origin") == APP) == (origin == APP)
        foreign = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
        answer = httpx.post(f"{program.address}/refine", content=b"{}", headers=key | foreign, timeout=60)
        assert answer.status_code == status, answer.text
    assert "access-control-allow-origin" not in answer.headers
    refused = httpx.get(f"{program.address}/metrics", headers={"Host": "evil.example"}, timeout=60)
    assert refused.status_code == 403

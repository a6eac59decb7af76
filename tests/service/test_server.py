"""What guards the socket: time for a head and for a body, a number of connections, a listener for the operator."""

import gc
import hashlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx
import orjson
import pytest

from service import connection_guard
from service import server as service_server
from service.api import binary_codec as wire
from service.api.call import LATE_TOLD_WITHIN_S
from service.settings import Settings
from synthesis.types import Paths
from tests.service.bodies import as_responses
from tests.service.conftest import started
from tests.service.program import Program
from tests.service.test_process import assert_raw_problem, exchange, wait_for

LIMIT_S = 1.0
AT_LEAST_S = LIMIT_S - 0.01
"""The event loop counts in whole milliseconds, and from when its turn began."""
MAX_CONNECTIONS = 30


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of clients' keys: `first`."""
    file = tmp_path_factory.mktemp("keys") / "clients"
    file.write_text(f"one:{digest('first')}\n")
    return file


@pytest.fixture(scope="module")
def program(store_folder: Path, keys_file: Path) -> Iterator[Program]:
    """With few connections, a file of keys and a management listener."""
    limits = ["--receive-timeout-s", "60", "--max-connections", str(MAX_CONNECTIONS), "--keep-alive-s", "3"]
    with Program(store_folder, *limits, "--api-keys-file", str(keys_file), "--management-port", "0") as program:
        program.wait_until_ready()
        yield program


@pytest.fixture(scope="module")
def impatient(store_folder: Path, keys_file: Path) -> Iterator[Program]:
    """One that waits for a head or a body for `LIMIT_S`."""
    with Program(store_folder, "--receive-timeout-s", str(LIMIT_S), "--api-keys-file", str(keys_file)) as program:
        program.wait_until_ready()
        yield program


@pytest.fixture(scope="module")
def management(program: Program) -> str:
    """Address of the management listener."""
    return program.logged(r"Management on (http://127\.0\.0\.1:\d+)")


def dripping(program: Program, *parts: bytes) -> tuple[bytes, float]:
    """Send parts a fifth of the limit apart until the server hangs up: what it said, and the seconds until then."""
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", program.port), timeout=LIMIT_S / 5) as connection:
        received = b""
        for part in (*parts, *[b""] * 1000):
            try:
                connection.sendall(part)
                chunk = connection.recv(65_536)
            except TimeoutError:
                continue
            except OSError:  # closed while we were sending
                break
            received += chunk
            if not chunk:
                break
        return received, time.monotonic() - began


HEAD = b"POST /synthesize HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
FIRST = b"Authorization: Bearer first\r\n"


def test_a_head_that_drips_is_not_waited_for(impatient: Program) -> None:
    received, spent_s = dripping(impatient, b"GET /health/live HTTP/1.1\r\n", *[b"X: y\r\n"] * 1000)
    assert_raw_problem(received, 408, "too-slow")
    assert spent_s >= AT_LEAST_S


def test_the_second_head_on_a_connection_is_timed_too(impatient: Program) -> None:
    whole = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
    received, spent_s = dripping(impatient, whole, b"GET /health/live HTTP/1.1\r\n", *[b"X: y\r\n"] * 1000)
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert_raw_problem(received[received.index(b"HTTP/1.1 408") :], 408, "too-slow")
    assert spent_s >= AT_LEAST_S


def test_who_says_nothing_is_shown_out(impatient: Program) -> None:
    received, spent_s = dripping(impatient)
    assert received == b""
    assert spent_s >= AT_LEAST_S


def test_a_body_that_drips_is_not_waited_for(impatient: Program) -> None:
    head = HEAD + FIRST + b"Content-Length: 100000\r\n\r\n"
    received, spent_s = dripping(impatient, head, *[b"PRME"] * 1000)
    assert_raw_problem(received, 408, "too-slow")
    assert spent_s >= AT_LEAST_S


def test_a_body_is_waited_for_no_longer_than_its_answer_is_wanted(program: Program) -> None:
    """That it is late is its sender's doing: no 503, which asks to send all of it again."""
    head = HEAD + FIRST + b"X-Deadline-Ms: 200\r\nContent-Length: 1000\r\n\r\n"
    received, _ = dripping(program, head)
    assert_raw_problem(received, 408, "too-slow")
    assert b"deadline" in received
    assert b"retry-after" not in received.lower()


def test_a_body_that_drips_after_its_answer_is_not_waited_for(impatient: Program) -> None:
    received, spent_s = dripping(impatient, HEAD + b"Content-Length: 100000\r\n\r\n", *[b"PRME"] * 1000)
    assert_raw_problem(received, 401, "unauthorised")
    assert spent_s >= AT_LEAST_S


@pytest.mark.parametrize(
    ("path", "lines", "n_bytes", "status", "code"),
    [
        (b"/refine?k=1", b"Content-Type: application/octet-stream\r\n", 13_000_000, 413, "too-large"),
        (b"/refine?k=1", b"Content-Type: text/plain\r\n", 12_000_000, 415, "unsupported-media-type"),
        (b"/calibrate", b"Content-Type: application/octet-stream\r\n", 80_000_000, 413, "too-large"),
        (b"/nowhere", b"", 12_000_000, 404, "not-found"),
    ],
)
def test_a_refusal_reaches_who_sends_all_and_closes(
    program: Program, path: bytes, lines: bytes, n_bytes: int, status: int, code: str
) -> None:
    """As Python's urllib does: to close while the body comes would reset the connection."""
    head = b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + FIRST + lines
    received = exchange(program.port, head + b"Content-Length: %d\r\n\r\n" % n_bytes, bytes(n_bytes))
    assert_raw_problem(received, status, code)


def test_an_answer_that_closes_reaches_who_still_sends(program: Program) -> None:
    """Its deadline passes before the body has come, most of which is sent after that."""
    head = HEAD + FIRST + b"X-Deadline-Ms: 100\r\nContent-Length: 12000000\r\n\r\n"
    received = exchange(program.port, head + b"PRME", bytes(11_999_996), pause_s=0.3)
    assert_raw_problem(received, 408, "too-slow")


def test_a_crowd_of_late_bodies_is_told_one_after_the_other(program: Program) -> None:
    """All of them at once, every two seconds, made everybody else wait."""
    head = HEAD + FIRST + b"X-Deadline-Ms: 500\r\nContent-Length: 1000\r\n\r\n"
    crowd = [socket.create_connection(("127.0.0.1", program.port), timeout=120) for _ in range(24)]
    for each in crowd:
        each.sendall(head)
    told: dict[socket.socket, float] = {}
    while len(told) < len(crowd):
        for each in select.select([each for each in crowd if each not in told], [], [], 120)[0]:
            told[each] = time.monotonic()
            with each:
                assert_raw_problem(b"".join(iter(partial(each.recv, 65_536), b"")), 408, "too-slow")
    assert max(told.values()) - min(told.values()) > LATE_TOLD_WITHIN_S / 2


def test_a_body_that_drips_after_an_answer_that_closes_is_not_waited_for(impatient: Program) -> None:
    head = HEAD + b"Connection: close\r\nContent-Length: 100000\r\n\r\n"
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=120) as connection:
        connection.sendall(head)
        assert_raw_problem(b"".join(iter(lambda: connection.recv(65_536), b"")), 401, "unauthorised")
        with suppress(ConnectionError):
            while time.monotonic() < began + 20:
                connection.sendall(b"PRME")
                time.sleep(0.1)
    assert AT_LEAST_S <= time.monotonic() - began < 20


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
def test_a_length_that_could_be_read_in_two_ways_is_refused(program: Program, lines: bytes) -> None:
    """Else a proxy and this service might disagree on where the next request begins."""
    assert_raw_problem(exchange(program.port, HEAD + FIRST + lines), 400, "malformed-request")


def test_too_many_connections_are_answered_and_the_others_served(program: Program) -> None:
    open_ones = [socket.create_connection(("127.0.0.1", program.port)) for _ in range(MAX_CONNECTIONS)]
    try:
        assert_raw_problem(exchange(program.port), 503, "too-many-connections")
        open_ones[0].sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        assert open_ones[0].recv(100).startswith(b"HTTP/1.1 200 OK")
    finally:
        for each in open_ones:
            each.close()
    wait_for(lambda: b"200 OK" in exchange(program.port, b"GET /health/live HTTP/1.0\r\n\r\n"))


def test_refusals_at_the_socket_are_counted(program: Program, management: str) -> None:
    assert_raw_problem(exchange(program.port, b"nonsense\r\n\r\n"), 400, "malformed-request")
    counted = httpx.get(f"{management}/metrics").text
    assert re.search(r'prime_requests_total\{code="malformed-request",.*status="400"\} [1-9]', counted)


def test_the_operator_has_a_listener_apart(program: Program, management: str) -> None:
    for path in ("/metrics", "/models/reload"):
        method = "GET" if path == "/metrics" else "POST"
        refused = httpx.request(method, program.address + path, headers={"Authorization": "Bearer first"})
        assert (refused.status_code, refused.json()["type"][-9:]) == (404, "not-found")
        assert httpx.request(method, management + path).status_code == 200
    assert httpx.post(f"{management}/synthesize", content=b"").status_code == 404
    for path in ("/health/live", "/health/ready"):
        assert httpx.get(management + path).status_code == httpx.get(program.address + path).status_code == 200
    # What marks a request of that listener is not for a client to say.
    refused = httpx.get(f"{program.address}/metrics", headers={"is_management": "1", "Host": management[7:]})
    assert refused.status_code == 404


def test_keys_are_rotated_while_the_service_runs(program: Program, keys_file: Path, ear: Paths) -> None:
    body = wire.encode(ear.primary, ear.secondary)

    def ask(key: str) -> int:
        headers = {"Content-Type": "application/octet-stream", "Authorization": f"Bearer {key}"}
        return httpx.post(f"{program.address}/synthesize", content=body, headers=headers).status_code

    assert (ask("first"), ask("second")) == (200, 401)
    before, following = keys_file.read_text(), keys_file.with_suffix(".next")
    following.write_text(f"two:{digest('second')}\n")
    os.replace(following, keys_file)
    wait_for(lambda: ask("second") == 200)
    assert ask("first") == 401
    keys_file.write_text(before)
    wait_for(lambda: ask("first") == 200)


def test_a_unix_socket_in_use_is_left_to_its_service(store_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    command = [sys.executable, "-m", "service", "--store", str(store_folder), "--model", "ears", "--device", "cpu"]
    with subprocess.Popen([*command, "--uds", str(path)], stderr=subprocess.DEVNULL) as first:
        try:
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://x") as client:
                wait_for(path.exists)
                for uds, said in (
                    (path, "answers there"),
                    (tmp_path / "nowhere" / "socket", "its folder does not exist"),
                ):
                    second = subprocess.run(
                        [*command, "--uds", str(uds)], capture_output=True, text=True, timeout=240
                    )
                    assert second.returncode == 3
                    assert said in second.stderr
                    assert "Traceback" not in second.stderr
                assert client.get("/health/live").status_code == 200
        finally:
            first.terminate()
        first.wait(120)
    assert not path.exists()


def test_a_reload_during_the_start_does_not_end_the_program(store_folder: Path) -> None:
    """Which takes seconds: its modules are imported before the server is there."""
    command = [sys.executable, "-X", "importtime", "-m", "service", "--store", str(store_folder), "--device", "cpu"]
    with subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, text=True) as starting:
        assert starting.stderr is not None
        assert next(line for line in starting.stderr if line.endswith(" fastapi\n"))
        starting.send_signal(signal.SIGHUP)
        running = next((line for line in starting.stderr if "running on" in line), "")
        starting.terminate()
        starting.stderr.read()  # so that it need not wait to be read
    assert running
    assert starting.returncode == -signal.SIGTERM


def test_a_taken_port_ends_the_program_with_a_line(program: Program, store_folder: Path) -> None:
    command = [sys.executable, "-m", "service", "--store", str(store_folder), "--model", "ears", "--device", "cpu"]
    second = subprocess.run([*command, "--port", str(program.port)], capture_output=True, text=True, timeout=240)
    assert second.returncode == 3
    assert "address already in use" in second.stderr
    assert "Traceback" not in second.stderr


def test_line_ends_between_requests_hold_no_connection(program: Program) -> None:
    """They begin no request, and the server's wait for the next one goes on."""
    with socket.create_connection(("127.0.0.1", program.port), timeout=120) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        received = b""
        while not received.endswith(b"}"):  # an answer comes in two pieces
            received += connection.recv(65_536)
        assert received.startswith(b"HTTP/1.1 200")
        connection.sendall(b"\r\n")
        assert connection.recv(65_536) == b""


def test_what_is_no_request_does_not_overtake_the_answer_to_one(program: Program) -> None:
    """Sent in one piece: the request is answered, and the connection ends."""
    received = exchange(program.port, b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n" + b"\0\0\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200")
    assert received.count(b"HTTP/1.1 ") == 1


UPGRADES = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n",
    "websocket": b"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n",
}


@pytest.mark.parametrize("offer", UPGRADES.values(), ids=UPGRADES)
@pytest.mark.parametrize("parts", [1, 2, 3], ids=["in one piece", "body apart", "body in pieces"])
def test_an_offer_to_upgrade_is_passed_over(program: Program, ear: Paths, offer: bytes, parts: int) -> None:
    """As Java's client and `curl --http2` make one with every request."""
    body = wire.encode(ear.primary, ear.secondary)
    head = HEAD + FIRST + b"Accept: application/octet-stream\r\nContent-Length: %d\r\n" % len(body)
    plain = exchange(program.port, head + b"Connection: close\r\n\r\n" + body)
    offered = head + offer + b"Connection: close\r\n\r\n"
    cut = len(body) // 2
    pieces = {1: [offered + body], 2: [offered, body], 3: [offered, body[:cut], body[cut:]]}[parts]
    received = exchange(program.port, *pieces)
    assert received.startswith(b"HTTP/1.1 200")
    assert received.partition(b"\r\n\r\n")[2] == plain.partition(b"\r\n\r\n")[2]


def test_the_body_of_an_offer_to_upgrade_is_no_request(program: Program) -> None:
    hidden = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    head = HEAD + FIRST + UPGRADES["h2c"] + b"Content-Length: %d\r\n\r\n" % len(hidden)
    received = exchange(program.port, head, hidden + hidden, pause_s=0.1)
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"400", b"200"]


def test_no_tunnel_is_made(program: Program) -> None:
    received = exchange(program.port, b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert_raw_problem(received, 400, "malformed-request")


def test_who_hangs_up_on_two_requests_at_once_makes_no_defect(
    program: Program, management: str, ear: Paths
) -> None:
    body = wire.encode(ear.primary, ear.secondary)
    request = HEAD + FIRST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", program.port), timeout=120) as connection:
            connection.sendall(request + request)
    with httpx.Client(base_url=program.address, headers={"Authorization": "Bearer first"}) as client:
        answer = client.post("/synthesize", content=body, headers={"Content-Type": "application/octet-stream"})
    assert answer.status_code == 200  # behind those
    metrics = httpx.get(f"{management}/metrics").text
    assert "prime_defects_total 0.0" in metrics
    wait_for(lambda: "prime_queue_depth 0.0" in httpx.get(f"{management}/metrics").text)


def test_a_head_behind_a_body_is_not_counted_with_it(program: Program) -> None:
    """A read that ends within the second request's head holds the first one's body, longer than any head may be."""
    body = bytes(20_000)
    request = HEAD + FIRST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    last = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    received = exchange(program.port, request + last[:20], last[20:], pause_s=0.2)
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"400", b"200"]


def test_few_requests_wait_behind_one_another(program: Program) -> None:
    """Sent without waiting for an answer: as many as may wait are answered, then the connection ends."""
    received = exchange(program.port, b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 1000)
    assert received.count(b"HTTP/1.1 200") == connection_guard.MAX_PIPELINED + 1


def test_what_cannot_be_made_in_time_is_refused_from_its_head(
    program: Program, management: str, ear: Paths
) -> None:
    """While many designs wait, and before the body is there; the connection goes on as after any answer."""
    body = wire.encode(ear.primary, ear.secondary)

    def request(key: bytes, deadline_ms: int, *more: bytes) -> bytes:
        lines = [b"POST /refine?k=8 HTTP/1.1", b"Host: x", b"Content-Type: application/octet-stream"]
        lines += [b"Authorization: Bearer " + key, b"X-Deadline-Ms: %d" % deadline_ms, *more]
        return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", b""]) + body

    item = as_responses(replace(ear, primary=ear.primary[:64], secondary=ear.secondary[:32]))
    items = orjson.dumps({"items": [item] * 16})
    long = request(b"first", 60_000).partition(b"Content-Length")[0].replace(b"octet-stream", b"json")
    long += b"Content-Length: %d\r\n\r\n" % len(items) + items
    busy = [socket.create_connection(("127.0.0.1", program.port), timeout=120) for _ in range(8)]
    try:
        for each in busy:
            each.sendall(long)
        received = exchange(
            program.port,
            request(b"first", 2) + request(b"other", 2) + request(b"first", 60_000, b"Connection: close"),
        )
        answers = [each for each in busy if each.recv(65_536).startswith(b"HTTP/1.1 200")]
    finally:
        for each in busy:
            each.close()
    statuses = re.findall(rb"HTTP/1.1 (\d+)", received)
    assert statuses[:2] == [b"503", b"401"]
    assert statuses[2:] in ([b"200"], [b"503"])  # the latter while more waits than may
    assert re.search(rb"\nretry-after: [1-9]", received.split(b"HTTP/1.1")[1])
    assert re.search(rb"\nserver-timing: total;dur=\d", received.split(b"HTTP/1.1")[1])
    assert answers  # of all that there was time for


def resident_bytes(program: Program) -> int:
    """Memory of the service's process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{program.process.pid}/status").read_text())
    assert found
    return 1024 * int(found.group(1))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("path", [b"/nowhere", b"/health/live", b"/refine"])
def test_trailers_without_end_take_no_memory(program: Program, path: bytes) -> None:
    """They follow a body in chunks, and nothing counted them: 5 GB in twelve seconds, without any key."""
    before = resident_bytes(program)
    with socket.create_connection(("127.0.0.1", program.port), timeout=120) as connection:
        connection.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
        with suppress(ConnectionError, TimeoutError):
            for _ in range(100):
                connection.sendall(b"X: " + bytes(2**20).replace(b"\0", b"y") + b"\r\n")
    assert_raw_problem(
        exchange(program.port, b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"),
        411,
        "length-required",
    )
    assert resident_bytes(program) < before + 50e6  # half of what was sent


def test_connections_of_clients_do_not_keep_the_operator_out(program: Program, management: str) -> None:
    open_ones = [socket.create_connection(("127.0.0.1", program.port)) for _ in range(MAX_CONNECTIONS)]
    try:
        wait_for(lambda: b" 503 " in exchange(program.port, b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"))
        assert httpx.get(f"{management}/health/live").status_code == 200
        assert httpx.get(f"{management}/metrics").status_code == 200
    finally:
        for each in open_ones:
            each.close()


@pytest.mark.anyio
async def test_what_stays_is_frozen(settings: Settings) -> None:
    """Once the default model is there: modules and models are some hundreds of thousands of objects."""
    async with started(settings) as app:
        server = service_server.server(app, settings)
        assert isinstance(server, service_server.OperatedServer)
        before = gc.get_freeze_count()
        try:
            await server.freeze_resident_objects()
            assert gc.get_freeze_count() > before + 50_000
        finally:
            gc.unfreeze()

"""`python -m benchmarks http` in a tiny form, and how a loop counts."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks import bare, http
from benchmarks.__main__ import main
from benchmarks.ears import Ears
from service.formats import wire

ANSWER = (
    b"HTTP/1.1 200 OK\r\nServer-Timing: decode;dur=1.0, core;dur=3.5, total;dur=6.0\r\n"
    b"Content-Length: 4\r\n\r\nbody"
)


def test_bodies_are_binary_and_json_of_both_kinds(ears: Ears) -> None:
    found = http.kinds(ears, 1, 8000)
    assert all(len(requests) == len(ears) for requests in found.values())
    body = found["binary, spectra"][2].split(b"\r\n\r\n", 1)[1]
    primary, _, _ = wire.decode(body)
    assert np.iscomplexobj(primary)
    document = json.loads(found["JSON, impulse responses"][0].split(b"\r\n\r\n", 1)[1])
    assert np.array_equal(np.float32(document["primary"]["impulse_response"]), ears.primary[0])


def test_what_the_server_did_is_taken_off() -> None:
    loop = http.Loop()
    loop.add(ANSWER, 10.0)
    loop.add(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n", 1.0)
    row = loop.row()
    assert (row["n"], row["failed"]) == (1, [503])
    assert row["over_core_and_decode_ms"]["p50"] == pytest.approx(10 - 1 - 3.5)
    assert row["over_server_ms"]["p50"] == pytest.approx(4)


def test_an_open_loop_counts_from_when_a_request_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes 100 ms, asked every 20 ms over one connection: answers come later and later."""
    monkeypatch.setattr(http, "N_CONNECTIONS", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                while connection.recv(65_536):
                    time.sleep(0.1)
                    connection.sendall(ANSWER)

        thread = threading.Thread(target=answer)
        thread.start()
        loop = http.open_loop([b"GET / HTTP/1.1\r\n\r\n"], server.getsockname()[1], 4, rate=50.0)
        thread.join()
    # What the server slept is a lower bound; four answers of 100 ms, the last due after 60 ms.
    assert loop.latency_ms == sorted(loop.latency_ms)
    assert loop.latency_ms[-1] >= 400 - 60


def test_server_and_client_have_cores_of_their_own() -> None:
    before, cores = os.sched_getaffinity(0), http.split_cores()
    assert set(cores["client"]) | set(cores["server"]) == before
    assert bool(set(cores["client"]) & set(cores["server"])) == (len(before) == 1)
    with http.on_cores(cores["client"]):
        assert os.sched_getaffinity(0) == set(cores["client"])
        child = subprocess.run(
            [sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"], capture_output=True
        )
        assert child.stdout.decode().strip() == str(set(cores["client"]))
    assert os.sched_getaffinity(0) == before


def test_the_command_measures_the_real_service(tmp_path: Path) -> None:
    assert (
        main(["http", "--quick", "--threads", "1", "--device", "cpu", "--updates", "0", "--out", str(tmp_path)])
        == 0
    )
    found = json.loads((tmp_path / "http.json").read_text())
    rows = {(row["request"], row["loop"]): row for row in found["rows"]}
    assert len(rows) == 8
    for row in rows.values():
        assert (row["n"], row["failed"]) == (20, [])
        assert {"decode", "queue", "path_ratio", "generate", "predict", "core", "total"} <= set(row["server_ms"])
        assert row["latency_ms"]["p50"] > row["server_ms"]["core"]["p50"]
        assert 0 < row["over_server_ms"]["p50"] < row["over_core_and_decode_ms"]["p50"]
        if row["loop"] == "closed":
            assert all(0 < row[f"bare_{kind}_ms"]["p50"] < row["latency_ms"]["p50"] for kind in bare.KINDS)


@pytest.mark.parametrize("kind", bare.KINDS)
def test_a_bare_server_gives_the_answer_that_it_was_given(kind: str) -> None:
    """Twice on one connection, to a body that comes in several pieces."""
    request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + bytes(300_000)
    with bare.bare(kind, ANSWER) as port:
        connection = http.Connection(port)
        for _ in range(2):
            head, _, body = connection.exchange(request).partition(b"\r\n\r\n")
            assert body == b"body"
            assert b"decode;dur=1.0, core;dur=3.5, total;dur=6.0" in head
        connection.close()

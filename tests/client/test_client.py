"""The client against the real program."""

import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from prime_anc.client import (
    Client,
    Condition,
    NotReached,
    Take,
    Unauthorised,
    Unavailable,
    UnknownAnswer,
    UnusablePaths,
)
from prime_anc.method.types import Paths
from prime_anc.options import Sign
from tests.client.relay import answering, relayed
from tests.service.bodies import digest
from tests.service.program import Program, free_port, started


def test_one_filter_for_several_conditions(client: Client, ear: Paths) -> None:
    pair = [
        Condition(ear.primary, ear.secondary, feedback=np.float32(0.01) * ear.secondary, label="closed", weight=2),
        Condition(ear.primary, 0.7 * ear.secondary, label="loose"),
    ]
    found = client.refine(pair, k=1)
    closed, loose = found.prediction.conditions
    assert (closed.label, loose.label) == ("closed", "loose")
    mean_db = (2 * closed.mean_noise_reduction_db + loose.mean_noise_reduction_db) / 3
    assert found.prediction.mean_noise_reduction_db == pytest.approx(mean_db)
    with pytest.raises(UnusablePaths) as refused:
        client.refine([*pair, Condition(ear.primary, 0 * ear.secondary, label="dead")])
    assert refused.value.field == "conditions.2.secondary"


@pytest.mark.parametrize("sign", ["minus", "plus"])
def test_design_is_evaluated_and_exported_in_sign(client: Client, ear: Paths, sign: Sign) -> None:
    paths = ear.primary, ear.secondary
    design = client.refine(*paths, k=1, sign=sign)
    expected_db = pytest.approx(design.prediction.mean_noise_reduction_db, abs=1e-3)
    for given in (design, design.taps):
        again = client.evaluate(given, *paths, **({} if given is design else {"sign": sign}))
        assert again.prediction.mean_noise_reduction_db == expected_db
    realised = client.export(design, {"form": "fir", "number_format": "q5.27"}, *paths)
    assert np.abs(realised.coefficients.taps - design.taps).max() <= 2**-27
    sections, weighted = (
        client.export(design, {"n_sections": 4}, *paths, risk_weight=item) for item in (None, 10.0)
    )
    assert weighted.prediction.noise_reduction_db.min() > sections.prediction.noise_reduction_db.min()
    of_sections = client.evaluate(sections, *paths)
    expected_db = pytest.approx(sections.prediction.mean_noise_reduction_db, abs=1e-3)
    assert of_sections.prediction.mean_noise_reduction_db == expected_db
    text = client.export(design, {"form": "fir"}, *paths, file="csv").decode()
    assert np.float32(text.split()[-2048:]).tobytes() == design.taps.tobytes()
    with pytest.raises(TypeError, match="coherense"):
        client.evaluate(design, *paths, coherense=ear.coherence)


def test_broken_connection_is_replaced(program: Program, ear: Paths) -> None:
    with relayed(program.port) as (port, accepted), Client(f"http://127.0.0.1:{port}", timeout_s=60) as client:
        first = client.synthesize(ear.primary, ear.secondary)
        accepted[0].shutdown(socket.SHUT_RDWR)
        assert np.array_equal(client.synthesize(ear.primary, ear.secondary).taps, first.taps)
        assert len(accepted) == 2


def test_client_waits_for_starting_service(program: Program, ear: Paths) -> None:
    port, started = free_port(), threading.Event()

    def start() -> None:
        time.sleep(1.5)
        with relayed(program.port, at=port):
            started.wait(60)

    starting = threading.Thread(target=start)
    starting.start()
    with Client(f"http://127.0.0.1:{port}", timeout_s=60) as client:
        assert client.synthesize(ear.primary, ear.secondary).taps.any()
    started.set()
    starting.join()


@pytest.mark.parametrize(
    "answer",
    [
        b"Content-Type: text/html\r\nContent-Length: 13\r\n\r\n<html>Log in!",
        b"Content-Type: application/json\r\nContent-Length: 4\r\n\r\nnull",
        b'Content-Length: 28\r\n\r\n{"items": [], "verdict": [] }',
        b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nzip?",
        b'Content-Length: 12\r\n\r\n{"fir": [0]}',
    ],
)
def test_foreign_success_is_rejected(answer: bytes) -> None:
    with answering(b"HTTP/1.1 200 OK\r\n" + answer) as (port, accepted):
        with Client(f"http://127.0.0.1:{port}") as client:
            assert not client.is_ready()
            for ask in (lambda: client.refine([1.0], [1.0]), lambda: client.calibrate([Take(0, [1.0], [1.0])])):
                with pytest.raises(UnknownAnswer, match=r"does not come from the service|Content-Encoding"):
                    ask()
        assert len(accepted) <= 4  # no retries


def test_502_of_proxy_is_repeated() -> None:
    with answering(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n") as (port, accepted):
        with Client(f"http://127.0.0.1:{port}", retry_for_s=1.5) as client, pytest.raises(Unavailable):
            client.synthesize([1.0], [1.0])
        assert len(accepted) == 2


def test_slow_answer_ends_at_timeout() -> None:
    with (
        answering(b"HTTP/1.1 200 OK\r\n", every_s=2.0) as (port, _),
        Client(f"http://127.0.0.1:{port}", timeout_s=0.5) as client,
        pytest.raises(NotReached, match="no answer in time"),
    ):
        client.synthesize([1.0], [1.0])


@pytest.mark.parametrize("key", ["sesame\n", "sesame\r\nX: y", " sesame", "se same", "", "\x7f", "\ud800"])
def test_invalid_key_is_rejected_without_showing_it(key: str) -> None:
    with pytest.raises(ValueError, match="api_key: it is empty") as refused:
        Client(api_key=key)
    assert "se" not in str(refused.value)


def test_key_is_sent(store_folder: Path, ear: Paths, tmp_path: Path) -> None:
    keys, file = ("sesame", "сезам"), tmp_path / "keys"
    file.write_text("".join(f"{n}:{digest(key)}\n" for n, key in enumerate(keys)))
    with started(store_folder, "--api-keys-file", str(file)) as program:
        with Client(program.address, timeout_s=60) as nobody, pytest.raises(Unauthorised):
            nobody.synthesize(ear.primary, ear.secondary)
        for key in keys:
            with Client(program.address, api_key=key, timeout_s=60) as client:
                assert client.synthesize(ear.primary, ear.secondary).taps.any()

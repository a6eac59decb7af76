"""The client against the real program."""

import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from prime_anc_client import Client, NotReached, Refused, Unauthorised, Unavailable, UnknownModel, UnusablePaths
from service.designs import Ear
from synthesis.synthesizer import Synthesizer
from tests.prime_anc_client.relay import relayed
from tests.service.bodies import spectra
from tests.service.http.test_endpoints import assert_same_filter, library_paths
from tests.service.test_process import Program


@pytest.fixture(scope="module")
def program(store_folder: Path) -> Iterator[Program]:
    """One that is ready."""
    program = Program(store_folder)
    program.wait_until_ready()
    yield program
    program.stop()


@pytest.fixture
def client(program: Program) -> Iterator[Client]:
    """Of that program."""
    with Client(program.address) as client:
        yield client


def test_the_filter_is_the_library_s(client: Client, default_model: Synthesizer, ear: Ear) -> None:
    paths = library_paths(ear)
    plain = client.synthesize(ear.primary, ear.secondary)
    assert plain.taps.dtype == np.float32
    assert_same_filter(plain.taps, default_model.design(paths).taps)
    refined = client.refine(ear.primary, ear.secondary, k=2, profile="paper", method="ratio_base")
    expected = default_model.design(paths, 2, profile="paper", method="ratio_base")
    assert_same_filter(refined.taps, expected.taps)
    assert (plain.n_applied, refined.n_applied) == (0, int(expected.n_applied[0]))


def test_options_reach_the_design(client: Client, ear: Ear) -> None:
    default = client.refine(ear.primary, ear.secondary)
    assert default.n_applied == 3
    assert "prediction_from_model" in default.warnings
    other = client.refine(ear.primary, ear.secondary, k=3, coherence=ear.coherence, sign="plus", deadline_ms=60_000)
    assert "prediction_from_model" not in other.warnings
    assert np.array_equal(other.taps, -default.taps)
    low = client.synthesize(ear.primary, ear.secondary, max_gain_db=3)
    assert not np.array_equal(low.taps, client.synthesize(ear.primary, ear.secondary).taps)
    first = client.synthesize(ear.primary, ear.secondary, model="ears@1")
    assert first.model_digest != default.model_digest


def test_figures_are_numbers(client: Client, ear: Ear) -> None:
    design = client.refine(ear.primary, ear.secondary, k=1)
    assert np.isfinite([design.noise_reduction_db, design.amplification_db]).all()
    assert {"decode", "queue", "core", "total"} <= set(design.timings_ms)
    assert design.timings_ms["core"] <= design.timings_ms["total"]


def test_spectra_are_taken_too(client: Client, ear: Ear) -> None:
    reference = client.synthesize(ear.primary, ear.secondary).taps
    found = client.synthesize(*spectra(ear)).taps
    # The spectra were rounded to float32; the ratio of two of them amplifies that.
    assert np.abs(found - reference).max() < 1e-3 * np.abs(reference).max()


def test_the_connection_is_kept(program: Program, ear: Ear) -> None:
    with relayed(program.port) as (port, accepted), Client(f"http://127.0.0.1:{port}") as client:
        for _ in range(5):
            client.synthesize(ear.primary, ear.secondary)
        assert len(accepted) == 1


def test_a_connection_that_broke_is_made_anew(program: Program, ear: Ear) -> None:
    with relayed(program.port) as (port, accepted), Client(f"http://127.0.0.1:{port}") as client:
        first = client.synthesize(ear.primary, ear.secondary)
        accepted[0].shutdown(socket.SHUT_RDWR)
        assert np.array_equal(client.synthesize(ear.primary, ear.secondary).taps, first.taps)
        assert len(accepted) == 2


def test_refusals_are_exceptions(client: Client, ear: Ear) -> None:
    with pytest.raises(UnusablePaths) as silent:
        client.synthesize(np.zeros(8), ear.secondary)
    assert (silent.value.code, silent.value.field) == ("unusable-paths", "primary")
    with pytest.raises(UnusablePaths) as wrong:
        client.refine(ear.primary, ear.secondary, k=9)
    assert (wrong.value.code, wrong.value.field) == ("out-of-range", "k")
    with pytest.raises(UnknownModel):
        client.synthesize(ear.primary, ear.secondary, model="nobody")
    with pytest.raises(Refused) as form:
        client.synthesize(ear.primary, ear.secondary, sign="x")  # type: ignore[arg-type]
    assert form.value.status == 422
    assert client.synthesize(ear.primary, ear.secondary).taps.any()


def test_nobody_there_is_said_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}") as client:
        assert not client.is_ready()
        with pytest.raises(NotReached):
            client.synthesize([1.0], [1.0])


def test_an_answer_that_does_not_come_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:  # takes connections, and says nothing
        port = listening.getsockname()[1]
        with (
            Client(f"http://127.0.0.1:{port}", timeout_s=0.2) as client,
            pytest.raises(NotReached, match="in time"),
        ):
            client.synthesize([1.0], [1.0])


def test_a_service_that_is_not_ready_is_waited_for(store_folder: Path, ear: Ear) -> None:
    program = Program(store_folder)
    try:
        with Client(program.address, max_wait_s=1.0) as hasty, Client(program.address, max_wait_s=60.0) as patient:
            with pytest.raises(Unavailable) as refused:  # the model takes longer to load than one request to ask
                hasty.synthesize(ear.primary, ear.secondary)
            assert refused.value.code == "not-ready"
            assert patient.synthesize(ear.primary, ear.secondary).taps.any()
            assert hasty.is_ready()
    finally:
        program.stop()


def test_waiting_has_a_bound(store_folder: Path, ear: Ear) -> None:
    """The service asks for a minute; a client that gives it less says at once that it will not wait."""
    program = Program(store_folder, "--model", "missing")
    try:
        program.logged("(UnknownModel)")
        began = time.monotonic()
        with Client(program.address, max_wait_s=59.0) as client, pytest.raises(Unavailable) as refused:
            client.synthesize(ear.primary, ear.secondary)
        assert refused.value.code == "model-unavailable"
        assert time.monotonic() - began < 30
    finally:
        program.stop()


def test_a_key_is_sent(store_folder: Path, ear: Ear) -> None:
    program = Program(store_folder, "--api-keys", f'["{hashlib.sha256(b"sesame").hexdigest()}"]')
    program.wait_until_ready()
    try:
        with Client(program.address) as nobody, pytest.raises(Unauthorised):
            nobody.synthesize(ear.primary, ear.secondary)
        with Client(program.address, api_key="sesame") as client:
            assert client.synthesize(ear.primary, ear.secondary).taps.any()
    finally:
        program.stop()


def test_a_unix_socket(store_folder: Path, program: Program, ear: Ear) -> None:
    with tempfile.TemporaryDirectory() as folder:  # short: a socket's name has 107 bytes
        address, log = Path(folder) / "anc", Path(folder) / "log"
        command = [sys.executable, "-m", "service", "--uds", str(address), "--device", "cpu", "--threads", "1"]
        with log.open("w") as written:
            service = subprocess.Popen(
                [*command, "--store", str(store_folder), "--model", "ears"],
                stderr=written,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        try:
            given_up = time.monotonic() + 60
            while "running on unix socket" not in log.read_text() and time.monotonic() < given_up:
                time.sleep(0.02)
            with Client(uds=address) as client, Client(program.address) as other:
                found = client.refine(ear.primary, ear.secondary, k=1)
                assert np.array_equal(found.taps, other.refine(ear.primary, ear.secondary, k=1).taps)
        finally:
            service.terminate()
            service.wait(30)

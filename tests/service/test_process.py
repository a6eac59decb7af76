"""The real program on a real socket, and its one heap."""

import platform
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest

from model_store.store import ModelStore
from prime_anc.client import Take
from prime_anc.method.methods import METHODS
from prime_anc.method.types import Paths
from tests.service import models
from tests.service.bodies import BINARY_BODY, as_responses
from tests.service.program import Program, started
from tests.service.recordings import encoded


def test_no_answer_on_cpu_needs_torch(program: Program, ear: Paths) -> None:
    """SciPy is not needed either, from the start to the last answer, for designs, evaluations and calibrations."""
    body = as_responses(ear)
    with httpx.Client(base_url=program.address, timeout=60) as client:
        for method in METHODS:
            designed = client.post("/refine?k=1", json=body | {"method": method}).json()
        client.post("/evaluate", json=body | {"fir": designed["fir"]}).raise_for_status()
        noise = np.random.default_rng(1).standard_normal(20_000).astype("<f4")
        delayed = np.roll(noise, 2)
        takes = [Take(gain, noise, delayed - gain * np.roll(noise, 4)) for gain in (0, 1)]
        client.post("/calibrate", content=encoded(takes), headers=BINARY_BODY).raise_for_status()
    loaded = Path(f"/proc/{program.process.pid}/maps").read_text()
    assert [f"/{name}/" in loaded for name in ("numpy", "torch", "scipy")] == [True, False, False]


def test_log_holds_no_request_data(program: Program, ear: Paths) -> None:
    for address in ("/synthesize", "/nowhere"):
        httpx.post(program.address + address, json=as_responses(ear), timeout=60)
    log = "".join(program.log)
    assert not [said for said in ("synthesize", "nowhere", "impulse_response") if said in log]


def scraped(program: Program, name: str) -> float:
    """A metric without labels."""
    found = re.search(rf"^{name} (\S+)", httpx.get(f"{program.address}/metrics", timeout=60).text, re.MULTILINE)
    assert found
    return float(found.group(1))


def test_signals_reload_models_then_drain(tmp_path: Path, ear: Paths) -> None:
    """SIGHUP loads the newest version; after SIGTERM it still answers, until Ctrl-C."""
    store = ModelStore(tmp_path, include_bundled=False)
    store.publish("ears", models.checkpoint(1))
    with started(tmp_path, "--drain-s", "600") as program:
        second = store.publish("ears", models.checkpoint(2))
        program.process.send_signal(signal.SIGHUP)
        program.logged(rf"Loaded ears version 2 \(({second.digest})\)")
        program.logged(r"Unloaded ears version (1)")
        with httpx.Client(base_url=program.address, timeout=60) as client:
            before = client.post("/synthesize", json=as_responses(ear))
            assert before.json()["model"]["digest"] == second.digest
            assert "connection" not in before.headers
            program.process.send_signal(signal.SIGTERM)
            program.logged("(Shutting down)")
            assert client.get("/health/ready").status_code == 503
            answer = client.post("/synthesize", json=as_responses(ear))
            assert (answer.status_code, answer.headers["connection"]) == (200, "close")
            assert client.get("/health/live").status_code == 200
        program.process.send_signal(signal.SIGINT)
        assert program.process.wait(120) in (0, -signal.SIGINT)
    assert "Traceback" not in "".join(program.log)


COUNT_HEAPS = """
import ctypes, sys, threading
from service.heap import share_one_heap
if "shared" in sys.argv:
    share_one_heap()
libc = ctypes.CDLL(None)
all_here = threading.Barrier(3)
def work():
    libc.malloc(60_000)
    all_here.wait()
for _ in range(2):
    threading.Thread(target=work).start()
all_here.wait()
libc.malloc_stats()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="heaps of a thread are glibc's")
def test_threads_share_one_heap() -> None:
    """Several without that call, or this test could not fail."""
    for word, is_one in (("shared", True), ("", False)):
        said = subprocess.run([sys.executable, "-c", COUNT_HEAPS, word], capture_output=True, text=True, check=True)
        assert (said.stderr.count("Arena ") == 1) == is_one

"""The Ray Serve adapter on a local cluster gives the same answers as the service's server."""

import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from model_store.store import ModelStore
from prime_anc_client import wire
from synthesis.backends.reference import build_synthesizer
from synthesis.synthesizer import Synthesizer
from synthesis.types import Paths
from tests.service import models
from tests.service.api.test_design import assert_same_filter, library_paths

HEADERS = {"Content-Type": "application/x-safetensors", "Accept": "application/octet-stream"}
SERVE = """
import sys, time, ray
from ray import serve
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
from service.ray_serve import application
serve.run(application)
print("serving", flush=True)
sys.stdin.read()
serve.shutdown()
ray.shutdown()
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Address of a local cluster, which ends with the test."""
    if importlib.util.find_spec("ray") is None or importlib.util.find_spec("grpc") is None:
        pytest.skip("the optional extra `serve` is not installed")
    store = ModelStore(tmp_path / "store", include_bundled=False)
    store.publish("ears", models.checkpoint(1))
    settings = {"PRIME_STORE": str(store.root), "PRIME_MODEL": "ears", "PRIME_DEVICE": "cpu", "PRIME_THREADS": "1"}
    settings |= {
        "PRIME_DEADLINE_MS": "60000",
        "PRIME_READY_BUDGET_MS": "60000",
    }  # the cluster may occupy two cores
    settings["PRIME_FALLBACK_MARGIN_DB"] = "1000"  # a Wiener filter would replace those of a random generator
    # Ray kills a proxy that is not ready within 5 s, which on two busy cores it may not be.
    patience = {"RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "120", "RAY_USAGE_STATS_ENABLED": "0"}
    said = tmp_path / "said"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with (
        said.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-c", SERVE, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=os.environ | settings | patience | {"OMP_NUM_THREADS": "1"},
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdin is not None
        line = "begun"
        while line not in ("serving\n", ""):
            line = process.stdout.readline()
        assert line, f"the cluster ended: {said.read_text()[-2000:]}"
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stdin.close()
            process.wait(60)


@pytest.mark.timeout(900)
def test_replica_on_cluster_designs_same_filters(address: str, ear: Paths) -> None:
    synthesizer: Synthesizer = build_synthesizer(models.checkpoint(1).parameters)
    with httpx.Client(base_url=address, timeout=60) as client:
        given_up = time.monotonic() + 120
        while client.get("/health/ready").status_code != 200 and time.monotonic() < given_up:
            time.sleep(0.1)
        body = wire.encode(ear.primary, ear.secondary)
        answer = client.post("/refine?k=1", content=body, headers=HEADERS)
        assert answer.status_code == 200
        taps = np.frombuffer(answer.content, "<f4")
        assert_same_filter(taps.tolist(), synthesizer.design(library_paths(ear), 1).taps)
        refused = client.post("/refine?k=99", content=body, headers=HEADERS)
        assert refused.json()["type"].endswith("out-of-range")
        assert "prime_requests_total" in client.get("/metrics").text

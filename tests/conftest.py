"""For every test: its place in line, the measured data, the devices and precisions, one thread and fixed seeds."""

import os
import random
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is first imported: its kernels run on NumPy


LONGEST = (
    *("training/test_engines.py", "training/test_run_splits.py", "synthesis/gpu/test_refinement.py"),
    *("synthesis/gpu/test_toeplitz.py", "deploy/test_nginx.py", "synthesis/gpu/test_features.py"),
    *("synthesis/gpu/test_fir_wiener.py", "prime_anc_client/test_client.py", "reliability/test_ends.py"),
    *("service/test_process.py", "service/test_server.py", "benchmarks/test_same_answers.py"),
    *("service/engine/test_design_process.py", "service/test_ray_serve.py", "reliability/test_fuzz.py"),
)
"""The files that take a core half a minute and more."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files begin first, so that no core waits for one of them at the end."""
    tests = Path(__file__).parent
    rank = {tests / file: place for place, file in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.path, len(rank)))


@pytest.fixture(scope="session")
def measured_data() -> Path:
    """Folder of the measured paths and noises (`PRIME_TEST_DATA`); without it the test is skipped."""
    named = os.environ.get("PRIME_TEST_DATA")
    if not named:
        pytest.skip("no measured data: PRIME_TEST_DATA is not set")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"no measured data: PRIME_TEST_DATA names {named!r}, which is no folder")
    return folder


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device in turn; CUDA is skipped, with that reason, where there is none."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device(request.param)


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Each real precision in turn."""
    precision: torch.dtype = request.param
    return precision


@pytest.fixture(autouse=True)
def _same_start() -> None:
    """A test draws the same numbers, on one thread, whatever ran before it."""
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)

"""For every test: the measured data, devices and precisions, fixed seeds, and torch on one thread."""

import os
import random
from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is first imported: its kernels run on NumPy


@pytest.fixture(scope="session")
def measured_data() -> Path:
    """Folder of the measured paths and noises (`PRIME_TEST_DATA`); without it the test is skipped."""
    named = os.environ.get("PRIME_TEST_DATA")
    if not named:
        pytest.skip("no measured data: PRIME_TEST_DATA is not set")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"no measured data: PRIME_TEST_DATA is {named!r}, which is not a folder")
    return folder


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request: pytest.FixtureRequest) -> torch.device:
    """Each device in turn; CUDA is skipped where there is none."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return torch.device(request.param)


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    """Each real precision in turn."""
    precision: torch.dtype = request.param
    return precision


@pytest.fixture(autouse=True)
def _fixed_seeds() -> None:
    random.seed(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)

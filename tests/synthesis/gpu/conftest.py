"""Where the kernels run: on a GPU where there is one, else in Triton's interpreter; skipped where Triton is not."""

from collections.abc import Iterator
from contextlib import nullcontext
from importlib.util import find_spec

import pytest
import torch

from tests.synthesis.gpu.interpreter import quick_interpreter


@pytest.fixture(autouse=True)
def _runs_here(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
    if "device" in request.fixturenames:
        device: torch.device = request.getfixturevalue("device")
        if device.type == "cpu" and torch.cuda.is_available():
            pytest.skip("Triton's interpreter is for machines without a CUDA device")


@pytest.fixture(scope="module", autouse=True)
def _in_the_quick_interpreter() -> Iterator[None]:
    with quick_interpreter() if find_spec("triton") else nullcontext():
        yield

"""Where the kernels run: on a GPU where there is one, else in Triton's interpreter; skipped where Triton is not."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _runs_here(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
    if "device" in request.fixturenames:
        device: torch.device = request.getfixturevalue("device")
        if device.type == "cpu" and torch.cuda.is_available():
            pytest.skip("Triton's interpreter is for machines without a CUDA device")

"""Kernels run on a GPU where there is one, else in Triton's interpreter, which is only patched there."""

from collections.abc import Iterator

import pytest
import torch

from synthesis.backends.cuda.backend import use_full_float32


@pytest.fixture(scope="package", autouse=True)
def _full_float32() -> None:
    use_full_float32()


@pytest.fixture
def kernel_device() -> Iterator[torch.device]:
    """Where a kernel runs here. The interpreter's patches would keep kernels from compiling beside a GPU."""
    pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
    if torch.cuda.is_available():
        yield torch.device("cuda")
        return
    from tests.synthesis.backends.cuda.interpreter import quick_interpreter

    with quick_interpreter():
        yield torch.device("cpu")

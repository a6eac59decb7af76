"""The transforms inside a Triton program against NumPy's in double precision."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.synthesis.cases import relative_error

triton = pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
import triton.language as tl  # noqa: E402

from synthesis.backends.cuda.kernels.fft import (  # noqa: E402
    forward,
    frequencies,
    inverse,
    offsets,
    store_forward,
    twiddles,
)


@triton.jit
def transform(given, found, constants, FORM: tl.constexpr, COLUMNS: tl.constexpr):
    """One transform of a stored complex sequence. FORM: 0 forward, 1 inverse, 2 forward with bins in order."""
    place = offsets(COLUMNS)
    re, im = tl.load(given + place), tl.load(given + 16 * COLUMNS + place)
    if FORM == 2:
        store_forward(re, im, constants, found, found + 16 * COLUMNS, 1)
    else:
        if FORM == 1:
            re, im = inverse(re, im, constants, COLUMNS)
        else:
            re, im = forward(re, im, constants, COLUMNS)
        tl.store(found + place, re)
        tl.store(found + 16 * COLUMNS + place, im)


def transformed(given: np.ndarray, form: int, device: torch.device) -> np.ndarray:
    """complex [n] to complex64 [n]."""
    n = given.shape[-1]
    both = torch.tensor(np.stack((given.real, given.imag)), dtype=torch.float32, device=device)
    found: Tensor = torch.empty_like(both)
    transform[(1,)](both, found, twiddles(n).float().to(device), FORM=form, COLUMNS=n // 16, num_warps=n // 512)
    return torch.complex(*found).cpu().numpy()


@pytest.mark.parametrize("n", [2048, 4096])
def test_transforms_are_numpys(n: int, kernel_device: torch.device) -> None:
    rng = np.random.default_rng(0)
    given = (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(np.complex64)
    exact, order = np.fft.fft(given.astype(np.complex128)), frequencies(n).flatten().numpy()
    assert sorted(order.tolist()) == list(range(n))
    # Eleven or twelve steps of 6e-8 each, at random: 1.3e-7 measured, as torch's own.
    assert relative_error(transformed(given, 0, kernel_device), exact[order]) < 4e-7
    assert relative_error(transformed(exact[order], 1, kernel_device) / n, given.astype(np.complex128)) < 4e-7
    if n == 4096:
        assert relative_error(transformed(given, 2, kernel_device), exact) < 4e-7

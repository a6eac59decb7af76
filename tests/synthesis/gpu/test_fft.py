"""The transforms inside a Triton program against NumPy's in double precision."""

import numpy as np
import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton", reason="Triton is not installed (pip install .[gpu])")
import triton.language as tl  # noqa: E402

from synthesis.gpu.fft import forward, frequencies, inverse, offsets, twiddles  # noqa: E402
from tests.synthesis.cases import relative_error  # noqa: E402


@triton.jit
def transform(given, found, constants, BACK: tl.constexpr, COLUMNS: tl.constexpr):
    """One transform of a stored complex sequence."""
    place = offsets(COLUMNS)
    re, im = tl.load(given + place), tl.load(given + 16 * COLUMNS + place)
    if BACK:
        re, im = inverse(re, im, constants, COLUMNS)
    else:
        re, im = forward(re, im, constants, COLUMNS)
    tl.store(found + place, re)
    tl.store(found + 16 * COLUMNS + place, im)


def transformed(given: Tensor, *, back: bool) -> np.ndarray:
    """complex [n] to complex64 [n]."""
    n = given.shape[-1]
    both = torch.stack((given.real, given.imag)).float().contiguous()
    found = torch.empty_like(both)
    constants = twiddles(n).float().to(given.device)
    transform[(1,)](both, found, constants, BACK=back, COLUMNS=n // 16, num_warps=n // 512)
    return torch.complex(*found).cpu().numpy()


@pytest.mark.parametrize("n", [2048, 4096])
def test_forward_and_inverse_are_numpys(n: int, device: torch.device) -> None:
    given = torch.complex(torch.randn(n), torch.randn(n)).to(device)
    exact = np.fft.fft(given.cpu().numpy().astype(np.complex128))
    order = frequencies(n).flatten().numpy()
    # Eleven or twelve steps of 6e-8 each, at random. Measured: 1.3e-7 both ways, as torch's own.
    assert relative_error(transformed(given, back=False), exact[order]) < 4e-7
    spectrum = torch.from_numpy(exact[order]).to(device)
    assert relative_error(transformed(spectrum, back=True) / n, given.cpu().numpy().astype(np.complex128)) < 4e-7


@pytest.mark.parametrize("n", [2048, 4096])
def test_every_bin_has_its_place(n: int) -> None:
    assert frequencies(n).shape == (16, n // 16)
    assert sorted(frequencies(n).flatten().tolist()) == list(range(n))

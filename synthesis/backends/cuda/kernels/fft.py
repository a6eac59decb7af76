"""Complex FFTs of 2048 and 4096 points inside a Triton program, in registers.

A program holds x[n], n = 0 .. N - 1, as two tensors [16, M], real and imaginary parts, M = N / 16: row j, column m
is x[M j + m]. Each of M threads holds a column. The FFT has three steps, of radix 16, 16 and L = N / 256, each
within the columns; between them rows and columns are exchanged, which is the only communication between threads.
The spectrum stays in the order of the last step (`frequencies`); the inverse starts from there, and what multiplies
a spectrum is stored in that order, so that no bit reversal is needed (Gentleman & Sande 1966).

The inverse is the forward transform with real and imaginary parts exchanged, so both use the same butterflies.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_COSINES = tl.constexpr(tuple(math.cos(math.pi * t / 8) for t in range(8)))
_SINES = tl.constexpr(tuple(math.sin(math.pi * t / 8) for t in range(8)))
_REVERSED = tl.constexpr(tuple(int(f"{i:04b}"[::-1], 2) for i in range(16)))


def frequencies(n: int) -> Tensor:
    """The bin that each row and column holds after `forward`: int64 [16, n / 16]."""
    last = n // 256
    digits = (torch.arange(size) for size in (16 // last, last, 16, last))
    high, k2, k0, low = torch.meshgrid(*digits, indexing="ij")
    return (k0 + 16 * (last * high + low) + 256 * k2).reshape(16, n // 16)


def twiddles(n: int) -> Tensor:
    """Twiddle factors after the first and the second step, real and imaginary: float64 [2, 2, 16, n / 16]."""
    row, column = torch.arange(16)[:, None], torch.arange(n // 16)
    turns = torch.stack((row * column / n, row * (column % (n // 256)) / (n // 16)))
    angle = -2 * torch.pi * turns.double()
    return torch.stack((angle.cos(), angle.sin()), dim=1)


@triton.jit
def offsets(COLUMNS: tl.constexpr):
    """Memory offsets of a contiguous [16, COLUMNS]."""
    return tl.arange(0, 16)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]


@triton.jit
def stored_bins(COLUMNS: tl.constexpr):
    """`frequencies` for 4096 points."""
    row, column = tl.arange(0, 16)[:, None], tl.arange(0, COLUMNS)[None, :]
    return column // 16 + 16 * (column % 16) + 256 * row


@triton.jit
def product(a_re, a_im, b_re, b_im):
    """Complex product a b."""
    return a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re


@triton.jit
def cos_sin(angle):
    """Both to 1e-7 for angles up to 1e4, NaN for NaN.

    `tl.cos` and `tl.sin` would each inline a reduction for angles of any size, with a table in local memory. Here
    pi / 2 is subtracted in three parts, the first two exact (Cody & Waite 1980); polynomials of the Cephes library.
    """
    turns = tl.floor(angle * 0.6366197723675814 + 0.5)
    r = ((angle - turns * 1.5703125) - turns * 4.837512969970703125e-4) - turns * 7.54978995489188216e-8
    z = r * r
    sine = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * r + r
    cosine = ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z - 0.5 * z + 1
    quadrant = tl.where(turns == turns, turns, 0.0).to(tl.int32)
    is_odd = (quadrant & 1) == 1
    re, im = tl.where(is_odd, sine, cosine), tl.where(is_odd, cosine, sine)
    return tl.where(((quadrant + 1) & 2) == 2, -re, re), tl.where((quadrant & 2) == 2, -im, im)


@triton.jit
def _step(re, im, SPAN: tl.constexpr):
    """Radix-2 butterflies of rows that are SPAN apart, with twiddle factors: tuples of 16."""
    next_re, next_im = (), ()
    for i in tl.static_range(16):
        if i & SPAN == 0:
            next_re += (re[i] + re[i + SPAN],)
            next_im += (im[i] + im[i + SPAN],)
        else:
            a, b = re[i - SPAN] - re[i], im[i - SPAN] - im[i]
            if i % SPAN == 0:  # t = 0
                next_re += (a,)
                next_im += (b,)
            elif 2 * (i % SPAN) == SPAN:  # t = 4
                next_re += (b,)
                next_im += (-a,)
            else:
                next_re += (a * _COSINES[i % SPAN * (8 // SPAN)] + b * _SINES[i % SPAN * (8 // SPAN)],)
                next_im += (b * _COSINES[i % SPAN * (8 // SPAN)] - a * _SINES[i % SPAN * (8 // SPAN)],)
    return next_re, next_im


@triton.jit
def _rows(x, COLUMNS: tl.constexpr):
    """[16, COLUMNS] as a tuple of its rows; a column then lies in one thread."""
    parts = (tl.reshape(tl.trans(x), (COLUMNS, 2, 2, 2, 2)),)
    for step in tl.static_range(4):
        low, high = (), ()
        for i in tl.static_range(1 << step):
            a, b = tl.split(parts[i])
            low += (a,)
            high += (b,)
        parts = low + high  # the lowest bit is split off first and stays the tuple's lowest
    return parts


@triton.jit
def _stacked(rows, SIZE: tl.constexpr, COLUMNS: tl.constexpr):
    """The reverse, for rows that are bit-reversed within each group of SIZE (8 or 16)."""
    parts = ()
    for i in tl.static_range(16):
        parts += (rows[i // SIZE * SIZE + _REVERSED[i % SIZE] * SIZE // 16],)
    for step in tl.static_range(4):
        joined = ()
        for i in tl.static_range(8 >> step):
            joined += (tl.join(parts[i], parts[i + (8 >> step)]),)
        parts = joined
    return tl.trans(tl.reshape(parts[0], (COLUMNS, 16)))


@triton.jit
def _row_transforms(re, im, SIZE: tl.constexpr, COLUMNS: tl.constexpr):
    """FFTs along the columns within each group of SIZE (8 or 16) rows: tuples of bit-reversed rows."""
    re, im = _rows(re, COLUMNS), _rows(im, COLUMNS)
    if SIZE == 16:
        re, im = _step(re, im, 8)
    re, im = _step(re, im, 4)
    re, im = _step(re, im, 2)
    return _step(re, im, 1)


@triton.jit
def _butterflies(re, im, SIZE: tl.constexpr, COLUMNS: tl.constexpr):
    """The same with the rows in order: [16, COLUMNS]."""
    re, im = _row_transforms(re, im, SIZE, COLUMNS)
    return _stacked(re, SIZE, COLUMNS), _stacked(im, SIZE, COLUMNS)


@triton.jit
def _exchanged(x, COLUMNS: tl.constexpr):
    """Row t, column (a, b) to row a, column (t, b); a of 16."""
    apart = tl.reshape(x, (16, 16, COLUMNS // 16))
    return tl.reshape(tl.permute(apart, (1, 0, 2)), (16, COLUMNS))


@triton.jit
def _exchanged_last(x, COLUMNS: tl.constexpr):
    """Row (s, t), column (a, b) to row (s, b), column (a, t); b and t of COLUMNS / 16."""
    LAST: tl.constexpr = COLUMNS // 16
    apart = tl.reshape(x, (16 // LAST, LAST, 16, LAST))
    return tl.reshape(tl.permute(apart, (0, 3, 2, 1)), (16, COLUMNS))


@triton.jit
def _before_last_step(re, im, twiddle, COLUMNS: tl.constexpr):
    first = twiddle + offsets(COLUMNS)
    SIZE: tl.constexpr = 16 * COLUMNS
    re, im = _butterflies(re, im, 16, COLUMNS)
    re, im = product(re, im, tl.load(first), tl.load(first + SIZE))
    re, im = _exchanged(re, COLUMNS), _exchanged(im, COLUMNS)
    re, im = _butterflies(re, im, 16, COLUMNS)
    re, im = product(re, im, tl.load(first + 2 * SIZE), tl.load(first + 3 * SIZE))
    return _exchanged_last(re, COLUMNS), _exchanged_last(im, COLUMNS)


@triton.jit
def forward(re, im, twiddle, COLUMNS: tl.constexpr):
    """X[k] = sum_n x[n] e^(-2 pi i k n / N). twiddle: where `twiddles` lie, as float32."""
    re, im = _before_last_step(re, im, twiddle, COLUMNS)
    return _butterflies(re, im, COLUMNS // 16, COLUMNS)


@triton.jit
def store_forward(re, im, twiddle, re_target, im_target, STRIDE: tl.constexpr):
    """`forward` of 4096 points, bin k stored at STRIDE k of the targets.

    Row by row: Triton 3.6 would move the change of layout that a store of [16, 256] asks for in front of the
    stacking, one change and two barriers for each row and step of it.
    """
    re, im = _before_last_step(re, im, twiddle, 256)
    re, im = _row_transforms(re, im, 16, 256)
    column = tl.arange(0, 256)
    bins = column // 16 + 16 * (column % 16)
    for row in tl.static_range(16):
        tl.store(re_target + STRIDE * (bins + 256 * row), re[_REVERSED[row]])
        tl.store(im_target + STRIDE * (bins + 256 * row), im[_REVERSED[row]])


@triton.jit
def inverse(re, im, twiddle, COLUMNS: tl.constexpr):
    """x[n] = sum_k X[k] e^(2 pi i k n / N): without the division by N."""
    first = twiddle + offsets(COLUMNS)
    SIZE: tl.constexpr = 16 * COLUMNS
    im, re = _butterflies(im, re, COLUMNS // 16, COLUMNS)
    re, im = _exchanged_last(re, COLUMNS), _exchanged_last(im, COLUMNS)
    im, re = product(im, re, tl.load(first + 2 * SIZE), tl.load(first + 3 * SIZE))
    im, re = _butterflies(im, re, 16, COLUMNS)
    re, im = _exchanged(re, COLUMNS), _exchanged(im, COLUMNS)
    im, re = product(im, re, tl.load(first), tl.load(first + SIZE))
    im, re = _butterflies(im, re, 16, COLUMNS)
    return re, im

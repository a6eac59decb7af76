"""Toeplitz systems, given by their symbols, solved in four launches instead of about a hundred and fifty.

The mathematics is that of `synthesis.toeplitz` and `synthesis.conjugate_gradients`, with n = 2048 and a grid of
8192 points, in a form that needs four complex transforms of n points in each iteration, and between them nothing
but arithmetic element by element:

- With C(a) circulant and S(a) skew-circulant, both of first column a, the triangular factors of Gohberg and
  Semencul are L(a) = (C + S) / 2 and L(b) = (C - S)^T / 2. A circulant commutes with its transpose, and so does a
  skew-circulant, so that L(a) L(a)^T - L(b) L(b)^T = (C S^T + C^T S) / 2 = (C S^T + J C S^T J) / 2, J the reversal
  of the order (Ammar & Gader 1991). A symmetric Toeplitz matrix of column t is C(u) + S(v), u and v half the sum
  and half the difference of t[m] and t[n - m].
- T and its approximate inverse commute with J, so a real vector x can be represented by x + i J x. The spectrum of
  such a vector is a real number times a fixed phase at each bin: e^(i theta) where C is diagonal (bins k), e^(i
  phi) where S is (bins k + 1/2). In both domains the vectors of the iteration are real, their inner products are
  those of x (Parseval), the projection onto vectors x + i J x takes a real part, and one transform takes two of
  them from one domain to the other, as real and imaginary part. A transform rounds both relative to the larger one,
  so the larger is first scaled to the norm of the other: where both paths lack a band, C(u) z is several hundred
  times z, and z would lose the digits that S(v) amplifies.

An iteration takes r from the domain of S to that of C, and z = P r and C(u) z back to that of S.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from synthesis.backends.cuda.kernels.fft import (
    cos_sin,
    forward,
    frequencies,
    inverse,
    offsets,
    product,
    stored_bins,
    twiddles,
)
from synthesis.backends.cuda.kernels.minimum_phase import (
    inverse_real,
    load_turns,
    minimum_phases,
    store_cepstrum,
    store_taps,
)
from synthesis.conjugate_gradients import Solution
from synthesis.conventions import N_TAPS
from synthesis.toeplitz import TAPER, generating_polynomial

N_FFT = 8192
"""Points of the grid of the symbol."""

_TAPER = tl.constexpr(TAPER)
_LEVEL = tl.constexpr(math.sqrt(2 * N_TAPS))
_TINY = tl.constexpr(torch.finfo(torch.float32).tiny)

# Rows of the constants for n = 2048, [10, 2048], complex ones take two: four of twiddles, then
_TWIST, _THETA, _PHI, _N_ROWS = (tl.constexpr(row) for row in (4, 6, 8, 10))


@cache  # for good: graphs that were captured read it where it lies
def transform_constants(device: torch.device) -> tuple[Tensor, Tensor]:
    """For transforms of 2048 points: twiddles, e^(-i pi m / n) by sample, e^(i theta) and e^(i phi) by bin,
    [10, 2048]. For those of 4096: twiddles and e^(i pi k / 4096) by bin, [6, 4096]."""
    bins = frequencies(N_TAPS).flatten() / N_TAPS
    phases = -torch.arange(N_TAPS) / N_TAPS, 0.25 + bins, -0.25 + bins + 0.5 / N_TAPS
    halves = (frequencies(N_FFT // 2).flatten() / (N_FFT // 2),)

    def rows(n: int, by_pi: tuple[Tensor, ...]) -> Tensor:
        angles = torch.pi * torch.stack(by_pi).double()
        own = torch.stack((angles.cos(), angles.sin()), dim=1)
        return torch.cat((twiddles(n).reshape(-1, n), own.reshape(-1, n))).to(device, torch.float32).contiguous()

    with torch.inference_mode(False):
        return rows(N_TAPS, phases), rows(N_FFT // 2, halves)


_WIDE, _NARROW = 8, 4
N_WARPS = {"_sequences": _WIDE, "_generating_polynomial": _WIDE, "_eigenvalues": _NARROW, "_iterations": _NARROW}
"""By kernel, in the order of launches: one thread for each of the 256 or 128 columns."""

_kernel = triton.jit(
    do_not_specialize_on_alignment=[
        *("symbol", "matched", "constants", "sequences", "cepstrum", "spectra", "value", "residual", "count")
    ],
)
"""One variant of each kernel, so that nothing is compiled later. Pointers are not specialised on alignment either:
vector loads of four values would give each thread four columns, and every exchange a change of layout."""


@_kernel
def _sequences(symbol, matched, constants, sequences, cepstrum, TAPS: tl.constexpr, HALF: tl.constexpr):
    """Program (item, 0): the first TAPS samples of the symbol's inverse transform; 1: of the right-hand side's; 2:
    the transform of the folded cepstrum of the symbol's square root."""
    item, which = tl.program_id(0), tl.program_id(1)
    bins = stored_bins(HALF // 16)
    mirrored = HALF - bins
    symbol += item * (HALF + 1)
    k_re, h_re = tl.load(symbol + bins), tl.load(symbol + mirrored)
    k_im, h_im = tl.zeros_like(k_re), tl.zeros_like(h_re)
    if which == 1:
        own, mirror = matched + item * 2 * (HALF + 1) + 2 * bins, matched + item * 2 * (HALF + 1) + 2 * mirrored
        k_re, h_re = tl.load(own), tl.load(mirror)
        # A real sequence has no imaginary part at 0 Hz and at Nyquist.
        k_im = tl.where(bins == 0, 0.0, tl.load(own + 1))
        h_im = tl.where(bins == 0, 0.0, tl.load(mirror + 1))
    if which == 2:
        k_re, h_re = 0.5 * tl.log(k_re), 0.5 * tl.log(h_re)
    turn_re, turn_im = load_turns(constants, HALF)
    re, im = inverse_real(k_re, k_im, h_re, h_im, turn_re, turn_im, constants, HALF)
    if which < 2:
        store_taps(re, im, sequences + (item * 3 + which) * TAPS, TAPS, HALF)
    else:
        store_cepstrum(re, im, constants, cepstrum + item * 2 * HALF, HALF)


@_kernel
def _generating_polynomial(symbol, cepstrum, constants, sequences, TAPS: tl.constexpr, HALF: tl.constexpr):
    """a[m] e^(-taper m / n), a the impulse response of 1 / F, F the symbol's minimum-phase factor."""
    item = tl.program_id(0)
    bins = stored_bins(HALF // 16)
    mirrored = HALF - bins
    turn_re, turn_im = load_turns(constants, HALF)
    k_phase, h_phase = minimum_phases(cepstrum + item * 2 * HALF, turn_re, turn_im, HALF)
    symbol += item * (HALF + 1)
    k_size, h_size = 1 / tl.sqrt(tl.load(symbol + bins)), 1 / tl.sqrt(tl.load(symbol + mirrored))
    k_re, k_im = cos_sin(k_phase)
    h_re, h_im = cos_sin(h_phase)
    k_re, k_im, h_re, h_im = k_size * k_re, -k_size * k_im, h_size * h_re, -h_size * h_im
    re, im = inverse_real(k_re, k_im, h_re, h_im, turn_re, turn_im, constants, HALF)
    place = 2 * offsets(HALF // 16).to(tl.float32)
    re, im = re * tl.exp(place * (-_TAPER / TAPS)), im * tl.exp((place + 1) * (-_TAPER / TAPS))
    store_taps(re, im, sequences + (item * 3 + 2) * TAPS, TAPS, HALF)


@_kernel
def _eigenvalues(sequences, constants, spectra, TAPS: tl.constexpr):
    """Program (item, 0): C(a) times e^(-i theta) / n; 1: S(a)^T times e^(i phi); 2: C(u), real; 3: S(v), real; 4:
    the right-hand side in the domain of S, with the same norm.

    Rows of `spectra`, [5, 2, n]: the first two; e^(i theta); S(v) and C(u); the right-hand side. Matrix and
    right-hand side are divided by the diagonal of the matrix, so that no level leaves the range of float32.
    """
    item, which = tl.program_id(0), tl.program_id(1)
    place = offsets(TAPS // 16)
    source = tl.where(which < 2, 2, tl.where(which < 4, 0, 1))
    sequences += item * 3 * TAPS
    level = tl.load(sequences)
    re = tl.load(sequences + source * TAPS + place)
    mirror = tl.load(sequences + source * TAPS + (TAPS - tl.where(which == 4, 1, 0) - place) % TAPS)
    im = tl.zeros_like(re)
    if which == 2:
        re = 0.5 / level * tl.where(place == 0, re, re + mirror)
    if which == 3:
        re = 0.5 / level * tl.where(place == 0, re, re - mirror)
    if which == 4:
        re, im = re / (level * _LEVEL), mirror / (level * _LEVEL)
    constant = constants + place
    if (which == 1) | (which >= 3):
        re, im = product(re, im, tl.load(constant + _TWIST * TAPS), tl.load(constant + (_TWIST + 1) * TAPS))
    re, im = forward(re, im, constants, TAPS // 16)
    if which == 0:
        phase_re, phase_im = tl.load(constant + _THETA * TAPS), tl.load(constant + (_THETA + 1) * TAPS)
        re, im = product(re / TAPS, im / TAPS, phase_re, -phase_im)
    if which == 1:
        re, im = product(re, -im, tl.load(constant + _PHI * TAPS), tl.load(constant + (_PHI + 1) * TAPS))
    if which == 4:
        re, im = product(re, im, tl.load(constant + _PHI * TAPS), -tl.load(constant + (_PHI + 1) * TAPS))
    spectra += item * 10 * TAPS + place
    if which == 2:
        tl.store(spectra + 7 * TAPS, re)
        re, im = tl.load(constant + _THETA * TAPS), tl.load(constant + (_THETA + 1) * TAPS)
    tl.store(spectra + 2 * which * TAPS, re)
    tl.store(spectra + (2 * which + 1) * TAPS, im, mask=which != 3)


@_kernel
def _iterations(
    spectra, constants, tolerance, value, residual, count, N_ITERATIONS: tl.constexpr, TAPS: tl.constexpr
):
    """Program (item): conjugate gradients as in `synthesis.conjugate_gradients`."""
    item = tl.program_id(0)
    place = offsets(TAPS // 16)
    spectra += item * 10 * TAPS + place
    constant = constants + place
    r = tl.load(spectra + 8 * TAPS)
    norm = tl.sum(r * r)
    rest = norm
    z = tl.zeros_like(r)
    x, p, p_skew, c_p = z, z, z, z
    previous = 1.0
    n_steps = 0
    running = norm > tolerance * tolerance * norm
    for half in range(2 * N_ITERATIONS):
        odd = half % 2
        re = tl.where(odd == 1, z, r)
        im = tl.where(odd == 1, z * tl.load(spectra + 7 * TAPS), 0.0)
        size = tl.maximum(tl.sum(re * re), _TINY)
        shrink = tl.sqrt(size / (size + tl.sum(im * im)))
        factor = spectra + (2 + 2 * odd) * TAPS
        re, im = product(re, im * shrink, tl.load(factor), tl.load(factor + TAPS))
        re, im = inverse(re, im, constants, TAPS // 16)
        twist = constant + _TWIST * TAPS
        re, im = product(re, im, tl.load(twist), tl.load(twist + TAPS) * (2 * odd - 1))
        re, im = forward(re, im, constants, TAPS // 16)
        if odd == 0:
            z = re * tl.load(spectra) - im * tl.load(spectra + TAPS)
        else:
            phase = constant + _PHI * TAPS
            z_skew, c_z = product(re, im, tl.load(phase) / TAPS, -tl.load(phase + TAPS) / TAPS)
            energy = tl.sum(r * z_skew)
            share = energy / previous
            p = z + share * p
            p_skew = z_skew + share * p_skew
            c_p = c_z / shrink + share * c_p
            product_skew = tl.load(spectra + 6 * TAPS) * p_skew + c_p
            curvature = tl.sum(p_skew * product_skew)
            running = running & (rest > tolerance * tolerance * norm) & (energy > _TINY) & (curvature > _TINY)
            step = tl.where(running, energy, 0.0) / tl.where(running, curvature, 1.0)
            x += step * p
            r -= step * product_skew
            rest = tl.sum(r * r)
            previous = tl.where(running, energy, float("inf"))
            n_steps += running.to(tl.int32)
    theta = constant + _THETA * TAPS
    x = x * (_LEVEL / TAPS)
    re, im = inverse(x * tl.load(theta), x * tl.load(theta + TAPS), constants, TAPS // 16)
    tl.store(value + item * TAPS + place, re)
    tl.store(residual + item, tl.sqrt(rest / tl.maximum(norm, _TINY)))
    tl.store(count + item, n_steps)


def solve(symbol: Tensor, matched: Tensor, *, n_iterations: int, tolerance: float = 1e-6) -> Solution:
    """As `synthesis.toeplitz.solve_toeplitz`, for preconditioned systems of 2048 taps.

    symbol: float32 [batch, n_bins]; matched: complex64 [batch, n_bins], both contiguous. For grids other than that
    of 8192 points, torch operators compute the sequences that the kernels start from.
    """
    batch, n_bins = symbol.shape
    small, large = transform_constants(symbol.device)
    if n_bins == N_FFT // 2 + 1:
        sequences = symbol.new_empty(batch, 3, N_TAPS)
        cepstrum = symbol.new_empty(batch, 2, N_FFT // 2)
        sizes: dict[str, Any] = {"TAPS": N_TAPS, "HALF": N_FFT // 2, "num_warps": _WIDE}
        _sequences[(batch, 3)](symbol, torch.view_as_real(matched), large, sequences, cepstrum, **sizes)
        _generating_polynomial[(batch,)](symbol, cepstrum, large, sequences, **sizes)
    else:
        column, rhs = torch.fft.irfft(torch.stack((symbol.to(matched.dtype), matched)))[..., :N_TAPS]
        sequences = torch.stack((column, rhs, generating_polynomial(symbol, N_TAPS)), dim=1)
    spectra = symbol.new_empty(batch, 5, 2, N_TAPS)
    value, residual = symbol.new_empty(batch, N_TAPS), symbol.new_empty(batch)
    count = symbol.new_empty(batch, dtype=torch.int32)
    _eigenvalues[(batch, 5)](sequences, small, spectra, TAPS=N_TAPS, num_warps=_NARROW)
    sizes = {"N_ITERATIONS": n_iterations, "TAPS": N_TAPS, "num_warps": _NARROW}
    _iterations[(batch,)](spectra, small, tolerance, value, residual, count, **sizes)
    return Solution(value, residual, count)

"""Gauss-Newton updates in ten launches each, of which four are the solve, instead of two hundred.

The mathematics is that of `synthesis.gauss_newton` in its profiles `fast` and `fine`. The bins are divided into
33 segments: below the lowest band, each of the 31 bands, and above. A program handles one segment of one ear and
writes its sums over bins to `bands`, so that the result does not depend on the batch. What needs all bands, that is
J and its derivatives with respect to the band levels, reads `bands` in the next launch, since launches synchronise.

Begin:  `_sample_paths` -> `_normalise` -> `_response` of the taps -> `_apply_step` by all of it -> `_record`.
Update: `_normal_equations` -> the solve -> `_response` of the step -> `_try_steps` -> `_line_search` ->
`_apply_step` -> `_record`.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from synthesis.backends.cuda.buffers import BatchInputs, BatchOutputs
from synthesis.backends.cuda.kernels.fft import offsets, product, store_forward
from synthesis.backends.cuda.kernels.toeplitz import solve, transform_constants
from synthesis.conventions import DESIGN_N_FFT, N_TAPS
from synthesis.fir_wiener import DRIVE_LIMIT
from synthesis.octave_bands import NR_BANDS, edges_hz
from synthesis.prediction import HIGH_BANDS
from synthesis.profiles import (
    DAMPING_FLOOR,
    FAST,
    LEAST_CEILING,
    MAX_UPDATES,
    MOST_CEILING,
    SILENCE,
    STEP_SCALES,
    SUFFICIENT_DECREASE,
    TEMPERATURE,
    VERDICTS,
    RefinementProfile,
)
from synthesis.spectra import frequencies_hz

_BANDS = FAST.risk_bands
N_SEGMENTS = len(_BANDS) + 2
"""The bands, and the bins below and above them."""

# Segments 0 (below), 1 to 31 (bands) and 32 (above), in arrays of 64.
_ALL, _LAST_BAND = tl.constexpr(64), tl.constexpr(len(_BANDS))
_FIRST_TARGET, _LAST_TARGET = (tl.constexpr(_BANDS.index(NR_BANDS[i]) + 1) for i in (0, -1))
_FIRST_HIGH, _LAST_HIGH = (tl.constexpr(_BANDS.index(HIGH_BANDS[i]) + 1) for i in (0, -1))
_TARGET_SHARE = tl.constexpr(1 / len(NR_BANDS))
_RISK, _TEMPERATURE, _LOG_N = (
    tl.constexpr(each) for each in (FAST.risk_weight, TEMPERATURE, math.log(len(_BANDS)))
)
_SILENCE, _DAMPING, _DAMPING_FLOOR = (tl.constexpr(each) for each in (SILENCE, FAST.damping, DAMPING_FLOOR))
_DRIVE, _LEAST, _MOST = (tl.constexpr(each) for each in (DRIVE_LIMIT, LEAST_CEILING, MOST_CEILING))
_NEPER_PER_DB = tl.constexpr(math.log(10) / 20)
_ENOUGH = tl.constexpr(SUFFICIENT_DECREASE)
_TRIALS = tl.constexpr(len(STEP_SCALES))
_BUDGET, _CONVERGED, _NO_DECREASE = (tl.constexpr(VERDICTS.index(each)) for each in VERDICTS)
_TINY = tl.constexpr(torch.finfo(torch.float32).tiny)

# Rows of `bins`, [batch, 7, n_bins]: reference PSD, P, S and W; complex ones take two rows.
_PSD, _PRIMARY, _SECONDARY, _RESPONSE, _N_BIN_ROWS = (tl.constexpr(row) for row in (0, 1, 3, 5, 7))
# Rows of the constants, [3, n_bins]: e^(-i pi k / (n_bins - 1)), and the bins' weights in the ceiling's penalty.
_TURN, _PENALTY_WEIGHT = tl.constexpr(0), tl.constexpr(2)
# Rows of `bands`, [batch, 13, 64]. From the paths: power of the disturbance and of the secondary path under the
# reference (`_normalise` divides them by the total), sum of the reference, largest |P|^2, ceiling.
_DISTURBANCE, _REACH, _REFERENCE, _LOUDEST, _CEILING = (tl.constexpr(row) for row in range(5))
# From the response: E, the penalty above the ceiling and its share of the diagonal of the normal matrix.
_ERROR, _PENALTY, _PULL = (tl.constexpr(row) for row in range(5, 8))
# From the step: linear and quadratic coefficient of E over the step length, and the penalty of each trial.
_CROSS, _SQUARE, _TRIED, _N_BAND_ROWS = (tl.constexpr(row) for row in (8, 9, 10, 13))
# Columns of `items`, [batch, 3]: the total that powers are divided by, J, and the accepted step length.
_TOTAL, _VALUE, _LENGTH, _N_ITEM_ROWS = (tl.constexpr(row) for row in range(4))

N_POINTS = 4096
"""Of a transform inside a program."""
_COLUMNS = 16
"""At least the columns of the history."""
_WIDE, _BAND, _ONE = 8, 4, 1
N_WARPS = {
    "_sample_paths": _BAND,
    "_normalise": _ONE,
    "_response": _WIDE,
    "_normal_equations": _BAND,
    "_try_steps": _BAND,
    "_line_search": _ONE,
    "_apply_step": _BAND,
    "_record": _ONE,
}
"""By kernel. A kernel that overwrites what other threads of its program read has a single warp."""

_kernel = triton.jit(
    do_not_specialize_on_alignment=[
        *("primary", "secondary", "psd", "max_gain_db", "taps", "samples", "step", "packed", "constants"),
        *("twiddle", "edges", "bins", "bands", "items", "symbol", "descent", "solved", "history", "stopped"),
        "n_applied",
    ],
)
"""One variant of each kernel and grid, so that nothing is compiled later."""


@cache  # for good: graphs that were captured read it where it lies
def grid_constants(n_fft: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """By bin, float32 [3, n_bins]; and the first bin of each segment, with the end of the last, int32 [34]."""
    with torch.inference_mode(False):
        n_bins = n_fft // 2 + 1
        angles = -torch.pi * torch.arange(n_bins, dtype=torch.float64) / (n_bins - 1)
        per_octave = torch.zeros(n_bins, dtype=torch.float64)
        per_octave[1:-1] = 1 / torch.arange(1, n_bins - 1, dtype=torch.float64)
        rows = torch.stack((angles.cos(), angles.sin(), FAST.ceiling_weight * per_octave / per_octave.sum()))
        frequency = frequencies_hz(n_fft)
        limits_hz = torch.tensor([edges_hz(n)[0] for n in _BANDS] + [edges_hz(_BANDS[-1])[1]], dtype=torch.float64)
        inner = torch.searchsorted(frequency, limits_hz).tolist()
        edges = torch.tensor([0, *inner, n_bins], dtype=torch.int32)
        return rows.to(device, torch.float32).contiguous(), edges.to(device)


@triton.jit
def segment_bins(edges, segment, BLOCK: tl.constexpr):
    """Bins of a segment, and a mask of those that exist."""
    bins = tl.load(edges + segment) + tl.arange(0, BLOCK)
    return bins, bins < tl.load(edges + segment + 1)


@triton.jit
def _row(bands, ROW: tl.constexpr):
    """A row of `bands`, zero beyond the last segment."""
    place = tl.arange(0, _ALL)
    return tl.load(bands + ROW * _ALL + place, mask=place <= _LAST_BAND + 1, other=0.0)


@triton.jit
def squared(re, im):
    """|x|^2."""
    return re * re + im * im


@triton.jit
def _complex(bins, ROW: tl.constexpr, place, inside, N_BINS: tl.constexpr):
    """Real and imaginary part of a spectrum at some bins."""
    first = bins + ROW * N_BINS + place
    return tl.load(first, mask=inside, other=0.0), tl.load(first + N_BINS, mask=inside, other=0.0)


@triton.jit
def unpacked(packed, constants, place, inside, N_BINS: tl.constexpr):
    """X[k] of a real sequence, from the transform of x[2 n] + i x[2 n + 1]."""
    HALF: tl.constexpr = N_BINS - 1
    own, mirrored = packed + place % HALF, packed + (HALF - place) % HALF
    k_re, k_im = tl.load(own, mask=inside, other=0.0), tl.load(own + HALF, mask=inside, other=0.0)
    h_re, h_im = tl.load(mirrored, mask=inside, other=0.0), tl.load(mirrored + HALF, mask=inside, other=0.0)
    turn_re, turn_im = _complex(constants, _TURN, place, inside, N_BINS)
    odd_re, odd_im = product((k_im + h_im) * 0.5, (h_re - k_re) * 0.5, turn_re, turn_im)
    return (k_re + h_re) * 0.5 + odd_re, (k_im - h_im) * 0.5 + odd_im


@triton.jit
def _residual(bins, w_re, w_im, place, inside, N_BINS: tl.constexpr):
    """P - S W."""
    p_re, p_im = _complex(bins, _PRIMARY, place, inside, N_BINS)
    s_re, s_im = _complex(bins, _SECONDARY, place, inside, N_BINS)
    y_re, y_im = product(s_re, s_im, w_re, w_im)
    return p_re - y_re, p_im - y_im


@triton.jit
def _overshoot(w_re, w_im, ceiling):
    """[|W| / ceiling - 1]_+, NaN where W is."""
    gain = tl.sqrt(squared(w_re, w_im))
    return tl.where(gain <= ceiling, 0.0, gain / ceiling - 1)


@triton.jit
def _log_ratio(bands, error):
    """l_b = ln(E_b / D_b), zero outside the bands, and a mask of the bands."""
    segment = tl.arange(0, _ALL)
    is_band = (segment >= 1) & (segment <= _LAST_BAND)
    disturbance = tl.where(is_band, _row(bands, _DISTURBANCE), 1.0)
    return tl.log(tl.where(is_band, error, 1.0) / disturbance), is_band


@triton.jit
def _objective(bands, error, penalty):
    """J, from E_b and the penalties of the segments."""
    log_ratio, is_band = _log_ratio(bands, error)
    segment = tl.arange(0, _ALL)
    target = tl.where((segment >= _FIRST_TARGET) & (segment <= _LAST_TARGET), log_ratio, 0.0)
    scaled = tl.where(is_band, log_ratio / _TEMPERATURE, -float("inf"))
    largest = tl.max(scaled)
    log_mean = largest + tl.log(tl.sum(tl.exp(scaled - largest))) - _LOG_N
    return tl.sum(target) * _TARGET_SHARE + log_mean * (_RISK * _TEMPERATURE) + tl.sum(penalty)


@_kernel
def _sample_paths(
    primary, secondary, psd, max_gain_db, edges, taps, bins, bands,
    STRIDE: tl.constexpr, N_BINS: tl.constexpr, TAPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (item, segment): samples the paths and sums the reference's power on a grid coarser by STRIDE; their
    powers and the ceiling of |W|, which is constant in a segment; sets response and taps to zero."""
    item, segment = tl.program_id(0), tl.program_id(1)
    place, inside = segment_bins(edges, segment, BLOCK)
    FINE_BINS: tl.constexpr = STRIDE * (N_BINS - 1) + 1
    fine = STRIDE * place
    psd += item * FINE_BINS + fine
    reference = tl.load(psd, mask=inside, other=0.0)
    for away in tl.static_range(1, STRIDE // 2 + 1):
        below = tl.load(psd - away, mask=inside & (fine >= away), other=0.0)
        above = tl.load(psd + away, mask=inside & (fine + away < FINE_BINS), other=0.0)
        # A bin half-way between two coarse ones is shared by them.
        reference += (below + above) * (0.5 if 2 * away == STRIDE else 1.0)
    primary += 2 * (item * FINE_BINS + fine)
    secondary += 2 * (item * FINE_BINS + fine)
    p_re, p_im = tl.load(primary, mask=inside, other=0.0), tl.load(primary + 1, mask=inside, other=0.0)
    s_re, s_im = tl.load(secondary, mask=inside, other=0.0), tl.load(secondary + 1, mask=inside, other=0.0)
    bins += item * _N_BIN_ROWS * N_BINS + place
    tl.store(bins + _PSD * N_BINS, reference, mask=inside)
    tl.store(bins + _PRIMARY * N_BINS, p_re, mask=inside)
    tl.store(bins + (_PRIMARY + 1) * N_BINS, p_im, mask=inside)
    tl.store(bins + _SECONDARY * N_BINS, s_re, mask=inside)
    tl.store(bins + (_SECONDARY + 1) * N_BINS, s_im, mask=inside)
    tl.store(bins + _RESPONSE * N_BINS, tl.zeros_like(p_re), mask=inside)
    tl.store(bins + (_RESPONSE + 1) * N_BINS, tl.zeros_like(p_re), mask=inside)
    primary_power, secondary_power = squared(p_re, p_im), squared(s_re, s_im)
    # Above the scored bands the loudspeaker stays below the disturbance.
    drive = tl.sqrt(tl.sum(primary_power)) / tl.sqrt(tl.maximum(tl.sum(secondary_power), _TINY)) * _DRIVE
    is_high = (segment >= _FIRST_HIGH) & (segment <= _LAST_HIGH)
    ceiling = tl.exp(tl.load(max_gain_db + item) * _NEPER_PER_DB)
    ceiling = tl.where(is_high, tl.minimum(ceiling, tl.minimum(tl.maximum(drive, _LEAST), _MOST)), ceiling)
    bands += item * _N_BAND_ROWS * _ALL + segment
    tl.store(bands + _DISTURBANCE * _ALL, tl.sum(reference * primary_power))
    tl.store(bands + _REACH * _ALL, tl.sum(reference * secondary_power))
    tl.store(bands + _REFERENCE * _ALL, tl.sum(reference))
    tl.store(bands + _LOUDEST * _ALL, tl.max(primary_power))
    tl.store(bands + _CEILING * _ALL, ceiling)
    SHARE: tl.constexpr = TAPS // 16
    tap = segment * SHARE + tl.arange(0, SHARE)
    tl.store(taps + item * TAPS + tap, tl.zeros([SHARE], tl.float32), mask=tap < TAPS)


@_kernel
def _normalise(bands, items):
    """Divides powers by the total disturbance, infinity if there is none; sets the step length to one."""
    item = tl.program_id(0)
    bands += item * _N_BAND_ROWS * _ALL
    segment = tl.arange(0, _ALL)
    disturbance = _row(bands, _DISTURBANCE)
    is_band = (segment >= 1) & (segment <= _LAST_BAND)
    loudest = tl.sum(_row(bands, _REFERENCE)) * tl.max(_row(bands, _LOUDEST))
    total = tl.maximum(tl.sum(tl.where(is_band, disturbance, 0.0)), loudest * _SILENCE)
    total = tl.where(total <= _TINY, float("inf"), total)
    tl.store(bands + _DISTURBANCE * _ALL + segment, disturbance / total + _SILENCE)
    tl.store(bands + _REACH * _ALL + segment, _row(bands, _REACH) / total)
    tl.store(items + item * _N_ITEM_ROWS + _TOTAL, total)
    tl.store(items + item * _N_ITEM_ROWS + _LENGTH, 1.0)


@_kernel
def _response(samples, twiddle, constants, packed, TAPS: tl.constexpr, POINTS: tl.constexpr, PARTS: tl.constexpr):
    """The transform of HALF = POINTS PARTS points of x[2 n] + i x[2 n + 1], x the samples and zeros after them.

    Program (item, p): its bins p, p + PARTS, p + 2 PARTS, ..., which are the transform of POINTS points of the
    samples times e^(-2 pi i p n / HALF).
    """
    item, part = tl.program_id(0), tl.program_id(1)
    HALF: tl.constexpr = PARTS * POINTS
    place = offsets(POINTS // 16)
    given = place < TAPS // 2
    samples += item * TAPS + 2 * place
    re, im = tl.load(samples, mask=given, other=0.0), tl.load(samples + 1, mask=given, other=0.0)
    if PARTS > 1:
        turn = constants + _TURN * (HALF + 1) + 2 * part * place
        turn_re = tl.load(turn, mask=given, other=0.0)
        turn_im = tl.load(turn + HALF + 1, mask=given, other=0.0)
        re, im = product(re, im, turn_re, turn_im)
    packed += item * 2 * HALF + part
    store_forward(re, im, twiddle, packed, packed + HALF, PARTS)


@_kernel
def _normal_equations(
    bins, bands, items, constants, edges, symbol, descent, N_BINS: tl.constexpr, BLOCK: tl.constexpr
):
    """Program (item, segment): symbol of the damped normal matrix and spectrum of minus the gradient of J.

    The damping follows the matrix' diagonal, sum_b c_b sum_{k in b} w_k |S_k|^2 and the ceiling's share.
    """
    item, segment = tl.program_id(0), tl.program_id(1)
    N_FFT: tl.constexpr = 2 * (N_BINS - 1)
    bands += item * _N_BAND_ROWS * _ALL
    bins += item * _N_BIN_ROWS * N_BINS
    every = tl.arange(0, _ALL)
    error = _row(bands, _ERROR) + _SILENCE
    log_ratio, is_band = _log_ratio(bands, error)
    scaled = tl.where(is_band, log_ratio / _TEMPERATURE, -float("inf"))
    softmax = tl.exp(scaled - tl.max(scaled))
    softmax = softmax / tl.sum(softmax)
    in_target = tl.where((every >= _FIRST_TARGET) & (every <= _LAST_TARGET), _TARGET_SHARE, 0.0)
    band_weight = tl.where(is_band, (in_target + softmax * _RISK) / error, 0.0)
    diagonal = 2 * tl.sum(band_weight * _row(bands, _REACH) + _row(bands, _PULL))
    damping = tl.maximum(diagonal, 1e-6) * _DAMPING + _DAMPING_FLOOR

    place, inside = segment_bins(edges, segment, BLOCK)
    own = tl.sum(tl.where(every == segment, band_weight, 0.0))
    weight = tl.load(bins + _PSD * N_BINS + place, mask=inside, other=0.0)
    weight = own * (weight / tl.load(items + item * _N_ITEM_ROWS + _TOTAL))
    s_re, s_im = _complex(bins, _SECONDARY, place, inside, N_BINS)
    w_re, w_im = _complex(bins, _RESPONSE, place, inside, N_BINS)
    r_re, r_im = _residual(bins, w_re, w_im, place, inside, N_BINS)
    toward_re, toward_im = product(s_re, -s_im, r_re, r_im)
    ceiling = tl.load(bands + _CEILING * _ALL + segment)
    overshoot = _overshoot(w_re, w_im, ceiling)
    pull = tl.load(constants + _PENALTY_WEIGHT * N_BINS + place, mask=inside, other=0.0) / ceiling
    # W / |W| * overshoot / ceiling, the excess of |W|.
    excess = pull * overshoot / tl.maximum(tl.sqrt(squared(w_re, w_im)), _TINY)
    found = weight * squared(s_re, s_im) + tl.where(overshoot > 0, pull / ceiling, 0.0)
    tl.store(symbol + item * N_BINS + place, found * N_FFT + damping, mask=inside)
    descent += 2 * (item * N_BINS + place)
    tl.store(descent, (weight * toward_re - excess * w_re) * N_FFT, mask=inside)
    tl.store(descent + 1, (weight * toward_im - excess * w_im) * N_FFT, mask=inside)


@_kernel
def _try_steps(bins, bands, items, constants, edges, packed, N_BINS: tl.constexpr, BLOCK: tl.constexpr):
    """Program (item, segment): E_b as a quadratic of the step's length, and the penalty at each of STEP_SCALES."""
    item, segment = tl.program_id(0), tl.program_id(1)
    bands += item * _N_BAND_ROWS * _ALL + segment
    bins += item * _N_BIN_ROWS * N_BINS
    place, inside = segment_bins(edges, segment, BLOCK)
    v_re, v_im = unpacked(packed + item * 2 * (N_BINS - 1), constants, place, inside, N_BINS)
    w_re, w_im = _complex(bins, _RESPONSE, place, inside, N_BINS)
    s_re, s_im = _complex(bins, _SECONDARY, place, inside, N_BINS)
    r_re, r_im = _residual(bins, w_re, w_im, place, inside, N_BINS)
    change_re, change_im = product(s_re, s_im, v_re, v_im)
    weight = tl.load(bins + _PSD * N_BINS + place, mask=inside, other=0.0)
    weight = weight / tl.load(items + item * _N_ITEM_ROWS + _TOTAL)
    tl.store(bands + _CROSS * _ALL, tl.sum(weight * (r_re * change_re + r_im * change_im)))
    tl.store(bands + _SQUARE * _ALL, tl.sum(weight * squared(change_re, change_im)))
    ceiling = tl.load(bands + _CEILING * _ALL)
    penalty_weight = tl.load(constants + _PENALTY_WEIGHT * N_BINS + place, mask=inside, other=0.0)
    for trial in tl.static_range(_TRIALS):
        length = 1.0 / (1 << trial)
        overshoot = _overshoot(w_re + length * v_re, w_im + length * v_im, ceiling)
        tl.store(bands + (_TRIED + trial) * _ALL, tl.sum(penalty_weight * overshoot * overshoot))


@_kernel
def _line_search(bands, items, stopped, n_applied):
    """Backtracking: the longest trial step that decreases J enough, else length zero and the reason to stop. NaN
    counts as no decrease."""
    item = tl.program_id(0)
    bands += item * _N_BAND_ROWS * _ALL
    items += item * _N_ITEM_ROWS
    value = tl.load(items + _VALUE)
    error, cross, square = _row(bands, _ERROR) + _SILENCE, _row(bands, _CROSS), _row(bands, _SQUARE)
    least = tl.maximum(tl.abs(value), 1.0) * _ENOUGH
    most = -float("inf")
    length = 0.0
    for trial in tl.static_range(_TRIALS - 1, -1, -1):  # the longest last, which overrides the others
        scale = 1.0 / (1 << trial)
        power = error + scale * (scale * square - 2 * cross)
        power = tl.where(power < _SILENCE, _SILENCE, power)
        decrease = value - _objective(bands, power, _row(bands, _TRIED + trial))
        most = tl.where(decrease > most, decrease, most)
        length = tl.where(decrease >= least, scale, length)
    verdict = tl.load(stopped + item)
    active = verdict == _BUDGET
    length = tl.where(active, length, 0.0)
    reason = tl.where(most > 0, _CONVERGED, _NO_DECREASE)
    tl.store(stopped + item, tl.where(active & (length == 0), reason, verdict))
    tl.store(n_applied + item, tl.load(n_applied + item) + (length > 0).to(tl.int32))
    tl.store(items + _LENGTH, length)


@_kernel
def _apply_step(
    bins, bands, items, constants, edges, packed, step, taps,
    N_BINS: tl.constexpr, TAPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Program (item, segment): adds the step to response and taps; of the new response, E_b, the penalty, and its
    share of the diagonal of the normal matrix."""
    item, segment = tl.program_id(0), tl.program_id(1)
    bands += item * _N_BAND_ROWS * _ALL + segment
    bins += item * _N_BIN_ROWS * N_BINS
    items += item * _N_ITEM_ROWS
    length = tl.load(items + _LENGTH)
    place, inside = segment_bins(edges, segment, BLOCK)
    v_re, v_im = unpacked(packed + item * 2 * (N_BINS - 1), constants, place, inside, N_BINS)
    w_re, w_im = _complex(bins, _RESPONSE, place, inside, N_BINS)
    # A rejected step may be NaN, so it is not multiplied by zero.
    w_re = tl.where(length > 0, w_re + length * v_re, w_re)
    w_im = tl.where(length > 0, w_im + length * v_im, w_im)
    tl.store(bins + _RESPONSE * N_BINS + place, w_re, mask=inside)
    tl.store(bins + (_RESPONSE + 1) * N_BINS + place, w_im, mask=inside)
    r_re, r_im = _residual(bins, w_re, w_im, place, inside, N_BINS)
    weight = tl.load(bins + _PSD * N_BINS + place, mask=inside, other=0.0) / tl.load(items + _TOTAL)
    tl.store(bands + _ERROR * _ALL, tl.sum(weight * squared(r_re, r_im)))
    ceiling = tl.load(bands + _CEILING * _ALL)
    penalty_weight = tl.load(constants + _PENALTY_WEIGHT * N_BINS + place, mask=inside, other=0.0)
    overshoot = _overshoot(w_re, w_im, ceiling)
    tl.store(bands + _PENALTY * _ALL, tl.sum(penalty_weight * overshoot * overshoot))
    tl.store(bands + _PULL * _ALL, tl.sum(tl.where(overshoot > 0, penalty_weight / ceiling / ceiling, 0.0)))
    SHARE: tl.constexpr = TAPS // 16
    tap = segment * SHARE + tl.arange(0, SHARE)
    old = tl.load(taps + item * TAPS + tap, mask=tap < TAPS, other=0.0)
    new = old + length * tl.load(step + item * TAPS + tap, mask=tap < TAPS, other=0.0)
    tl.store(taps + item * TAPS + tap, tl.where(length > 0, new, old), mask=tap < TAPS)


@_kernel
def _record(
    bands, items, solved, history, stopped, n_applied,
    N_COLUMNS: tl.constexpr, BEGIN: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """J of the current filter, and the history shifted by one column: J, step length and the solver's residual, or
    NaN without a step. BEGIN: before the first update."""
    item = tl.program_id(0)
    items += item * _N_ITEM_ROWS
    bands += item * _N_BAND_ROWS * _ALL
    length = tl.load(items + _LENGTH)
    value = _objective(bands, _row(bands, _ERROR) + _SILENCE, _row(bands, _PENALTY))
    column = tl.arange(0, COLUMNS)
    last = column == N_COLUMNS - 1
    history += item * 3 * N_COLUMNS + column
    nan = float("nan")
    if BEGIN:
        tl.store(items + _VALUE, value)
        tl.store(stopped + item, _BUDGET)
        tl.store(n_applied + item, 0)
        for row in tl.static_range(3):
            tl.store(history + row * N_COLUMNS, tl.where(last & (row == 0), value, nan), mask=column < N_COLUMNS)
    else:
        made = length > 0
        tl.store(items + _VALUE, tl.where(made, value, tl.load(items + _VALUE)))
        for row in tl.static_range(3):
            latest = value if row == 0 else (length if row == 1 else tl.load(solved + item))
            earlier = tl.load(history + row * N_COLUMNS + 1, mask=column < N_COLUMNS - 1, other=nan)
            tl.debug_barrier()  # read everything before overwriting it
            shifted = tl.where(last, tl.where(made, latest, nan), earlier)
            tl.store(history + row * N_COLUMNS, shifted, mask=column < N_COLUMNS)


class GaussNewtonState:
    """As `synthesis.gauss_newton.GaussNewtonState`, for the profiles `fast` and `fine`.

    Taps, history, verdicts and counts lie in `outputs`, which is up to date after the start and each update.
    """

    def __init__(
        self, inputs: BatchInputs, start: Tensor, outputs: BatchOutputs, profile: RefinementProfile
    ) -> None:
        """start: taps [batch, 2048], contiguous, not in `outputs`."""
        batch, n_bins = len(start), profile.n_fft // 2 + 1
        self._batch, self._profile, self._outputs = batch, profile, outputs
        self._constants, self._edges = grid_constants(profile.n_fft, start.device)
        self._bins = start.new_empty(batch, _N_BIN_ROWS.value, n_bins)
        self._bands = start.new_empty(batch, _N_BAND_ROWS.value, _ALL.value)
        self._items = start.new_empty(batch, _N_ITEM_ROWS.value)
        self._packed = start.new_empty(batch, 2, n_bins - 1)
        self._symbol = start.new_empty(batch, n_bins)
        self._descent = start.new_empty(batch, n_bins, dtype=torch.complex64)
        self._state = self._bins, self._bands, self._items, self._constants, self._edges

        self._by_band(
            _sample_paths,
            torch.view_as_real(inputs.primary),
            torch.view_as_real(inputs.secondary),
            inputs.reference_psd,
            inputs.max_gain_db,
            self._edges,
            outputs.taps,
            self._bins,
            self._bands,
            STRIDE=DESIGN_N_FFT // profile.n_fft,
            TAPS=N_TAPS,
        )
        self._by_item(_normalise, self._bands, self._items)
        transform(start, self._constants, self._packed)
        self._by_band(_apply_step, *self._state, self._packed, start, outputs.taps, TAPS=N_TAPS)
        self._record(self._items, begin=True)

    def update(self) -> None:
        """One update of every item that has not stopped."""
        outputs = self._outputs
        self._by_band(_normal_equations, *self._state, self._symbol, torch.view_as_real(self._descent))
        solution = solve(
            self._symbol,
            self._descent,
            n_iterations=self._profile.n_iterations,
            tolerance=self._profile.tolerance,
        )
        transform(solution.value, self._constants, self._packed)
        self._by_band(_try_steps, *self._state, self._packed)
        self._by_item(_line_search, self._bands, self._items, outputs.stopped, outputs.n_applied)
        self._by_band(_apply_step, *self._state, self._packed, solution.value, outputs.taps, TAPS=N_TAPS)
        self._record(solution.residual, begin=False)

    def _by_band(self, kernel: Any, *arguments: Tensor | int, **sizes: int) -> None:
        n_bins = self._bins.shape[-1]
        # The widest segment, the highest band, has 0.19 of the bins.
        sizes |= {"N_BINS": n_bins, "BLOCK": (n_bins - 1) // 4}
        kernel[(self._batch, N_SEGMENTS)](*arguments, **sizes, num_warps=_BAND)

    def _by_item(self, kernel: Any, *arguments: Tensor | int, **sizes: int) -> None:
        kernel[(self._batch,)](*arguments, **sizes, num_warps=_ONE)

    def _record(self, solved: Tensor, *, begin: bool) -> None:
        outputs = self._outputs
        given = self._bands, self._items, solved, outputs.history, outputs.stopped, outputs.n_applied
        self._by_item(_record, *given, N_COLUMNS=MAX_UPDATES + 1, BEGIN=begin, COLUMNS=_COLUMNS)


def transform(samples: Tensor, constants: Tensor, packed: Tensor) -> None:
    """Of taps [batch, 2048], as x[2 n] + i x[2 n + 1] on the constants' grid: packed [batch, 2, n_bins - 1]."""
    twiddle = transform_constants(samples.device)[1]
    n_parts = packed.shape[-1] // N_POINTS
    sizes = {"TAPS": N_TAPS, "POINTS": N_POINTS, "PARTS": n_parts}
    _response[(len(samples), n_parts)](samples, twiddle, constants, packed, **sizes, num_warps=_WIDE)

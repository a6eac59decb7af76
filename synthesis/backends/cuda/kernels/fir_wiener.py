"""The finite Wiener filter of a generator in eight launches, four of which are the solve.

The mathematics is that of `synthesis.fir_wiener` on the grid of 8192 points, one program per ear. `_system` makes
the normal equations from the log paths and the corrections, which are given on the generator's own grid. After the
solve, `gauss_newton.transform` gives the response of the taps, `_limit_response` the gain g that keeps it below its
ceiling and the cepstrum of g, and `_limited_taps` applies g with its minimum phase and transforms back.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from synthesis.backends.cuda.kernels.fft import cos_sin, product, stored_bins
from synthesis.backends.cuda.kernels.gauss_newton import grid_constants, transform
from synthesis.backends.cuda.kernels.minimum_phase import (
    inverse_real,
    load_turns,
    minimum_phases,
    store_cepstrum,
    store_taps,
)
from synthesis.backends.cuda.kernels.toeplitz import N_FFT, solve, transform_constants
from synthesis.conventions import DESIGN_N_FFT, N_TAPS
from synthesis.fir_wiener import (
    CEILING_SHARPNESS,
    DAMPING,
    HIGH_EDGE_HZ,
    LOW_EDGE_HZ,
    N_ITERATIONS,
    drive_ceiling,
    starting_weight,
)
from synthesis.frequency_grid import LogFrequencyGrid
from synthesis.generator_config import GeneratorConfig

_DAMPING, _SHARPNESS = tl.constexpr(DAMPING), tl.constexpr(CEILING_SHARPNESS)
_TINY = tl.constexpr(torch.finfo(torch.float32).tiny)

# Rows of the points' constants, [4, n_points]: log weight, log penalty and log ceiling of paths of level one, and
# the points' shares in the level.
_WEIGHT, _PENALTY, _CEILING, _BETWEEN = (tl.constexpr(row) for row in range(4))

MOST_POINTS = 128
"""Of the generator's grid."""
_WIDE = 8
N_WARPS = {"_system": _WIDE, "_limit_response": _WIDE, "_limited_taps": _WIDE}
"""By kernel, in the order of launches."""

_kernel = triton.jit(
    do_not_specialize=["n_points"],
    do_not_specialize_on_alignment=[
        *("primary", "secondary", "log_paths", "correction", "points", "lower", "fraction", "log_limit", "symbol"),
        *("matched", "log_ceiling", "packed", "constants", "limited", "cepstrum", "taps"),
    ],
)
"""One variant of each kernel."""


@cache  # for good: graphs that were captured read it where it lies
def _grid_rows(
    n_fft: int, n_points: int, low_hz: float, high_hz: float, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Constants of the points, float32 [4, n_points]; by bin, the point below, int32, and the fraction of the way
    to the next, float32."""
    with torch.inference_mode(False):
        grid = LogFrequencyGrid(n_fft, n_points, low_hz, high_hz)
        silent, points_hz = torch.zeros(1, 2, n_points, dtype=torch.float64), grid.points_hz.double()
        between = ((points_hz > LOW_EDGE_HZ) & (points_hz < HIGH_EDGE_HZ)).double()
        shares = between / between.sum()
        rows = (*starting_weight(silent, points_hz)[0], drive_ceiling(silent, points_hz)[0], shares)
        points = torch.stack(rows).to(device, torch.float32).contiguous()
        return points, grid.lower.to(device, torch.int32), grid.fraction.to(device, torch.float32)


@triton.jit
def _spread(low, high, fraction):
    """Linear interpolation."""
    return low + fraction * (high - low)


@triton.jit
def _softplus(x):
    """log(1 + e^(beta x)) / beta, without overflow."""
    return tl.maximum(x, 0.0) + tl.log(1 + tl.exp(-tl.abs(x) * _SHARPNESS)) / _SHARPNESS


@_kernel
def _system(
    primary, secondary, log_paths, correction, points, lower, fraction, log_limit, symbol, matched, log_ceiling,
    n_points, STRIDE: tl.constexpr, HALF: tl.constexpr, POINTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The normal equations of weight v and penalty l: symbol v |S|^2 + l plus a share of its mean, and v S* P.

    log v = (start + 2 correction - 2 log |P|) spread over the bins, levelled by the mean of 2 log |P / S| between
    the edges. Below log c, the loudspeaker's ceiling or the limit asked for, l is raised to v |S| (|P| / c - |S|).
    """
    item = tl.program_id(0)
    log_paths += item * 2 * n_points
    correction += item * 2 * n_points
    point = tl.arange(0, POINTS)
    given = point < n_points
    log_p = tl.load(log_paths + point, mask=given, other=0.0)
    log_s = tl.load(log_paths + n_points + point, mask=given, other=0.0)
    share = tl.load(points + _BETWEEN * n_points + point, mask=given, other=0.0)
    level = 2 * tl.sum(share * (log_p - log_s))
    limit = tl.load(log_limit + item)
    symbol += item * (HALF + 1)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, HALF + 1, BLOCK):
        place = first + tl.arange(0, BLOCK)
        inside = place <= HALF
        low = tl.load(lower + place, mask=inside, other=0)
        toward = tl.load(fraction + place, mask=inside, other=0.0)
        own_p, next_p = tl.load(log_paths + low), tl.load(log_paths + low + 1)
        own_s, next_s = tl.load(log_paths + n_points + low), tl.load(log_paths + n_points + low + 1)
        own, next = tl.load(points + _WEIGHT * n_points + low), tl.load(points + _WEIGHT * n_points + low + 1)
        own += 2 * (tl.load(correction + low) - own_p)
        next += 2 * (tl.load(correction + low + 1) - next_p)
        weight = tl.exp(_spread(own, next, toward) + level)
        own, next = tl.load(points + _PENALTY * n_points + low), tl.load(points + _PENALTY * n_points + low + 1)
        own += 2 * tl.load(correction + n_points + low)
        next += 2 * tl.load(correction + n_points + low + 1)
        penalty = tl.exp(_spread(own, next, toward))
        own, next = tl.load(points + _CEILING * n_points + low), tl.load(points + _CEILING * n_points + low + 1)
        ceiling = tl.minimum(_spread(own + own_p - own_s, next + next_p - next_s, toward), limit)
        tl.store(log_ceiling + item * (HALF + 1) + place, ceiling, mask=inside)

        fine = 2 * (item * (STRIDE * HALF + 1) + STRIDE * place)
        p_re, p_im = (
            tl.load(primary + fine, mask=inside, other=0.0),
            tl.load(primary + fine + 1, mask=inside, other=0.0),
        )
        s_re = tl.load(secondary + fine, mask=inside, other=0.0)
        s_im = tl.load(secondary + fine + 1, mask=inside, other=0.0)
        power = s_re * s_re + s_im * s_im
        drive = tl.sqrt((p_re * p_re + p_im * p_im) * power) * tl.exp(-ceiling)
        penalty = tl.maximum(penalty, weight * (drive - power))
        undamped = tl.where(inside, weight * power + penalty, 0.0)
        total += undamped
        tl.store(symbol + place, undamped, mask=inside)
        toward_re, toward_im = product(s_re, -s_im, p_re, p_im)
        out = matched + 2 * (item * (HALF + 1) + place)
        tl.store(out, weight * toward_re, mask=inside)
        tl.store(out + 1, weight * toward_im, mask=inside)
    damping = tl.sum(total) / (HALF + 1) * _DAMPING
    tl.debug_barrier()
    for first in range(0, HALF + 1, BLOCK):
        place = first + tl.arange(0, BLOCK)
        undamped = tl.load(symbol + place, mask=place <= HALF, other=0.0)
        tl.store(symbol + place, undamped + damping, mask=place <= HALF)


@_kernel
def _limit_response(packed, log_ceiling, constants, limited, cepstrum, HALF: tl.constexpr):
    """From the response W, as the transform of x[2 n] + i x[2 n + 1]: W g with ln g = -softplus(ln |W| - ln c), and
    the transform of the folded cepstrum of g."""
    item = tl.program_id(0)
    bins = stored_bins(HALF // 16)
    mirrored = HALF - bins
    turn_re, turn_im = load_turns(constants, HALF)
    packed += item * 2 * HALF
    k_re, k_im = tl.load(packed + bins), tl.load(packed + HALF + bins)
    h_re, h_im = tl.load(packed + mirrored % HALF), tl.load(packed + HALF + mirrored % HALF)
    even_re, even_im = (k_re + h_re) * 0.5, (k_im - h_im) * 0.5
    odd_re, odd_im = product((k_im + h_im) * 0.5, (h_re - k_re) * 0.5, turn_re, -turn_im)
    k_re, k_im, h_re, h_im = even_re + odd_re, even_im + odd_im, even_re - odd_re, odd_im - even_im
    log_ceiling += item * (HALF + 1)
    k_excess = 0.5 * tl.log(tl.maximum(k_re * k_re + k_im * k_im, _TINY)) - tl.load(log_ceiling + bins)
    h_excess = 0.5 * tl.log(tl.maximum(h_re * h_re + h_im * h_im, _TINY)) - tl.load(log_ceiling + mirrored)
    k_gain, h_gain = -_softplus(k_excess), -_softplus(h_excess)
    limited += item * 2 * (HALF + 1)
    tl.store(limited + bins, k_re * tl.exp(k_gain))
    tl.store(limited + HALF + 1 + bins, k_im * tl.exp(k_gain))
    tl.store(limited + mirrored, h_re * tl.exp(h_gain), mask=bins == 0)
    tl.store(limited + HALF + 1 + mirrored, h_im * tl.exp(h_gain), mask=bins == 0)
    nothing = tl.zeros_like(k_gain)
    re, im = inverse_real(k_gain, nothing, h_gain, nothing, turn_re, turn_im, constants, HALF)
    store_cepstrum(re, im, constants, cepstrum + item * 2 * HALF, HALF)


@_kernel
def _limited_taps(limited, cepstrum, constants, taps, TAPS: tl.constexpr, HALF: tl.constexpr):
    """Taps of W g e^(i phase), the phase being the minimum phase of g."""
    item = tl.program_id(0)
    bins = stored_bins(HALF // 16)
    mirrored = HALF - bins
    turn_re, turn_im = load_turns(constants, HALF)
    k_phase, h_phase = minimum_phases(cepstrum + item * 2 * HALF, turn_re, turn_im, HALF)
    own, mirror = limited + item * 2 * (HALF + 1) + bins, limited + item * 2 * (HALF + 1) + mirrored
    cosine, sine = cos_sin(k_phase)
    k_re, k_im = product(tl.load(own), tl.load(own + HALF + 1), cosine, sine)
    cosine, sine = cos_sin(h_phase)
    h_re, h_im = product(tl.load(mirror), tl.load(mirror + HALF + 1), cosine, sine)
    re, im = inverse_real(k_re, k_im, h_re, h_im, turn_re, turn_im, constants, HALF)
    store_taps(re, im, taps + item * TAPS, TAPS, HALF)


def design(
    config: GeneratorConfig,
    primary: Tensor,
    secondary: Tensor,
    log_paths: Tensor,
    correction: Tensor,
    log_ceiling: Tensor,
) -> Tensor:
    """Taps [batch, 2048], as `synthesis.synthesizer.synthesize_fir` for a supported generator.

    primary, secondary: complex64 [batch, 16385], contiguous. log_paths, correction: [batch, 2, n_points].
    log_ceiling: natural log of the largest |W|, [batch, 1].
    """
    batch, half, device = len(log_paths), N_FFT // 2, log_paths.device
    rows = _grid_rows(config.n_fft, config.n_points, config.low_hz, config.high_hz, device)
    large = transform_constants(device)[1]
    symbol, ceiling = log_paths.new_empty(2, batch, half + 1)
    matched = log_paths.new_empty(batch, half + 1, dtype=torch.complex64)
    sizes: dict[str, Any] = {"HALF": half, "num_warps": _WIDE}
    _system[(batch,)](
        torch.view_as_real(primary),
        torch.view_as_real(secondary),
        log_paths,
        correction,
        *rows,
        log_ceiling,
        symbol,
        torch.view_as_real(matched),
        ceiling,
        config.n_points,
        STRIDE=DESIGN_N_FFT // N_FFT,
        POINTS=MOST_POINTS,
        BLOCK=half // 4,
        **sizes,
    )
    solution = solve(symbol, matched, n_iterations=N_ITERATIONS)
    packed, cepstrum = log_paths.new_empty(2, batch, 2, half)
    limited, taps = log_paths.new_empty(batch, 2, half + 1), log_paths.new_empty(batch, N_TAPS)
    transform(solution.value, grid_constants(N_FFT, device)[0], packed)
    _limit_response[(batch,)](packed, ceiling, large, limited, cepstrum, **sizes)
    _limited_taps[(batch,)](limited, cepstrum, large, taps, TAPS=N_TAPS, **sizes)
    return taps

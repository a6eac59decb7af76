"""The input features of a generator on log-spaced points, in two launches instead of sixty.

The mathematics is that of `synthesis.path_ratio` and `synthesis.features`, for a held-band base on the grid of 8192
points. `_spectra`, one program per ear, computes what needs all bins: the floors of the logarithms, their means and
standard deviations, and the folded cepstrum of the base. `_pool`, one program per ear and point, computes the
channels at the bins under the point's triangular window and their weighted means.
"""

from __future__ import annotations

import math
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from synthesis.backends.cuda.kernels.fft import cos_sin, product, stored_bins
from synthesis.backends.cuda.kernels.gauss_newton import grid_constants
from synthesis.backends.cuda.kernels.minimum_phase import inverse_real, load_turns, store_cepstrum
from synthesis.backends.cuda.kernels.toeplitz import N_FFT, transform_constants
from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from synthesis.features import N_CHANNELS
from synthesis.frequency_grid import LogFrequencyGrid
from synthesis.generator_config import GeneratorConfig
from synthesis.path_ratio import HELD_HIGH_HZ, HELD_LOW_HZ, MAGNITUDE_FLOOR, REGULARISATION

_N_CHANNELS = tl.constexpr(N_CHANNELS)
_EPSILON, _FLOOR = tl.constexpr(REGULARISATION**2), tl.constexpr(MAGNITUDE_FLOOR**2)
_TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
_LEAST_DEVIATION = tl.constexpr(1e-6)
_LOW, _HIGH = (
    tl.constexpr(each)
    for each in (math.ceil(HELD_LOW_HZ * N_FFT / SAMPLE_RATE_HZ), math.floor(HELD_HIGH_HZ * N_FFT / SAMPLE_RATE_HZ))
)
"""Between these bins the base is the ratio's, beyond them it keeps its value there."""

# Columns of `figures`, [batch, 10]: floor, mean and deviation of log |W_reg|, log |P| and log |S|; epsilon squared.
_OF_RATIO, _OF_PRIMARY, _OF_SECONDARY, _EPSILON_SQUARED = (tl.constexpr(place) for place in (0, 3, 6, 9))
_N_FIGURES = tl.constexpr(10)

_WIDTH = 1024
"""At least the bins under the widest window."""
N_WARPS = {"_spectra": 8, "_pool": 4}
"""By kernel, in the order of launches."""

_kernel = triton.jit(
    do_not_specialize=["n_points"],
    do_not_specialize_on_alignment=[
        *("primary", "secondary", "constants", "pooling", "edges", "cepstrum", "figures"),
        *("log_paths", "features"),
    ],
)
"""One variant of each kernel."""


@cache  # for good: graphs that were captured read it where it lies
def _hats(n_points: int, low_hz: float, high_hz: float, device: torch.device) -> tuple[Tensor, Tensor]:
    """Weights of the bins under each point's window, float32 [n_points, n_bins], and their first bin and end, int32
    [2, n_points]."""
    with torch.inference_mode(False):
        pooling = LogFrequencyGrid(N_FFT, n_points, low_hz, high_hz).pooling.T.contiguous()
        below = pooling > 0
        first, width = below.int().argmax(-1), below.sum(-1)
        assert int(width.max()) <= _WIDTH
        return pooling.to(device), torch.stack((first, first + width)).to(device, torch.int32)


@triton.jit
def _power(spectrum, place):
    re, im = tl.load(spectrum + 2 * place), tl.load(spectrum + 2 * place + 1)
    return re * re + im * im


@triton.jit
def _ratio_power(primary, secondary, place, epsilon_squared):
    """|W_reg|^2, W_reg = P S* / (|S|^2 + epsilon^2), in an order in which low levels do not underflow."""
    power = _power(secondary, place)
    scale = 1 / (power + epsilon_squared)
    return (_power(primary, place) * scale) * (power * scale)


@triton.jit
def _floored_log(power, floor):
    """Log magnitude, from the power."""
    return 0.5 * tl.log(tl.maximum(power, floor))


@triton.jit
def _describe(power, last, figures, N_BINS: tl.constexpr):
    """Store floor, mean and standard deviation of the log magnitude, from the power at all bins but the last, and
    there; returns the floor."""
    floor = tl.maximum(tl.maximum(tl.max(power), last) * _FLOOR, _TINY)
    logs, last_log = _floored_log(power, floor), _floored_log(last, floor)
    mean = (tl.sum(logs) + last_log) / N_BINS
    away, last_away = logs - mean, last_log - mean
    deviation = tl.sqrt((tl.sum(away * away) + last_away * last_away) / N_BINS)
    tl.store(figures, floor)
    tl.store(figures + 1, mean)
    tl.store(figures + 2, tl.maximum(deviation, _LEAST_DEVIATION))
    return floor


@_kernel
def _spectra(primary, secondary, constants, cepstrum, figures, STRIDE: tl.constexpr, HALF: tl.constexpr):
    """Program (item): its figures, and the transform of the folded cepstrum of the base."""
    item = tl.program_id(0)
    bins = stored_bins(HALF // 16)
    primary += 2 * item * (STRIDE * HALF + 1)
    secondary += 2 * item * (STRIDE * HALF + 1)
    figures += item * _N_FIGURES
    secondary_power, last = _power(secondary, STRIDE * bins), _power(secondary, STRIDE * HALF)
    epsilon_squared = tl.maximum(tl.max(secondary_power), last) * _EPSILON
    tl.store(figures + _EPSILON_SQUARED, epsilon_squared)
    _describe(secondary_power, last, figures + _OF_SECONDARY, HALF + 1)
    primary_power, last = _power(primary, STRIDE * bins), _power(primary, STRIDE * HALF)
    _describe(primary_power, last, figures + _OF_PRIMARY, HALF + 1)
    ratio_power = _ratio_power(primary, secondary, STRIDE * bins, epsilon_squared)
    last = _ratio_power(primary, secondary, STRIDE * HALF, epsilon_squared)
    floor = _describe(ratio_power, last, figures + _OF_RATIO, HALF + 1)

    held = tl.minimum(tl.maximum(bins, _LOW), _HIGH)
    mirrored = tl.minimum(tl.maximum(HALF - bins, _LOW), _HIGH)
    k_log = _floored_log(_ratio_power(primary, secondary, STRIDE * held, epsilon_squared), floor)
    h_log = _floored_log(_ratio_power(primary, secondary, STRIDE * mirrored, epsilon_squared), floor)
    turn_re, turn_im = load_turns(constants, HALF)
    nothing = tl.zeros_like(k_log)
    re, im = inverse_real(k_log, nothing, h_log, nothing, turn_re, turn_im, constants, HALF)
    store_cepstrum(re, im, constants, cepstrum + item * 2 * HALF, HALF)


@triton.jit
def _unit(spectrum, place, inside):
    """X / |X|, 0 where X is 0, and |X|^2."""
    re = tl.load(spectrum + 2 * place, mask=inside, other=0.0)
    im = tl.load(spectrum + 2 * place + 1, mask=inside, other=0.0)
    power = re * re + im * im
    size = 1 / tl.sqrt(tl.maximum(power, _TINY))
    return re * size, im * size, power


@triton.jit
def _standardised(logs, figures):
    return (logs - tl.load(figures + 1)) / tl.load(figures + 2)


@_kernel
def _pool(
    primary, secondary, constants, pooling, edges, cepstrum, figures, log_paths, features, n_points,
    STRIDE: tl.constexpr, HALF: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Program (item, point): means of log |P| and log |S| and of the twelve channels around the point."""
    item, point = tl.program_id(0), tl.program_id(1)
    bins = tl.load(edges + point) + tl.arange(0, WIDTH)
    inside = bins < tl.load(edges + n_points + point)
    share = tl.load(pooling + point * (HALF + 1) + bins, mask=inside, other=0.0)
    primary += 2 * item * (STRIDE * HALF + 1)
    secondary += 2 * item * (STRIDE * HALF + 1)
    figures += item * _N_FIGURES
    p_re, p_im, primary_power = _unit(primary, STRIDE * bins, inside)
    s_re, s_im, secondary_power = _unit(secondary, STRIDE * bins, inside)
    w_re, w_im = product(p_re, p_im, s_re, -s_im)
    scale = 1 / (secondary_power + tl.load(figures + _EPSILON_SQUARED))
    ratio_power = (primary_power * scale) * (secondary_power * scale)
    log_ratio = _floored_log(ratio_power, tl.load(figures + _OF_RATIO))
    log_primary = _floored_log(primary_power, tl.load(figures + _OF_PRIMARY))
    log_secondary = _floored_log(secondary_power, tl.load(figures + _OF_SECONDARY))
    # The base's minimum phase, as in `minimum_phases`.
    own, mirrored = cepstrum + item * 2 * HALF + bins % HALF, cepstrum + item * 2 * HALF + (HALF - bins) % HALF
    k_re, k_im = tl.load(own, mask=inside, other=0.0), tl.load(own + HALF, mask=inside, other=0.0)
    h_re, h_im = tl.load(mirrored, mask=inside, other=0.0), tl.load(mirrored + HALF, mask=inside, other=0.0)
    turn_re = tl.load(constants + bins, mask=inside, other=0.0)
    turn_im = -tl.load(constants + HALF + 1 + bins, mask=inside, other=0.0)
    phase = 0.5 * (k_im - h_im - (k_re - h_re) * turn_re - (k_im + h_im) * turn_im)
    cosine, sine = cos_sin(phase)
    mismatch_re, mismatch_im = product(w_re, w_im, cosine, -sine)

    log_paths += item * 2 * n_points + point
    tl.store(log_paths, tl.sum(share * log_primary))
    tl.store(log_paths + n_points, tl.sum(share * log_secondary))
    channels = (
        _standardised(log_ratio, figures + _OF_RATIO),
        bins.to(tl.float32) * (2 / HALF) - 1,
        w_re,
        w_im,
        mismatch_re,
        mismatch_im,
        _standardised(log_primary, figures + _OF_PRIMARY),
        _standardised(log_secondary, figures + _OF_SECONDARY),
        p_re,
        p_im,
        s_re,
        s_im,
    )
    features += item * _N_CHANNELS * n_points + point
    for channel in tl.static_range(_N_CHANNELS):
        tl.store(features + channel * n_points, tl.sum(share * channels[channel]))


def read_paths(config: GeneratorConfig, primary: Tensor, secondary: Tensor) -> tuple[Tensor, Tensor]:
    """Pooled natural log |P| and log |S|, [batch, 2, n_points], and features, [batch, 12, n_points].

    As `synthesis.synthesizer.extract_features`, for a generator that `generator.is_supported`. primary, secondary:
    complex64 [batch, 16385], contiguous.
    """
    batch, n_points, half, device = len(primary), config.n_points, N_FFT // 2, primary.device
    given = torch.view_as_real(primary), torch.view_as_real(secondary)
    cepstrum = given[0].new_empty(batch, 2, half)
    figures = given[0].new_empty(batch, _N_FIGURES.value)
    log_paths, features = (given[0].new_empty(batch, n_rows, n_points) for n_rows in (2, N_CHANNELS))
    sizes = {"STRIDE": DESIGN_N_FFT // N_FFT, "HALF": half}
    large = transform_constants(device)[1]
    _spectra[(batch,)](*given, large, cepstrum, figures, **sizes, num_warps=N_WARPS["_spectra"])
    _pool[(batch, n_points)](
        *given,
        grid_constants(N_FFT, device)[0],
        *_hats(n_points, config.low_hz, config.high_hz, device),
        cepstrum,
        figures,
        log_paths,
        features,
        n_points,
        WIDTH=_WIDTH,
        **sizes,
        num_warps=N_WARPS["_pool"],
    )
    return log_paths, features

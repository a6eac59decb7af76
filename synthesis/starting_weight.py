"""The finite Wiener filter under its starting weight, which needs no training: the method `fir_wiener`.

The terms that a generator corrects (`fir_wiener.starting_weight`, `drive_ceiling`) and the grid on which it reads
the paths (`frequency_grid.LogFrequencyGrid`), in NumPy for the compiled core; and the filter itself, the same for
all backends.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.fft import irfft, rfft
from numpy.typing import NDArray

from synthesis.array_toeplitz import minimum_phase_response, solve_toeplitz
from synthesis.conventions import DESIGN_N_FFT, N_TAPS, SAMPLE_RATE_HZ
from synthesis.generator_config import GeneratorConfig

Float64 = NDArray[np.float64]

LOW_EDGE_HZ, HIGH_EDGE_HZ = 45.0, 9000.0
"""Beyond these the starting weight falls."""
EDGE_ORDER = 4
"""Power of f by which it falls: 12 dB in an octave."""
START_PENALTY = 1e-3
"""Starting l over the mean (of logarithms) of v |S|^2 between the edges."""
DRIVE_LIMIT = 0.6
"""Largest |S W| / |P| above HIGH_EDGE_HZ. What cannot be cancelled there adds up in power over a band: 1.3 dB."""
CEILING_SHARPNESS = 10.0
"""Of a soft minimum, per neper: 0.6 dB below the ceiling where the magnitude meets it, 0.08 dB at 2 dB below."""
DAMPING = 1e-4
"""Share of the symbol's mean that is added to it: bounds the condition number for float32."""
MAGNITUDE_FLOOR = 1e-6
"""Of `path_ratio`."""
N_ITERATIONS = 4
"""Of the conjugate gradients. On 30 measured ears (window 8192) they leave a residual of 4.1 % in the mean and
6.9 % at most before training, of 0.5 and 1.9 % after it. A generator is trained through as many: with twelve, which
move its filters by 7 %, it loses 0.1 dB of noise reduction in the mean, and up to 1.9 dB on single ears."""


def fir_wiener(primary: NDArray[np.complex128], secondary: NDArray[np.complex128]) -> Float64:
    """Taps [2048] of the filter that `prime-log` starts from, before any training; paths on the design grid.

    The loudspeaker's ceiling above HIGH_EDGE_HZ is part of it, a request's is not.
    """
    config = GeneratorConfig.prime_log()
    stride = DESIGN_N_FFT // config.n_fft
    primary, secondary = primary[::stride], secondary[::stride]
    points_hz, pooling, (lower, fraction) = log_grid(config)
    log_primary, log_secondary = (pooling @ _floored_log(np.abs(path)) for path in (primary, secondary))
    start = terms_at_unit_magnitude(points_hz)
    level = start["start_average"] @ (log_primary - log_secondary)
    weight, penalty, ceiling = (
        np.exp(_spread(term, lower.astype(int), fraction))
        for term in (
            start["start_weight"] + 2 * (level - log_primary),
            start["start_penalty"],
            start["start_ceiling"] + log_primary - log_secondary,
        )
    )
    power = np.abs(secondary) ** 2
    # The penalty at which a bin by itself would end at its ceiling, where that is larger.
    penalty = np.maximum(penalty, weight * (np.abs(primary) * np.abs(secondary) / ceiling - power))
    symbol = weight * power + penalty
    symbol = symbol + DAMPING * symbol.mean()
    taps = solve_toeplitz(symbol, irfft(weight * secondary.conj() * primary)[:N_TAPS], N_ITERATIONS)
    response = rfft(taps, config.n_fft)
    excess = np.log(np.maximum(np.abs(response), np.finfo(float).tiny) / ceiling)
    bend = -np.logaddexp(0, CEILING_SHARPNESS * excess) / CEILING_SHARPNESS
    return irfft(response * minimum_phase_response(bend))[:N_TAPS]


@cache
def log_grid(config: GeneratorConfig) -> tuple[Float64, Float64, tuple[Float64, Float64]]:
    """The points in Hz, the weights of each bin in each point's mean [n_points, n_bins], and where each bin lies:
    the point below it and the fraction of the way to the next. Shared between callers."""
    n = config.n_points
    frequency = np.fft.rfftfreq(config.n_fft, 1 / SAMPLE_RATE_HZ)
    step = np.log(config.high_hz / config.low_hz) / (n - 1)
    inside = np.clip(np.log(np.maximum(frequency, frequency[1] / 2) / config.low_hz) / step, 0, n - 1)
    lower = np.minimum(np.floor(inside), n - 2)
    points = config.low_hz * np.exp(step * np.arange(n))
    half_width = np.maximum(points * np.expm1(step), frequency[1])
    hats = np.maximum(1 - np.abs(frequency - points[:, None]) / half_width[:, None], 0)
    return points, hats / hats.sum(1, keepdims=True), (lower, inside - lower)


def terms_at_unit_magnitude(points_hz: Float64) -> dict[str, Float64]:
    """`starting_weight` and `drive_ceiling` for paths of magnitude one, and the mean that levels the weight."""
    log_f = np.log(points_hz)
    low, high = (EDGE_ORDER * (log_f - np.log(edge_hz)) for edge_hz in (LOW_EDGE_HZ, HIGH_EDGE_HZ))
    edges = -np.logaddexp(0, -low) - np.logaddexp(0, high)
    average = ((low > 0) & (high < 0)).astype(float)
    average /= average.sum()
    log_weight = edges - log_f
    above_edge = EDGE_ORDER * np.maximum(np.log(HIGH_EDGE_HZ) - log_f, 0)
    return {
        "start_weight": log_weight - log_weight @ average,
        "start_penalty": np.full_like(log_f, np.log(START_PENALTY)),
        "start_ceiling": np.log(DRIVE_LIMIT) + above_edge,
        "start_average": average,
    }


def _floored_log(magnitude: Float64) -> Float64:
    tiny = np.finfo(np.float32).tiny
    return np.log(np.maximum(magnitude, max(MAGNITUDE_FLOOR * magnitude.max(), tiny)))


def _spread(values: Float64, lower: NDArray[np.intp], fraction: Float64) -> Float64:
    return values[lower] + fraction * (values[lower + 1] - values[lower])

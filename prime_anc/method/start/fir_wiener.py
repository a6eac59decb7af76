"""The finite causal Wiener filter: the taps that are best under a given weight and penalty over frequency,

    w = argmin sum_k v_k |P_k - S_k W_k|^2 + l_k |W_k|^2,    W = DFT of 2048 real taps.

Its normal matrix is Toeplitz with the symbol v |S|^2 + l. The best filter of any length (Kailath, Sayed & Hassibi,
Linear Estimation, 2000, ch. 7) would need no solve, but cut to 2048 taps it loses 4 dB on measured ears; this one
knows its length. A generator supplies v and l, on which the filter depends only through a minimum, so that an error
in them costs little. `starting_weight` and `drive_ceiling` are what it corrects; uncorrected they give the method
`fir_wiener`, which needs no training.
"""

from __future__ import annotations

import math
from dataclasses import replace

from prime_anc.method.arrays import Array, array_namespace, minimum_phase_response, softplus, squared_magnitude
from prime_anc.method.conventions import N_TAPS
from prime_anc.method.updates.toeplitz import Solution, solve_toeplitz

# Beyond these frequencies the starting weight falls, by this power of f: 12 dB in an octave.
LOW_EDGE_HZ, HIGH_EDGE_HZ = 45.0, 9000.0
EDGE_ORDER = 4
# Starting l over the mean (of logarithms) of v |S|^2 between the edges.
START_PENALTY = 1e-3
# Largest |S W| / |P| above HIGH_EDGE_HZ. The uncancelled rest adds up in power over a band: 1.3 dB.
DRIVE_LIMIT = 0.6
# Sharpness of a soft minimum, per neper: 0.6 dB below the ceiling where the magnitude meets it, 0.08 dB at 2 dB below.
CEILING_SHARPNESS = 10.0
# Share of the symbol's mean that is added to it: bounds the condition number for float32.
SYMBOL_DAMPING = 1e-4
# Iterations of the conjugate gradients. On measured ears they leave a residual of 0.5 % after training. A generator is
# trained through as many: with twelve it loses 0.1 dB of noise reduction in the mean, and up to 1.9 dB on single ears.
WIENER_ITERATIONS = 4


def between_edges(points_hz: Array) -> Array:
    """Return weights of sum one for the frequencies between the edges, [n_points]."""
    xp = array_namespace(points_hz)
    inside = xp.astype((points_hz > LOW_EDGE_HZ) & (points_hz < HIGH_EDGE_HZ), points_hz.dtype)
    return inside / xp.sum(inside)


def starting_weight(log_paths: Array, points_hz: Array) -> Array:
    """Return the logarithms of the weight v and penalty l that a generator corrects: theory (6), (7).

    v = 1 / (f |P|^2) weighs every octave alike, and in it the residual relative to the disturbance; the
    reference's spectrum cancels. It is scaled to a log mean of one for v |S|^2 between the edges.

    Parameters
    ----------
    log_paths
        Natural log |P| and log |S|, smoothed, at the frequencies, [batch, 2, n_points].
    points_hz
        [n_points].

    Returns
    -------
    Array
        [batch, 2, n_points].
    """
    xp = array_namespace(log_paths)
    log_primary, log_secondary = log_paths[:, 0, :], log_paths[:, 1, :]
    log_f = xp.log(points_hz)
    low, high = (EDGE_ORDER * (log_f - math.log(edge_hz)) for edge_hz in (LOW_EDGE_HZ, HIGH_EDGE_HZ))
    log_weight = -softplus(-low) - softplus(high) - log_f - 2 * log_primary
    level = ((log_weight + 2 * log_secondary) @ between_edges(points_hz))[:, None]
    log_penalty = xp.full_like(log_weight, math.log(START_PENALTY))
    return xp.stack((log_weight - level, log_penalty), axis=1)


def drive_ceiling(log_paths: Array, points_hz: Array) -> Array:
    """Return the natural log of the largest |W| that keeps the loudspeaker below the disturbance: theory (8).

    Above HIGH_EDGE_HZ, where nothing is scored and hardly anything can be cancelled, a filter may raise |S W| to
    DRIVE_LIMIT |P|; below that edge the limit rises by 24 dB in an octave.

    Parameters
    ----------
    log_paths, points_hz
        As for `starting_weight`.

    Returns
    -------
    Array
        [batch, n_points].
    """
    xp = array_namespace(log_paths)
    below_edge = EDGE_ORDER * xp.clip(math.log(HIGH_EDGE_HZ) - xp.log(points_hz), min=0.0)
    return log_paths[:, 0, :] - log_paths[:, 1, :] + math.log(DRIVE_LIMIT) + below_edge


def fir_wiener(
    primary: Array,
    secondary: Array,
    log_weight: Array,
    log_penalty: Array,
    log_ceiling: Array | None = None,
    shares: Array | None = None,
) -> Solution:
    """Solve for the taps under a weight, a penalty and a ceiling: theory (8) to (10).

    Parameters
    ----------
    primary, secondary
        Spectra P and S on one grid, complex [batch, n_bins].
    log_weight, log_penalty
        Natural log v and log l, [batch, n_bins].
    log_ceiling
        Natural log c of the largest |W|, a scalar or [batch, 1 or n_bins]. The penalty is raised to
        v |S| (|P| / c - |S|) where that is larger, the value at which a bin by itself would end at the ceiling;
        what still exceeds it is bent below it afterwards.
    shares
        Weights of conditions that are to have one filter, [n_conditions], of sum one. The batch is the conditions;
        their normal equations are summed, and the lowest of their ceilings holds.

    Returns
    -------
    Solution
        Taps [batch, 2048], [1, 2048] with `shares`, and the residual of the normal equations before the ceiling is
        applied.
    """
    xp = array_namespace(primary, secondary)
    weight, penalty = xp.exp(log_weight), xp.exp(log_penalty)
    secondary_power = squared_magnitude(secondary)
    if log_ceiling is not None:
        drive = xp.sqrt(squared_magnitude(primary) * secondary_power) * xp.exp(-log_ceiling)
        penalty = xp.maximum(penalty, weight * (drive - secondary_power))
    symbol = weight * secondary_power + penalty
    matched = weight * xp.conj(secondary) * primary
    if shares is not None:
        symbol, matched = (xp.sum(shares[:, None] * item, axis=0, keepdims=True) for item in (symbol, matched))
        if log_ceiling is not None and log_ceiling.ndim == 2:
            log_ceiling = xp.min(log_ceiling, axis=0, keepdims=True)
    symbol = symbol + SYMBOL_DAMPING * xp.mean(symbol, axis=-1, keepdims=True)
    solution = solve_toeplitz(symbol, matched, N_TAPS, n_iterations=WIENER_ITERATIONS)
    if log_ceiling is None:
        return solution
    return replace(solution, value=below_ceiling(solution.value, log_ceiling, 2 * (primary.shape[-1] - 1)))


def below_ceiling(taps: Array, log_ceiling: Array, n_fft: int) -> Array:
    """Bend the magnitude of the taps' response below a ceiling: theory (10).

    They pass through the minimum-phase filter of magnitude 1 below the ceiling and c / |W| above it, which keeps
    them causal and, where the ceiling is not met, as they are.

    Parameters
    ----------
    taps
        [batch, n_taps].
    log_ceiling
        Natural log c, a scalar or [batch, 1 or n_bins].
    n_fft
        Points of the ceiling's grid.

    Returns
    -------
    Array
        [batch, n_taps].
    """
    xp = array_namespace(taps)
    response = xp.fft.rfft(taps, n=n_fft)
    power = xp.clip(squared_magnitude(response), min=float(xp.finfo(taps.dtype).smallest_normal))
    excess = 0.5 * xp.log(power) - log_ceiling
    bend = -softplus(CEILING_SHARPNESS * excess) / CEILING_SHARPNESS
    return xp.fft.irfft(response * minimum_phase_response(bend))[..., : taps.shape[-1]]

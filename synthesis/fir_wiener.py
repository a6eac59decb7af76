"""The finite causal Wiener filter: the taps that are best under a given weight and penalty over frequency,

    w = argmin sum_k v_k |P_k - S_k W_k|^2 + l_k |W_k|^2,    W = DFT of 2048 real taps.

Its normal matrix is Toeplitz with the symbol v |S|^2 + l. The best filter of any length (Kailath, Sayed & Hassibi,
Linear Estimation, 2000, ch. 7) would need no solve, but cut to 2048 taps it loses 4 dB on measured ears; this one
knows its length. A generator supplies v and l, on which the filter depends only through a minimum, so that an error
in them costs little.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from synthesis.conjugate_gradients import Solution
from synthesis.conventions import N_TAPS
from synthesis.minimum_phase import minimum_phase_response
from synthesis.paths import AcousticPaths
from synthesis.spectra import squared_magnitude
from synthesis.starting_weight import (
    CEILING_SHARPNESS,
    DAMPING,
    DRIVE_LIMIT,
    EDGE_ORDER,
    HIGH_EDGE_HZ,
    LOW_EDGE_HZ,
    N_ITERATIONS,
    START_PENALTY,
)
from synthesis.toeplitz import solve_toeplitz


def starting_weight(log_paths: Tensor, points_hz: Tensor) -> Tensor:
    """Logarithms of the weight v and penalty l that a generator corrects: [batch, 2, n_points].

    log_paths: natural log |P| and log |S|, smoothed, at the frequencies points_hz: [batch, 2, n_points].
    v = 1 / (f |P|^2) weighs every octave alike, and in it the residual relative to the disturbance; the
    reference's spectrum cancels. It is scaled to a log mean of one for v |S|^2 between the edges.
    """
    log_primary, log_secondary = log_paths.unbind(1)
    log_f = points_hz.log()
    low, high = (EDGE_ORDER * (log_f - math.log(edge_hz)) for edge_hz in (LOW_EDGE_HZ, HIGH_EDGE_HZ))
    edges = torch.nn.functional.logsigmoid(low) + torch.nn.functional.logsigmoid(-high)
    log_weight = edges - log_f - 2 * log_primary
    between = ((low > 0) & (high < 0)).to(log_f.dtype)
    level = ((log_weight + 2 * log_secondary) @ between / between.sum()).unsqueeze(-1)
    log_penalty = torch.full_like(log_weight, math.log(START_PENALTY))
    return torch.stack((log_weight - level, log_penalty), dim=1)


def drive_ceiling(log_paths: Tensor, points_hz: Tensor) -> Tensor:
    """Natural log of the largest |W| that keeps the loudspeaker below the disturbance: [batch, n_points].

    log_paths: natural log |P| and log |S|, smoothed, at the frequencies points_hz: [batch, 2, n_points]. Above
    HIGH_EDGE_HZ, where nothing is scored and hardly anything can be cancelled, a filter may raise |S W| to
    DRIVE_LIMIT |P|; below that edge the limit rises by 24 dB in an octave.
    """
    log_primary, log_secondary = log_paths.unbind(1)
    above_edge = EDGE_ORDER * (math.log(HIGH_EDGE_HZ) - points_hz.log()).clamp_min(0)
    return log_primary - log_secondary + math.log(DRIVE_LIMIT) + above_edge


def fir_wiener(
    paths: AcousticPaths,
    log_weight: Tensor,
    log_penalty: Tensor,
    log_ceiling: Tensor | None = None,
    shares: Tensor | None = None,
) -> Solution:
    """Taps [batch, 2048], with the residual of the normal equations before the ceiling is applied.

    log_weight, log_penalty: natural log v and log l, [batch, n_bins]. log_ceiling: natural log c of the largest |W|
    asked for, a scalar or [batch, 1 or n_bins]. The penalty is raised to v |S| (|P| / c - |S|) where that is
    larger, the value at which a bin by itself would end at the ceiling; what still exceeds it is bent below it
    afterwards. shares: weights of conditions, [n_conditions], of sum one, that are to have one filter: the batch is
    they, the taps are [1, 2048], the normal equations summed, and the lowest of the ceilings holds.
    """
    weight = torch.exp(log_weight)
    penalty = torch.exp(log_penalty)
    secondary_power = squared_magnitude(paths.secondary)
    if log_ceiling is not None:
        drive = (squared_magnitude(paths.primary) * secondary_power).sqrt() * torch.exp(-log_ceiling)
        penalty = torch.maximum(penalty, weight * (drive - secondary_power))
    symbol = weight * secondary_power + penalty
    matched = weight * paths.secondary.conj() * paths.primary
    if shares is not None:
        symbol, matched = ((shares.unsqueeze(-1) * each).sum(0, keepdim=True) for each in (symbol, matched))
        if log_ceiling is not None and log_ceiling.ndim == 2:
            log_ceiling = log_ceiling.amin(0, keepdim=True)
    symbol = symbol + DAMPING * symbol.mean(-1, keepdim=True)
    solution = solve_toeplitz(symbol, matched, N_TAPS, n_iterations=N_ITERATIONS)
    if log_ceiling is None:
        return solution
    return replace(solution, value=below_ceiling(solution.value, log_ceiling, paths.n_fft))


def below_ceiling(taps: Tensor, log_ceiling: Tensor, n_fft: int) -> Tensor:
    """Taps with the magnitude of their response bent below a ceiling: [batch, n_taps].

    They pass through the minimum-phase filter of magnitude 1 below the ceiling and c / |W| above it, which keeps
    them causal and, where the ceiling is not met, as they are. log_ceiling: natural log c, a scalar or [batch, 1 or
    n_bins].
    """
    response = torch.fft.rfft(taps, n=n_fft)
    power = squared_magnitude(response).clamp_min(torch.finfo(taps.dtype).tiny)
    excess = 0.5 * torch.log(power) - log_ceiling
    limited = response * minimum_phase_response(-torch.nn.functional.softplus(excess, beta=CEILING_SHARPNESS))
    return torch.fft.irfft(limited)[..., : taps.shape[-1]]

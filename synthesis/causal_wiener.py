"""The causal Wiener filter by spectral factorisation (Kailath, Sayed & Hassibi, Linear Estimation, 2000, ch. 7).

Among all causal filters, of any length,

    W = argmin sum_k v_k |P_k - S_k W_k|^2 + l_k |W_k|^2

is W = (1 / F) [v S* P / F*]_+, where F is minimum-phase with |F|^2 = v |S|^2 + l and [.]_+ keeps samples 0 and
later. It needs five transforms and no iteration. Unlike a minimum-phase response of a given magnitude it takes
its phase from the paths; and what a generator has to supply, the weight v and the penalty l over frequency,
acts on the filter only through a minimum, so that an error in it costs little.
"""

import math

import torch
from torch import Tensor

from synthesis.minimum_phase import minimum_phase_response
from synthesis.paths import AcousticPaths
from synthesis.spectra import squared_magnitude

LOW_EDGE_HZ, HIGH_EDGE_HZ = 45.0, 9000.0
"""Beyond the scored bands the starting weight falls."""
EDGE_ORDER = 8
"""Power of f by which it falls: 24 dB in an octave, so that the response still fits 2048 taps."""
START_PENALTY = 1e-3
"""Starting l over the mean (of logarithms) of v |S|^2 between the edges."""
DRIVE_LIMIT = 0.6
"""Largest |S W| / |P| above HIGH_EDGE_HZ. What cannot be cancelled there adds up in power over a band: 1.3 dB."""
CEILING_SHARPNESS = 10.0
"""Of a soft minimum, per neper: 0.6 dB below the ceiling where the magnitude meets it, 0.08 dB at 2 dB off."""


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
    DRIVE_LIMIT |P|; below that edge the limit rises by 48 dB in an octave.
    """
    log_primary, log_secondary = log_paths.unbind(1)
    above_edge = EDGE_ORDER * (math.log(HIGH_EDGE_HZ) - points_hz.log()).clamp_min(0)
    return log_primary - log_secondary + math.log(DRIVE_LIMIT) + above_edge


def causal_wiener_response(paths: AcousticPaths, log_weight: Tensor, log_penalty: Tensor) -> Tensor:
    """Spectrum of the causal Wiener filter: complex [batch, n_bins].

    log_weight, log_penalty: natural log v and log l, [batch, n_bins]. The response must have died down within
    half the grid, else its end wraps onto its beginning.
    """
    weight = torch.exp(log_weight)
    power = weight * squared_magnitude(paths.secondary) + torch.exp(log_penalty)
    factor = minimum_phase_response(0.5 * torch.log(power))
    matched = torch.fft.irfft(weight * paths.primary * (paths.secondary / factor).conj())
    causal = matched[..., : matched.shape[-1] // 2]
    return torch.fft.rfft(causal, n=matched.shape[-1]) / factor


def below_ceiling(response: Tensor, log_ceiling: Tensor) -> Tensor:
    """A causal response with its magnitude bent below a ceiling: [batch, n_bins].

    It passes through the minimum-phase filter of magnitude 1 below the ceiling and c / |W| above it, which keeps
    it causal and, where the ceiling is not met, as it is. log_ceiling: natural log c, a scalar or [batch, 1 or
    n_bins].
    """
    tiny = torch.finfo(response.real.dtype).tiny
    excess = torch.log(response.abs().clamp_min(tiny)) - log_ceiling
    return response * minimum_phase_response(-torch.nn.functional.softplus(excess, beta=CEILING_SHARPNESS))

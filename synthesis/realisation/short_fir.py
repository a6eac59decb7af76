"""As many taps as the hardware has, designed for that number, at the hardware's rate.

A filter cut from a longer one loses what its last taps did. Here J is minimised over n taps: with the slopes q_tb
of J and the powers E_tb of the last filter, the next one solves

    min_w sum_tk (q_tb / E_tb) psd_k |P_tk - S_tk W_k|^2 + l_k |W_k|^2,

a Toeplitz system. ln is concave, so each solution lowers the sum of logarithms that the weights come from.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from synthesis.conventions import DESIGN_N_FFT, N_BINS, SAMPLE_RATE_HZ
from synthesis.errors import InvalidOption
from synthesis.gain_curve import GainCurve, ceiling_at
from synthesis.interruption import check_interruption
from synthesis.octave_bands import WIDE_BANDS, band_membership
from synthesis.profiles import SILENCE
from synthesis.realisation.residual_power import PathSpectra, ResidualPower, on_bins

MAX_TAPS = 4096
N_SOLUTIONS = 8
PENALTY = 1e-5
"""Of |W|^2 over the mean of the normal matrix' symbol: what keeps W in bounds where nothing is heard."""
PENALTY_GROWTH = 10 ** (1 / 2)
"""By which the penalty above the ceiling is raised in each solution that exceeds it."""


def design_fir(
    conditions: Sequence[PathSpectra],
    reference_psd: NDArray[np.floating],
    n_taps: int,
    *,
    sample_rate_hz: int = SAMPLE_RATE_HZ,
    max_gain_db: float | GainCurve = np.inf,
) -> NDArray[np.float64]:
    """Taps, float64 [n_taps], at 48 kHz or a whole multiple of it.

    Raises InvalidOption for another rate or a number of taps out of 1 to 4096.
    """
    if not 1 <= n_taps <= MAX_TAPS:
        raise InvalidOption(f"n_taps: {n_taps} taps were asked for; use 1 to {MAX_TAPS}", "target.n_taps")
    factor = round(sample_rate_hz / SAMPLE_RATE_HZ)
    if factor < 1 or factor * SAMPLE_RATE_HZ != sample_rate_hz:
        raise InvalidOption(
            f"target.sample_rate: an FIR at {sample_rate_hz:g} Hz cannot be designed; use a whole multiple of "
            f"{SAMPLE_RATE_HZ} Hz, or sections",
            "target.sample_rate",
        )
    from scipy.linalg import solve_toeplitz

    power = ResidualPower.of(conditions, reference_psd)
    primary = np.stack([each.primary for each in conditions])
    secondary = np.stack([each.secondary for each in conditions])
    psd = np.asarray(reference_psd, np.float64)
    membership = band_membership(WIDE_BANDS, DESIGN_N_FFT)
    disturbance = (psd * np.abs(primary) ** 2) @ membership
    audible = membership.sum(-1) > 0
    n_fft = factor * DESIGN_N_FFT
    ceiling = ceiling_at(max_gain_db, np.arange(N_BINS) * (SAMPLE_RATE_HZ / DESIGN_N_FFT))
    best: NDArray[np.float64] = np.zeros(n_taps)
    best_value = np.inf
    residual = np.asarray(primary, np.complex128)
    extra = np.zeros(N_BINS)
    for _ in range(N_SOLUTIONS):
        check_interruption()
        energy = (psd * np.abs(residual) ** 2) @ membership
        floor = SILENCE * disturbance.sum(-1, keepdims=True)
        _, slope = power.objective(power.disturbance * (energy + floor) / (disturbance + floor))
        weight = on_bins(slope / (energy + floor)) * psd
        symbol = (weight * np.abs(secondary) ** 2).sum(0)
        mean = symbol[audible].mean()
        symbol = symbol + mean * (PENALTY + extra)
        matched = (weight * secondary.conj() * primary).sum(0)
        beyond = np.full(n_fft // 2 + 1 - N_BINS, symbol[-1])
        column = np.fft.irfft(np.concatenate((symbol, beyond)), n_fft)[:n_taps]
        right = np.fft.irfft(np.concatenate((matched, 0 * beyond)), n_fft)[:n_taps]
        taps = solve_toeplitz(column, right)
        response = np.fft.rfft(taps, n_fft)[:N_BINS]
        excess = np.abs(response) / ceiling
        residual = primary - secondary * response
        energy = (psd * np.abs(residual) ** 2) @ membership
        value = float(power.objective(power.disturbance * (energy + floor) / (disturbance + floor))[0])
        if excess.max() > 1.001:
            extra = np.where(excess > 0.98, np.maximum(extra * PENALTY_GROWTH, 1e-3) * excess.clip(1) ** 2, extra)
            value += 10 * np.log(excess.max())
        if value < best_value:
            best, best_value = taps, value
    between_hz = np.fft.rfftfreq(4 * n_fft, 1 / sample_rate_hz)
    excess = np.abs(np.fft.rfft(best, 4 * n_fft)) / ceiling_at(max_gain_db, between_hz)
    return best / max(1.0, float(excess.max()))


def at_design_rate(taps: NDArray[np.floating], sample_rate_hz: float) -> NDArray[np.complex128]:
    """W of taps at any rate, on the design grid's bins, complex [16385]."""
    factor = round(sample_rate_hz / SAMPLE_RATE_HZ)
    response: NDArray[np.complex128] = np.fft.rfft(np.asarray(taps, np.float64), factor * DESIGN_N_FFT)[:N_BINS]
    return response

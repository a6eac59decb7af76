"""Design a given number of taps at the hardware's sample rate.

A filter cut from a longer one loses what its last taps did. Here J is minimised over n taps: with the slopes q_tb of J
and the powers E_tb of the last filter, the next one solves

    min_w sum_tk (q_tb / E_tb) psd_k |P_tk - S_tk W_k|^2 + l_k |W_k|^2,

a Toeplitz system. ln is concave, so each solution lowers J.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hardware.residual_power import PathSpectra, ResidualPower, on_bins
from synthesis.bands import WIDE_BANDS, band_membership
from synthesis.conventions import DESIGN_N_FFT, N_BINS, SAMPLE_RATE_HZ
from synthesis.errors import InvalidOption, check_interruption
from synthesis.gain_curve import GainCurve, ceiling_at
from synthesis.profiles import FAST, SILENCE, RefinementProfile

MAX_TAPS = 4096
BIN_HZ = SAMPLE_RATE_HZ / DESIGN_N_FFT
MOST_SOLUTIONS = 16
# Decrease of J below which no further solution is sought.
SMALL_DECREASE = 1e-3
# Penalty on |W|^2 over the mean of the normal matrix's symbol: bounds W where the loudspeaker has no effect. 1e-5 costs
# systems that can be cancelled by 40 dB up to 16 dB.
PENALTY = 1e-8
# Factor on the penalty where the last solution exceeded the ceiling.
PENALTY_GROWTH = 10 ** (1 / 2)


def design_fir(
    conditions: Sequence[PathSpectra],
    reference_psd: NDArray[np.floating],
    n_taps: int,
    *,
    sample_rate_hz: float = SAMPLE_RATE_HZ,
    max_gain_db: float | GainCurve = np.inf,
    start: NDArray[np.complexfloating] | None = None,
    profile: RefinementProfile = FAST,
) -> NDArray[np.float64]:
    """Design n taps for the hardware's rate, at which W ends at half of it.

    Parameters
    ----------
    conditions, reference_psd, profile
        As of `ResidualPower.of`.
    n_taps
        1 to MAX_TAPS.
    sample_rate_hz
        Any; the sums go over the design grid's frequencies up to half of it.
    max_gain_db
        Ceiling on |W|.
    start
        Response on the design grid, [16385], whose band powers the first solution weighs; None: zero.

    Returns
    -------
    NDArray[np.float64]
        Taps, [n_taps].

    Raises
    ------
    InvalidOption
        For a number of taps out of range.
    InvalidPaths
        A path has no power where the reference has any.
    """
    if not 1 <= n_taps <= MAX_TAPS:
        raise InvalidOption(f"n_taps: {n_taps} taps were requested; use 1 to {MAX_TAPS}", "target.n_taps")
    from scipy.linalg import solve_toeplitz

    power = ResidualPower.of(conditions, reference_psd, profile)
    n_bins = _n_bins(sample_rate_hz)
    audible_hz = np.arange(min(n_bins, N_BINS)) * BIN_HZ
    to_lags, to_bins = (_sums(*item, sample_rate_hz) for item in ((n_bins, n_taps), (n_taps, len(audible_hz))))
    primary = np.stack([condition.primary for condition in conditions])
    secondary = np.stack([condition.secondary for condition in conditions])
    psd = np.asarray(reference_psd, np.float64)
    membership = band_membership(WIDE_BANDS, DESIGN_N_FFT)
    disturbance = (psd * np.abs(primary) ** 2) @ membership
    audible = membership[: len(audible_hz)].sum(-1) > 0
    ceiling = ceiling_at(max_gain_db, audible_hz)
    best: NDArray[np.float64] = np.zeros(n_taps)
    best_value = np.inf
    residual = np.array(primary, np.complex128)
    if start is not None:
        residual[:, : len(audible_hz)] -= (secondary * start)[:, : len(audible_hz)]
    extra = np.zeros(len(audible_hz))

    def at_lags(symbol: NDArray[np.number], beyond: float) -> NDArray[np.float64]:
        """Sums over both signs of frequency of a symbol, which ends in a constant, at the lags of the taps."""
        whole = np.concatenate((symbol.conj(), np.full(n_bins - len(symbol), beyond)))
        return 2 * to_lags(whole).real - symbol[0].real

    for _ in range(MOST_SOLUTIONS):
        check_interruption()
        energy = (psd * np.abs(residual) ** 2) @ membership
        floor = SILENCE * disturbance.sum(-1, keepdims=True)
        _, slope = power.objective(power.disturbance * (energy + floor) / (disturbance + floor))
        weight = (on_bins(slope / (energy + floor)) * psd)[:, : len(audible_hz)]
        played = secondary[:, : len(audible_hz)]
        symbol = (weight * np.abs(played) ** 2).sum(0)
        # Where the loudspeaker has no effect, the penalty alone yields zero taps.
        mean = symbol[audible].mean() or 1.0
        symbol = symbol + mean * (PENALTY + extra)
        matched = (weight * played.conj() * primary[:, : len(audible_hz)]).sum(0)
        if not (np.isfinite(symbol).all() and np.isfinite(matched).all()):
            raise np.linalg.LinAlgError("the normal equations of the taps are not finite")
        taps = solve_toeplitz(at_lags(symbol, symbol[-1]), at_lags(matched, 0.0))
        response = to_bins(taps)
        excess = np.abs(response) / ceiling
        residual[:, : len(audible_hz)] = primary[:, : len(audible_hz)] - played * response
        energy = (psd * np.abs(residual) ** 2) @ membership
        value = float(power.objective(power.disturbance * (energy + floor) / (disturbance + floor))[0])
        if excess.max() > 1.001:
            extra = np.where(excess > 0.98, np.maximum(extra * PENALTY_GROWTH, 1e-3) * excess.clip(1) ** 2, extra)
            value += 10 * np.log(excess.max())
        decrease = best_value - value
        if decrease > 0:
            best, best_value = taps, value
        if excess.max() <= 1.001 and decrease < SMALL_DECREASE:
            break
    n_fft = 4 << (2 * n_bins).bit_length()
    excess = np.abs(np.fft.rfft(best, n_fft)) / ceiling_at(max_gain_db, np.fft.rfftfreq(n_fft, 1 / sample_rate_hz))
    return best / max(1.0, float(excess.max()))


def at_design_rate(taps: NDArray[np.floating], sample_rate_hz: float) -> NDArray[np.complex128]:
    """Evaluate taps at any rate on the design grid, complex [16385]; zero above half the rate."""
    response = np.zeros(N_BINS, np.complex128)
    n_audible = min(_n_bins(sample_rate_hz), N_BINS)
    response[:n_audible] = _sums(len(taps), n_audible, sample_rate_hz)(np.asarray(taps, np.float64))
    return response


def _n_bins(sample_rate_hz: float) -> int:
    """Count the bins of the design grid from 0 Hz to half the rate."""
    return int(sample_rate_hz / 2 / BIN_HZ) + 1


def _sums(n: int, n_sums: int, sample_rate_hz: float) -> Callable[..., NDArray[np.complex128]]:
    """Return the transform sum_m values_m exp(-2 pi j k m BIN_HZ / f_s), k < n_sums, of n values.

    It maps taps to bins and bins to lags. A chirp z-transform, since the rate need not be a multiple of BIN_HZ.
    """
    from scipy.signal import CZT

    return CZT(n, n_sums, np.exp(-2j * np.pi * BIN_HZ / sample_rate_hz))  # type: ignore[return-value]

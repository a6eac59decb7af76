"""Design a given number of taps at the hardware's sample rate.

A filter cut from a longer one loses what its last taps did. Here J is minimised over n taps: with the slopes q_tb of J
and the powers E_tb of the last filter, the next one solves

    min_w sum_tk (q_tb / E_tb) psd_k |P_tk - S_tk W_k|^2 + l_k |W_k|^2,

a Toeplitz system. ln is concave, so each solution lowers J, but for the limit on louder bands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from prime_anc.hardware.residual_power import PathSpectra, ResidualPower, expected, on_bins
from prime_anc.method.bands import BINS_HZ, WIDE_BANDS, band_membership
from prime_anc.method.conventions import BIN_HZ, DESIGN_N_FFT, N_BINS, SAMPLE_RATE_HZ
from prime_anc.method.errors import check_interruption
from prime_anc.method.gain_curve import GainCurve, ceiling_at
from prime_anc.method.profiles import FAST, SILENCE, STEP_SCALES, RefinementProfile

MOST_SOLUTIONS = 16
# Decrease of J below which no further solution is sought.
SMALL_DECREASE = 1e-3
# Penalty on |W|^2 over the mean of the normal matrix's symbol: bounds W where the loudspeaker has no effect. 1e-5 costs
# systems that can be cancelled by 40 dB up to 16 dB.
PENALTY = 1e-8
# Penalty where a solution first exceeded the ceiling. 1e-3 costs measured ears up to 1.7 dB.
FIRST_PENALTY = 1e-5
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
        1 to MAX_TAPS, as `Target` checks.
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
    InvalidPaths
        A path has no power where the reference has any.
    """
    fit = _Fit(conditions, reference_psd, n_taps, sample_rate_hz, profile)
    ceiling = ceiling_at(max_gain_db, fit.frequency_hz)
    best: NDArray[np.float64] = np.zeros(n_taps)
    best_value = np.inf
    _, weight = fit.objective(0.0 if start is None else start[: len(ceiling)])
    penalty = np.zeros(len(ceiling))
    # A limit on louder bands makes J rise where a solution goes beyond it.
    scales = STEP_SCALES if profile.max_louder_db < np.inf else STEP_SCALES[:1]
    for _ in range(MOST_SOLUTIONS):
        check_interruption()
        solved = fit.solve(weight, PENALTY + penalty)
        for scale in scales:
            taps = best + scale * (solved - best)
            response = fit.to_bins(taps)
            value, weight = fit.objective(response)
            if value < best_value:
                break
        excess = np.abs(response) / ceiling
        if excess.max() > 1.001:
            raised = np.maximum(penalty * PENALTY_GROWTH, FIRST_PENALTY) * excess.clip(1) ** 2
            penalty = np.where(excess > 0.98, raised, penalty)
            value, _ = fit.objective(response / excess.max())  # as it would be answered
        decrease = best_value - value
        if decrease > 0:
            best, best_value = taps, value
        if excess.max() <= 1.001 and decrease < SMALL_DECREASE:
            break
    # Hold the ceiling between the bins too.
    n_fft = 4 << (2 * fit.n_bins).bit_length()
    excess = np.abs(np.fft.rfft(best, n_fft)) / ceiling_at(max_gain_db, np.fft.rfftfreq(n_fft, 1 / sample_rate_hz))
    return best / max(1.0, float(excess.max()))


class _Fit:
    """J of n taps, and the taps that minimise its quadratic approximation."""

    def __init__(
        self,
        conditions: Sequence[PathSpectra],
        reference_psd: NDArray[np.floating],
        n_taps: int,
        sample_rate_hz: float,
        profile: RefinementProfile,
    ) -> None:
        self.power = ResidualPower.of(conditions, reference_psd, profile)
        self.n_bins = _n_bins(sample_rate_hz)
        # Frequencies of the design grid up to half the rate, where the taps act.
        self.frequency_hz = BINS_HZ[: self.n_bins]
        n_used = len(self.frequency_hz)
        self.to_lags = _sums(self.n_bins, n_taps, sample_rate_hz)
        self.to_bins = _sums(n_taps, n_used, sample_rate_hz)
        primary, secondary = (
            np.stack([getattr(item, name) for item in conditions]) for name in ("primary", "secondary")
        )
        self.primary, secondary, (whole, constant) = expected(primary, secondary, conditions)
        self.secondary = secondary[:, :n_used]
        self.psd = np.asarray(reference_psd, np.float64)
        self.membership = band_membership(WIDE_BANDS, DESIGN_N_FFT)
        power = (self.psd * np.abs(self.primary) ** 2) @ self.membership
        self.disturbance, self.floor = whole * power, SILENCE * power.sum(-1, keepdims=True)
        self.constant = constant * power + self.floor

    def objective(self, response: NDArray[np.complexfloating] | float) -> tuple[float, NDArray[np.float64]]:
        """Compute J of a response at the frequencies, and the weights of the residual there, [n_conditions, n]."""
        residual, n_used = self.primary.astype(np.complex128), len(self.frequency_hz)
        residual[:, :n_used] -= self.secondary * response
        energy = (self.psd * np.abs(residual) ** 2) @ self.membership + self.constant
        value, slope = self.power.objective(self.power.disturbance * energy / (self.disturbance + self.floor))
        return float(value), (on_bins(slope / energy) * self.psd)[:, :n_used]

    def solve(self, weight: NDArray[np.float64], penalty: NDArray[np.float64]) -> NDArray[np.float64]:
        """Minimise the weighted residual and the penalty (over the mean weight) on |W|^2."""
        from scipy.linalg import solve_toeplitz

        symbol = (weight * np.abs(self.secondary) ** 2).sum(0)
        # Where the loudspeaker has no effect, the penalty alone yields zero taps.
        mean = symbol[self.membership[: len(symbol)].sum(-1) > 0].mean() or 1.0
        symbol = symbol + mean * penalty
        matched = (weight * self.secondary.conj() * self.primary[:, : len(symbol)]).sum(0)
        if not (np.isfinite(symbol).all() and np.isfinite(matched).all()):
            raise np.linalg.LinAlgError("the normal equations of the taps are not finite")
        taps: NDArray[np.float64] = solve_toeplitz(self._at_lags(symbol, symbol[-1]), self._at_lags(matched, 0.0))
        return taps

    def _at_lags(self, symbol: NDArray[np.number], beyond: float) -> NDArray[np.float64]:
        """Sums over both signs of frequency of a symbol, which ends in a constant, at the lags of the taps."""
        whole = np.concatenate((symbol.conj(), np.full(self.n_bins - len(symbol), beyond)))
        return 2 * self.to_lags(whole).real - symbol[0].real


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

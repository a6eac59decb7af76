"""Twin of core/ceiling.h: the filter with the lowest log residual among those that keep a ceiling on their gain.

    minimise J(w) subject to |W(f)| <= c(f),    W = DFT of 2048 real taps,

J as in `gauss_newton`, of one condition: the mean over bands of l_b = ln(E_b / D_b) and a soft worst case. With a
multiplier lambda_k >= 0 for each bin, a filter is optimal if it minimises

    sum_k v_k |P_k - S_k W_k|^2 + lambda_k |W_k|^2,    v_k = psd_k (dJ / dl_b) / E_b,

keeps the ceiling, and lambda_k vanishes wherever |W_k| < c_k. A round reweights v, which majorises the logarithm,
scales the symbol v |S|^2 + lambda by (|W| / c)^2 (by |W| / c a bin on its own would end at its ceiling; the square
needs fewer rounds), and improves the filter by a few conjugate gradients on that Toeplitz system.
What the rounds leave above the ceiling is taken off by minimum-phase filters, and the last hundredths by a factor.
"""

from __future__ import annotations

import numpy as np
from numpy.fft import irfft, rfft
from numpy.typing import NDArray

from synthesis.array_toeplitz import minimum_phase_response, solve_toeplitz
from synthesis.conventions import DESIGN_N_FFT, N_TAPS
from synthesis.octave_bands import AMP_BANDS, NR_BANDS, WIDE_BANDS, band_membership
from synthesis.profiles import FAST, LEAST_CEILING, MOST_CEILING, SILENCE
from synthesis.starting_weight import DRIVE_LIMIT

N_ROUNDS, MAX_ROUNDS = 12, 32
SMALL_EXCESS_DB = 0.3
"""The rounds end, after N_ROUNDS at the earliest, where no more than this is left above the ceiling."""
N_ITERATIONS = 3
"""Of the conjugate gradients in a round."""
TOLERANCE_DB = 0.02
"""Above the ceiling, at a bin of the design grid. Between two bins, a sixteenth of a tap's inverse apart, |W| is at
most 0.04 dB above the larger of both (Ehlich & Zeller 1964)."""
N_BENDS = 4
MOST_GROWTH = 100

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]


def limit_gain(
    taps: NDArray[np.floating],
    primary: Complex,
    secondary: Complex,
    reference_psd: NDArray[np.floating],
    limit_db: Real,
) -> Real:
    """Taps [2048] that keep a ceiling; `taps` as they are if they keep it already.

    taps: [2048], what the weights are first computed from. primary, secondary: on the design grid, [1, 16385].
    reference_psd: mean square per bin, [16385]. limit_db: the ceiling on |W| per bin, [16385]; the result exceeds
    it by TOLERANCE_DB at most.
    """
    limit = 10 ** (limit_db / 20)
    found = taps.astype(np.float64)
    if excess_db(found, limit_db) <= TOLERANCE_DB:
        return found
    stride = DESIGN_N_FFT // FAST.n_fft
    # A coarse bin stands for the fine ones around it.
    padded = np.pad(limit, stride // 2, "reflect")
    coarse = np.minimum.reduce([padded[n : n + len(limit) : stride] for n in range(stride + 1)])
    problem = _Problem(primary, secondary, reference_psd, coarse)
    for number in range(MAX_ROUNDS):
        response = rfft(found, FAST.n_fft)
        if number >= N_ROUNDS and problem.excess_db(response) <= SMALL_EXCESS_DB:
            break
        found = found + problem.step(response)
    bins_around = _collected(np.ones(len(limit)), stride)
    most = 10 ** (TOLERANCE_DB / 40)
    for n_bends in range(N_BENDS + 1):
        response = rfft(found, DESIGN_N_FFT)
        excess = np.abs(response) / limit
        if excess.max() <= most or n_bends == N_BENDS:
            break
        taken = _collected(np.log(np.maximum(excess, 1)), stride) / bins_around
        found = irfft(response[::stride] * minimum_phase_response(-taken))[:N_TAPS]
    return found / max(1.0, float(excess.max()) / most)


def excess_db(taps: NDArray[np.floating], limit_db: Real) -> float:
    """The most by which |W| exceeds a ceiling, on the ceiling's grid; negative where it stays below everywhere."""
    response = np.abs(rfft(taps, 2 * (len(limit_db) - 1)))
    return float((20 * np.log10(np.maximum(response, 1e-30)) - limit_db).max())


class _Problem:
    """J of one or several conditions on the grid of the `fast` updates, and the multipliers of the ceiling."""

    def __init__(
        self,
        primary: Complex,
        secondary: Complex,
        reference_psd: NDArray[np.floating],
        limit: Real,
    ) -> None:
        """As `limit_gain`, but for limit: the largest |W| per bin of the grid that it is for."""
        n_fft = 2 * (len(limit) - 1)
        stride = DESIGN_N_FFT // n_fft
        self._primary, self._secondary = (np.ascontiguousarray(each[:, ::stride]) for each in (primary, secondary))
        self._conjugate = self._secondary.conj()
        self._membership = band_membership(WIDE_BANDS, n_fft)
        self._in_target = np.isin(WIDE_BANDS, NR_BANDS) / len(NR_BANDS)
        self._secondary_power = np.abs(self._secondary) ** 2
        power = _collected(reference_psd.astype(np.float64), stride) * np.abs(self._primary) ** 2
        total = np.maximum((power @ self._membership).sum(-1, keepdims=True), np.finfo(float).tiny)
        self._psd = _collected(reference_psd.astype(np.float64), stride) / total
        self._disturbance = (power / total) @ self._membership + SILENCE
        self._asked = limit
        self._limit = np.minimum(limit, _drive_ceiling(self._primary, self._secondary))
        self._multiplier: Real | None = None
        self._log_gradient: Real | None = None

    def step(self, response: Complex) -> Real:
        """What makes the filter with this response better, [2048]; the multipliers become better, too."""
        residual = self._primary - self._secondary * response
        log_gradient = np.log(np.maximum(self._gradient(residual), np.finfo(float).tiny))
        if self._log_gradient is not None:  # or rounds that move much would swing between two weightings
            log_gradient = (log_gradient + self._log_gradient) / 2
        self._log_gradient, weight = log_gradient, self._weight(np.exp(log_gradient))
        wanted = (weight * self._secondary_power).sum(0)
        damping = FAST.damping * wanted.mean()
        if self._multiplier is None:  # what a bin on its own would need
            drive = (weight * np.abs(self._secondary * self._primary)).sum(0)
            self._multiplier = np.maximum(drive / self._limit - wanted, 0)
        else:
            scaled = (wanted + self._multiplier + damping) * np.minimum(
                (np.abs(response) / self._limit) ** 2, MOST_GROWTH
            )
            self._multiplier = np.maximum(scaled - wanted - damping, 0)
        symbol = wanted + self._multiplier
        descent = (weight * (self._conjugate * residual)).sum(0) - self._multiplier * response
        damped = symbol + FAST.damping * symbol.mean() + np.finfo(float).tiny
        return solve_toeplitz(damped, irfft(descent)[:N_TAPS], N_ITERATIONS)

    def excess_db(self, response: Complex) -> float:
        """The most by which |W| exceeds the ceiling that was asked for, on this grid."""
        return float(20 * np.log10(max((np.abs(response) / self._asked).max(), 1e-30)))

    def _gradient(self, residual: Complex) -> Real:
        """(dJ / dl_b) / E_b of each condition, [n_conditions, n_bands]."""
        power = (self._psd * (residual.real**2 + residual.imag**2)) @ self._membership + SILENCE
        log_ratio = np.log(power / self._disturbance)
        risk = np.exp(log_ratio - log_ratio.max())
        gradient: Real = (self._in_target + FAST.risk_weight * risk / risk.sum()) / power
        return gradient

    def _weight(self, gradient: Real) -> Real:
        """v of each condition, [n_conditions, n_bins]."""
        return self._psd * (gradient @ self._membership.T)


def _drive_ceiling(primary: Complex, secondary: Complex) -> Real:
    """As `gauss_newton` has it: above the scored bands the loudspeaker stays below the disturbance; the lowest of
    all conditions, infinite elsewhere, [n_bins]."""
    bands = tuple(n for n in WIDE_BANDS if n > AMP_BANDS[-1])
    membership = band_membership(bands, 2 * (primary.shape[-1] - 1))
    played, heard = np.abs(secondary) ** 2 @ membership, np.abs(primary) ** 2 @ membership
    ratio = np.sqrt(heard / np.maximum(played, np.finfo(float).tiny))
    limit = np.clip(DRIVE_LIMIT * ratio, LEAST_CEILING, MOST_CEILING).min(0)
    return np.where(membership.any(-1), membership @ limit, np.inf)


def _collected(psd: Real, stride: int) -> Real:
    """`spectra.collected`: mean square per bin of a grid with fewer points."""
    if stride == 1:
        return psd
    half = stride // 2
    window = np.ones(stride + 1)
    window[[0, -1]] = 0.5
    return np.convolve(np.pad(psd, half), window, "valid")[::stride]

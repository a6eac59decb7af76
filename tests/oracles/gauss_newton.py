"""Twin of the Gauss-Newton refinement (paper, Section 3.2): objective, gradient, normal matrix, exact steps.

J(w) = mean over the 21 NR bands of l_b + rho (logsumexp of l_b over the risk bands - log of their count)
+ sum_k q_k [|W_k| / m_k - 1]_+^2,  l_b = ln(E_b / D_b), and 0 in a band that holds no bin.
The gradient is of J itself; the normal matrix is 2 Re sum_k (c_b(k) omega_k |S_k|^2 + q_k / m_k^2) f_k f_k^H with
c_b = dJ/dl_b / E_b held fixed, a tenth of its second term where |W_k| <= m_k.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from tests.oracles import toeplitz
from tests.oracles.octave_bands import AMP_BANDS, NR_BANDS, WIDE_BANDS, band_bins, band_sums

HIGH_BANDS = range(40, 44)  # 8.9 kHz to 20 kHz
SCALES = (1.0, 0.5, 0.25)
GUARD = 0.1


def response(taps: np.ndarray, n_bins: int) -> np.ndarray:
    """One-sided transform of the taps on the paths' grid."""
    return np.fft.rfft(taps, 2 * (n_bins - 1))


@dataclass(frozen=True)
class Problem:
    """One case: spectra on one grid, reference power per bin, the bands of the risk term and its weight rho.

    ceiling: m_k, may be infinite; ceiling_weight: q summed over the bins, each of which has a share of 1 / k.
    damping_share: of the normal matrix' mean diagonal.
    """

    primary: np.ndarray
    secondary: np.ndarray
    reference_psd: np.ndarray
    risk_bands: range = AMP_BANDS
    risk_weight: float = 0.05
    ceiling: np.ndarray | None = None
    ceiling_weight: float = 0.0
    damping_share: float = 0.002

    @property
    def n_bins(self) -> int:
        return len(self.primary)

    def residual(self, taps: np.ndarray) -> np.ndarray:
        """E = P - S W, one-sided."""
        return self.primary - self.secondary * response(taps, self.n_bins)


DRIVE_LIMIT = 0.6


def drive_ceiling(primary: np.ndarray, secondary: np.ndarray) -> np.ndarray:
    """0.6 |P| / |S|, their RMS in each band above 8.9 kHz; infinite in all other bins."""
    ceiling = np.full(len(primary), np.inf)
    for n in HIGH_BANDS:
        bins = band_bins(n, 2 * (len(primary) - 1))
        ceiling[bins] = DRIVE_LIMIT * np.linalg.norm(primary[bins]) / np.linalg.norm(secondary[bins])
    return ceiling


def penalty_weights(problem: Problem) -> np.ndarray:
    """q_k: an octave counts as much as any other; nothing at 0 Hz and Nyquist."""
    q = np.zeros(problem.n_bins)
    q[1:-1] = 1 / np.arange(1, problem.n_bins - 1)
    return problem.ceiling_weight * q / q.sum()


def overshoot(problem: Problem, taps: np.ndarray) -> np.ndarray:
    """[|W_k| / m_k - 1]_+."""
    ceiling = np.inf if problem.ceiling is None else problem.ceiling
    return np.maximum(np.abs(response(taps, problem.n_bins)) / ceiling - 1, 0)


def log_ratios(problem: Problem, taps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(l_b, E_b) over the 31 bands from 20 Hz to 20 kHz."""
    e = band_sums(WIDE_BANDS, problem.reference_psd * np.abs(problem.residual(taps)) ** 2)
    d = band_sums(WIDE_BANDS, problem.reference_psd * np.abs(problem.primary) ** 2)
    empty = d == 0
    return np.log(np.where(empty, 1.0, e) / np.where(empty, 1.0, d)), e


def _inside(bands: range) -> np.ndarray:
    return np.array([n in bands for n in WIDE_BANDS])


def without_penalty(ratios: np.ndarray, risk_bands: range, risk_weight: float) -> float:
    """J of l_b over the 31 bands, without the penalty on |W|."""
    risk = ratios[_inside(risk_bands)]
    worst = np.log(np.sum(np.exp(risk))) - np.log(len(risk))
    return float(ratios[_inside(NR_BANDS)].mean() + risk_weight * worst)


def objective(problem: Problem, taps: np.ndarray) -> float:
    """J(w)."""
    ratios, _ = log_ratios(problem, taps)
    penalty = np.sum(penalty_weights(problem) * overshoot(problem, taps) ** 2)
    return without_penalty(ratios, problem.risk_bands, problem.risk_weight) + float(penalty)


def bin_weights(problem: Problem, taps: np.ndarray) -> np.ndarray:
    """c_b(k) omega_k per bin, with c_b = dJ/dl_b / E_b; zero outside every band."""
    ratios, e = log_ratios(problem, taps)
    risk = np.where(_inside(problem.risk_bands), np.exp(ratios), 0.0)
    slope = _inside(NR_BANDS) / len(NR_BANDS) + problem.risk_weight * risk / risk.sum()
    c = np.zeros(problem.n_bins)
    for n, value, power in zip(WIDE_BANDS, slope, e, strict=True):
        bins = band_bins(n, 2 * (problem.n_bins - 1))
        if len(bins):
            c[bins] = value / power
    return c * problem.reference_psd


def gradient(problem: Problem, taps: np.ndarray) -> np.ndarray:
    """dJ/dw = 2 Re sum_k (-c omega conj(S) E + q [|W| / m - 1]_+ W / (m |W|)) exp(+j 2 pi k n / n_fft).

    Neither bands nor the penalty hold 0 Hz or Nyquist.
    """
    z = bin_weights(problem, taps) * np.conj(problem.secondary) * problem.residual(taps)
    over = overshoot(problem, taps)
    w = response(taps, problem.n_bins)
    if problem.ceiling is not None:
        z[over > 0] -= (penalty_weights(problem) * over * w / (problem.ceiling * np.abs(w)))[over > 0]
    return -2 * (problem.n_bins - 1) * np.fft.irfft(z)[: len(taps)]


def normal_column(problem: Problem, taps: np.ndarray) -> np.ndarray:
    """First column of the Toeplitz normal matrix, unregularised."""
    return toeplitz.normal_column(symbol(problem, taps), len(taps))


def symbol(problem: Problem, taps: np.ndarray) -> np.ndarray:
    """c_b(k) omega_k |S_k|^2, and q_k / m_k^2 where |W_k| is above m_k, a share of it where not."""
    found = bin_weights(problem, taps) * np.abs(problem.secondary) ** 2
    if problem.ceiling is not None:
        share = np.where(overshoot(problem, taps) > 0, 1.0, GUARD)
        found += share * penalty_weights(problem) / problem.ceiling**2
    return found


def damping(problem: Problem, column: np.ndarray) -> float:
    """0.002 (in the paper) max(h, 1e-6) + 1e-6, h the mean unregularised diagonal."""
    return problem.damping_share * max(column[0], 1e-6) + 1e-6


def full_step(problem: Problem, taps: np.ndarray) -> np.ndarray:
    """The exact damped Gauss-Newton step, by a dense Cholesky solve."""
    column = normal_column(problem, taps)
    matrix = toeplitz.dense(column) + damping(problem, column) * np.eye(len(taps))
    return -cho_solve(cho_factor(matrix), gradient(problem, taps))


def response_rms(problem: Problem, spectrum: np.ndarray) -> float:
    """RMS over the bins of the 23 AMP bands."""
    bins = np.concatenate([band_bins(n, 2 * (problem.n_bins - 1)) for n in AMP_BANDS])
    return float(np.sqrt(np.mean(np.abs(spectrum[bins]) ** 2)))


def capped(problem: Problem, step: np.ndarray, base_rms: float) -> np.ndarray:
    """The step, shortened where its response's RMS exceeds 10^(1/20) - 1 times the ratio base's."""
    limit = (10 ** (1 / 20) - 1) * base_rms
    return step * min(1.0, limit / response_rms(problem, response(step, problem.n_bins)))


def backtrack(problem: Problem, taps: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, float]:
    """(new taps, scale): the first of 1, 1/2, 1/4 that lowers J by 1e-5 max(|J|, 1); (taps, 0) if none."""
    start = objective(problem, taps)
    for scale in SCALES:
        if start - objective(problem, taps + scale * step) >= 1e-5 * max(abs(start), 1.0):
            return taps + scale * step, scale
    return taps, 0.0

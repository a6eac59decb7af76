"""Twin of the objective of one filter for several conditions t of weights v_t, sum one, by dense matrices.

J(w) = mean over the 21 NR bands of 2 ln sum_t v_t exp(l_tb / 2) + rho (ln sum_t v_t sum_b exp l_tb - ln n_b)
+ sum_k q_k [|W_k| / m_k - 1]_+^2,  m_k the lowest of the conditions' ceilings.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tests.oracles import gauss_newton as single
from tests.oracles import toeplitz
from tests.oracles.gauss_newton import Problem, _inside
from tests.oracles.octave_bands import NR_BANDS, WIDE_BANDS, band_bins


def with_lowest_ceiling(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems with their common ceiling."""
    if problems[0].ceiling is None:
        return list(problems)
    lowest = np.min([problem.ceiling for problem in problems], axis=0)
    return [replace(problem, ceiling=lowest) for problem in problems]


def objective(problems: Sequence[Problem], shares: np.ndarray, taps: np.ndarray) -> float:
    """J(w)."""
    first = problems[0]
    ratios = np.array([single.log_ratios(problem, taps)[0] for problem in problems])
    risk = ratios[:, _inside(first.risk_bands)]
    worst = np.log(np.sum(shares[:, None] * np.exp(risk))) - np.log(risk.shape[1])
    penalty = np.sum(single.penalty_weights(first) * single.overshoot(first, taps) ** 2)
    mean = 2 * np.log(shares @ np.exp(ratios[:, _inside(NR_BANDS)] / 2)).mean()
    return float(mean + first.risk_weight * worst + penalty)


def _weights(problems: Sequence[Problem], shares: np.ndarray, taps: np.ndarray) -> list[np.ndarray]:
    """(dJ/dl_tb) / E_tb times the reference's power, per condition and bin."""
    found = [single.log_ratios(item, taps) for item in problems]
    inside = _inside(problems[0].risk_bands)
    risk = shares[:, None] * np.where(inside, np.exp([ratios for ratios, _ in found]), 0.0)
    amplitudes = shares[:, None] * np.exp([ratios / 2 for ratios, _ in found])
    slopes = amplitudes / amplitudes.sum(0) * _inside(NR_BANDS) / len(NR_BANDS)
    slopes = slopes + problems[0].risk_weight * risk / risk.sum()
    weights = []
    for problem, slope, (_, powers) in zip(problems, slopes, found, strict=True):
        per_bin = np.zeros(problem.n_bins)
        for n, value, power in zip(WIDE_BANDS, slope, powers, strict=True):
            bins = band_bins(n, 2 * (problem.n_bins - 1))
            if len(bins):
                per_bin[bins] = value / power
        weights.append(per_bin * problem.reference_psd)
    return weights


def gradient(problems: Sequence[Problem], shares: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """dJ/dw without the ceiling's part, 2 Re of the literal sums over bins."""
    rows = toeplitz.fourier_rows(problems[0].n_bins, len(taps))
    total = np.zeros(len(taps))
    for problem, weights in zip(problems, _weights(problems, shares, taps), strict=True):
        seen = problem.secondary[:, None] * rows
        total -= 2 * np.real(seen.conj().T @ (weights * problem.residual(taps)))
    return total


def normal_matrix(problems: Sequence[Problem], shares: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """Sum over conditions of 2 Re sum_k weight |S_k|^2 f_k f_k^H, and the ceiling's part once."""
    first = problems[0]
    symbol = sum(
        weights * np.abs(problem.secondary) ** 2
        for problem, weights in zip(problems, _weights(problems, shares, taps), strict=True)
    )
    if first.ceiling is not None:
        symbol = symbol + single.penalty_weights(first) / first.ceiling**2 * (single.overshoot(first, taps) > 0)
    return toeplitz.normal_matrix(symbol, len(taps))


def full_step(problems: Sequence[Problem], shares: np.ndarray, taps: np.ndarray) -> np.ndarray:
    """The exact damped Gauss-Newton step, where no bin is above the ceiling."""
    matrix = normal_matrix(problems, shares, taps)
    damped = matrix + single.damping(problems[0], matrix[:, 0]) * np.eye(len(taps))
    return -np.linalg.solve(damped, gradient(problems, shares, taps))

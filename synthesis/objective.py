"""The objective J of a control filter, from the band powers that it leaves: one definition in NumPy.

`/refine` minimises it over taps (`synthesis.gauss_newton` in torch, the compiled core in C, both with a ceiling's
penalty of their own), `/export` over sections and short filters (`hardware`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synthesis.octave_bands import NR_BANDS, WIDE_BANDS
from synthesis.profiles import FAST, TEMPERATURE

Real = NDArray[np.float64]

_IN_TARGET = np.isin(WIDE_BANDS, NR_BANDS) / len(NR_BANDS)


def objective(log_ratio: Real, shares: Real) -> tuple[Real, Real]:
    """Evaluate J, without a ceiling's penalty, and its slopes.

    For conditions t with weights v_t of sum one, and bands b,

        J = mean_{b in 50:5k} 2 ln sum_t v_t exp(l_tb / 2)
            + rho tau (ln sum_t v_t sum_{b in 20:20k} exp(l_tb / tau) - ln 31),    l_tb = ln(E_tb / D_tb),

    E and D being the power at the error microphone with and without the filter. The first term averages amplitudes
    over the conditions and decibels over the bands; the second is a smooth maximum, the risk of the worst band.
    With one condition the first term is the mean of l_b (Section 3.2 of the paper). J is concave in E.

    Parameters
    ----------
    log_ratio
        l_tb, [..., n_conditions, 31].
    shares
        v_t, [n_conditions].

    Returns
    -------
    value, slope
        J, [...], and dJ / dl_tb, [..., n_conditions, 31], all positive.
    """
    share = shares[:, None]
    amplitude = share * np.exp(log_ratio / 2)
    mean_amplitude = amplitude.sum(-2, keepdims=True)
    largest = log_ratio.max((-1, -2), keepdims=True)
    excess = share * np.exp((log_ratio - largest) / TEMPERATURE)
    total = excess.sum((-1, -2), keepdims=True)
    risk = TEMPERATURE * np.log(total / log_ratio.shape[-1]) + largest
    value: Real = (2 * np.log(mean_amplitude) @ _IN_TARGET)[..., 0] + FAST.risk_weight * risk[..., 0, 0]
    slope: Real = amplitude / mean_amplitude * _IN_TARGET + FAST.risk_weight * excess / total
    return value, slope

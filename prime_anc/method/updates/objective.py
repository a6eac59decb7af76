"""The objective J of a control filter, from its band powers, on NumPy and torch arrays alike.

`/refine` minimises it over taps (`method.update` and the C core, which add the penalty on |W| above a ceiling),
`/export` over sections and short filters (`hardware`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from prime_anc.method.arrays import Array, array_namespace
from prime_anc.method.bands import NR_BANDS, columns, mean_weights

# Weight of ln(E / D) of a known band above its limit, and the reciprocal of the range (nepers) in which it sets in.
LOUDER_WEIGHT, LOUDER_SHARPNESS = 1.0, 8.0
# Exponent beyond which a band counts for nothing there.
MOST_BELOW = 40.0


@dataclass(frozen=True, kw_only=True)
class ObjectiveProfile:
    """Settings of J: theory (13). A design's option replaces the weight of its name (`ObjectiveFields.weights`).

    The C core has the weights, in this order, in `objective_weights` (core/c/core.h).
    """

    # Bands of the soft worst case.
    risk_bands: tuple[int, ...]
    # Weight of the soft worst case, rho.
    risk_weight: float
    # Weights of the 31 bands in J's mean (`BandWeights.relative`); None: all alike.
    band_weights: tuple[float, ...] | None = None
    # Level by which a band may become louder; infinite: no limit.
    max_louder_db: float = math.inf


def objective(log_ratio: Array, shares: Array, profile: ObjectiveProfile) -> tuple[Array, Array]:
    """Evaluate J without a ceiling's penalty, and its slopes: theory (13), (14).

    The first term averages amplitudes over the conditions and decibels over the bands: the mean of decibels rewards
    serving one condition and giving up another. The second is a smooth maximum, the risk of the worst band. With
    one condition the first term is the mean of l_b (Section 3.2 of the paper).

    The mean and the soft worst case are concave in the powers E_tb. Their tangent, which is quadratic in the taps,
    is never below them, so that a step that lowers it lowers them at least as much: hence the slopes.

    Weights of bands enter the first term alone, over their mean: it stays a mean of decibels, so that the weight of
    the risk, the damping and the thresholds of the updates keep their meaning. The risk has no weights: it keeps a
    band of weight zero from becoming louder, and its slopes keep the normal equations regular there.

    Parameters
    ----------
    log_ratio
        l_tb = ln(E_tb / D_tb), [..., n_conditions, n_bands], in the profile's `risk_bands`.
    shares
        v_t, [n_conditions], of sum one.
    profile
        Settings of J.

    Returns
    -------
    value, slope
        J, [...], and dJ / dl_tb, [..., n_conditions, n_bands]: positive.
    """
    xp = array_namespace(log_ratio, shares)
    share, in_target = shares[:, None], mean_weights(NR_BANDS, profile.risk_bands, log_ratio)
    if profile.band_weights is not None:
        weights = profile.band_weights[columns(profile.risk_bands)]
        in_target = in_target * xp.asarray(weights, dtype=in_target.dtype, device=in_target.device)
    n_bands = log_ratio.shape[-1]
    amplitude = share * xp.exp(log_ratio / 2)
    mean_amplitude = xp.sum(amplitude, axis=-2, keepdims=True)
    largest = xp.max(log_ratio, axis=(-2, -1), keepdims=True)
    excess = share * xp.exp(log_ratio - largest)
    total = xp.sum(excess, axis=(-2, -1), keepdims=True)
    risk = largest + xp.log(total / n_bands)
    value = (2 * xp.log(mean_amplitude) @ in_target)[..., 0] + profile.risk_weight * risk[..., 0, 0]
    slope = amplitude / mean_amplitude * in_target + profile.risk_weight * excess / total
    if profile.max_louder_db < math.inf:
        above = LOUDER_SHARPNESS * (log_ratio - profile.max_louder_db * math.log(10) / 10)
        above = xp.clip(above, min=-MOST_BELOW)
        softly = xp.log1p(xp.exp(-xp.abs(above))) + xp.clip(above, min=0.0)
        value = value + LOUDER_WEIGHT / LOUDER_SHARPNESS * xp.sum(share * softly, axis=(-2, -1))
        slope = slope + LOUDER_WEIGHT * share / (1 + xp.exp(-above))
    return value, slope

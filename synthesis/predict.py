"""Predict a filter's effect from powers per band, in NumPy; the CPU backend has the same in C (`predict.h`).

A backend sums powers under the reference spectrum over the 31 one-third octaves from 20 Hz to 20 kHz, from which all
figures follow. With the paths P and S, the filter W, the sound of the loudspeaker Y = S W and the residual E = P - Y,
an error of the secondary path that turns Y into c Y leaves

    |P - c Y|^2 = |E|^2 + 2 Re((1 - c) E* Y) + |1 - c|^2 |Y|^2,

c = 10^(+-1/20) for a level error of 1 dB and exp(-+j omega) for one sample of delay.

Predictions from estimated paths alone are too high: the unknown part of P remains with and without the filter, and an
error of S appears with it. Both powers are added, from the best source available:

    uncertainty     of `/calibrate`: u_p |P|^2, and u_s |Y|^2 with the filter
    coherence       of any estimate: COHERENCE_SHARE of (1 - c) / c |P|^2, but at most MODEL_BOUND times the
                    model's expectation, because it includes the error microphone's noise
    the model       raised typical (per_share share / typical)^a |P|^2 (`expected_uncertainty`): typical the unknown
                    over known power of the support's ears, share the late share of the response's power, per_share
                    the support's ratio of the two, a = 1/2 for a long response and 0 for a short one, raised a factor
                    that grows as the response is shorter (CUT_DB); only if the support has such paths

The constants make the mean prediction right over 12 persons, with prior and model from others, with white, pink, pooled
and single recordings as probes, without noise at the error microphone and at 40 and 20 dB SNR (`studies/predictions`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from numpy.typing import NDArray

from synthesis.arrays import (
    LATE_FROM_SAMPLES,
    SMALLEST,
    Array,
    Real,
    late_spectrum,
    squared_magnitude,
    unexplained_power,
)
from synthesis.bands import AMP_BANDS, NR_BANDS, WIDE_BANDS, band_matrix, centre_hz
from synthesis.conventions import SAMPLE_RATE_HZ
from synthesis.errors import NonFiniteFilter
from synthesis.types import ConditionPrediction, Prediction

# Sums over the bins of a band of the reference spectrum times |P|^2, |E|^2, |Y|^2, Re E* Y, Im E* Y, (1 - c) / c |P|^2
# for a coherence c, and |P|^2 of the primary response from sample LATE_FROM_SAMPLES on.
POWERS = ("disturbance", "residual", "control", "in_phase", "quadrature", "unexplained", "late")

# Numbers from a backend: the powers in 31 bands; then the largest |W|^2, the mean square of w * x and the length of the
# primary response, in samples, up to the last above END_OF_RESPONSE of its maximum.
N_SUMS = len(POWERS) * len(WIDE_BANDS) + 3

# Level relative to the maximum below which float32 transforms leave rounding errors.
END_OF_RESPONSE = 1e-6

# Share of the strongest band's power that is added to every band: one without sound has a level then, and counts as
# 0 dB. (Bands that no mean counts are far louder: `unknown.SILENT`.)
POWER_FLOOR = 1e-12

LOW_BANDS = tuple(n for n in WIDE_BANDS if n < AMP_BANDS[0])
# Below 44.7 Hz and above 8.9 kHz, outside the bands of AMP.
HIGH_BANDS = tuple(n for n in WIDE_BANDS if n > AMP_BANDS[-1])

# Fields of which the largest over conditions is used instead of the mean.
LARGEST = ("max_gain_db", "control_rms")

COHERENCE_SHARE = 0.8
MODEL_BOUND = 2.0
RESPONSE_LENGTHS = (128, 256, 512, 1024, 2048, 4096, 8192)
# Factors (dB) on the model's expectation for responses of these lengths; interpolated over log length.
CUT_DB = (21.5, 7.0, 5.5, 3.2, 2.3, 2.3, 0.0)

# Half-widths that nine in ten predictions keep; the model's for RESPONSE_LENGTHS. Without a model of the device they
# grow with what the unknown costs, up to WIDEST_DB: over ears, ducts, rooms, windows, headrests and headsets.
INTERVAL_DB = {"uncertainty": 1.0, "coherence": 3.5}
WIDEST_DB = {"uncertainty": 4.5, "coherence": 14.0}
COST_SHARE = 1.5
MODEL_INTERVAL_DB = (4.5, 5.3, 5.0, 6.3, 7.0, 3.6, 3.4)

# From bare responses alone, what is above this may be an error that the filter has fitted: estimates of measured ears
# promise 35 dB and more where the filter takes away 22.
BELIEVED_DB = 18.0

# Multiple of the support's typical uncertainty below which uncertainty is that of the ear, not the measurement.
NATURAL_SPREAD = 2.0

# Largest share of the disturbance that is taken for unknown, of a filter beside a controller, where it hardly changes a
# band.
MOST_UNKNOWN = 10.0

# Largest uncertainty of a band that is known in part. Where nothing is known the filter is quiet, and an error of the
# secondary path counts for nothing.
MOST_UNCERTAIN = 1.0

# Multiple of the unknown with which a band that stays quieter is not named as perhaps louder. Of 56 bands that
# calibrated systems (`studies/foreign`) make louder by more than 1 dB and that are predicted to be quieter, 7 were not
# named with 2, 3 with 3. An estimate hardly resolves LOW_BANDS: an error has one phase in each, so amplitudes add.
# That names 0.2 bands more; 0 instead of 3 of 250 systems 1 instead of 3 of 30 ears are left at 20 dB SNR.
DOUBT = 3.0

# Largest factor between an expected uncertainty and the support's typical one: 20 dB either way.
PLAUSIBLE_RANGE = 100.0


def a_weight(frequency_hz: Real) -> Real:
    """Compute the power gain of the A-weighting of IEC 61672-1 (Annex E), 1 at 1 kHz."""
    square = np.square(frequency_hz)
    poles = (square + 107.65265**2) * (square + 737.86223**2)
    gain = 12194.217**2 * square**2 / ((square + 20.598997**2) * np.sqrt(poles) * (square + 12194.217**2))
    power: Real = (10 ** (2.0 / 20) * gain) ** 2
    return power


_CENTRE_HZ = np.array([centre_hz(n) for n in WIDE_BANDS])
_A_WEIGHT = a_weight(_CENTRE_HZ)


def secondary_errors(frequency_hz: Real) -> NDArray[np.complex128]:
    """Return factors of a secondary path 1 dB louder and quieter, and one sample later and earlier: [4, n]."""
    levels = np.array([[10 ** (1 / 20)], [10 ** (-1 / 20)]])
    delay = np.exp(-2j * np.pi / SAMPLE_RATE_HZ * frequency_hz)
    return np.concatenate([np.broadcast_to(levels, (2, delay.size)), [delay, delay.conj()]])


# 1 - c of these errors: complex [4, 31].
_MISSING = 1 - secondary_errors(_CENTRE_HZ)
_MISSING_POWER = (_MISSING * _MISSING.conj()).real
_LOG_LENGTHS = np.log2(RESPONSE_LENGTHS)


def _membership(bands: tuple[int, ...]) -> Real:
    return np.isin(WIDE_BANDS, bands).astype(float)


def _mean_over(bands: tuple[int, ...], silent: NDArray[np.bool_] | None) -> Real:
    """Return the weights of the mean over those of the bands that are not silent, or over all if none is left, [31]."""
    chosen = _membership(bands)
    kept = chosen if silent is None or silent[chosen > 0].all() else chosen * ~silent
    weights: Real = kept / kept.sum()
    return weights


_MEANS = tuple(_mean_over(bands, None) for bands in (NR_BANDS, AMP_BANDS, WIDE_BANDS))
# Weights of the bands in four levels: below and above the scored bands, overall and A-weighted.
_LEVELS = np.stack((_membership(LOW_BANDS), _membership(HIGH_BANDS), np.ones(len(WIDE_BANDS)), _A_WEIGHT), axis=-1)


@np.errstate(all="ignore")  # non-finite results are refused at the end
def predict(
    sums: Real,
    learned: Real,
    *,
    has_coherence: bool,
    uncertainty: Real | None = None,
    silent: NDArray[np.bool_] | None = None,
    is_true: bool = False,
    resembles: bool = True,
    ends: tuple[Real, float] | None = None,
) -> Prediction | NonFiniteFilter:
    """Predict the effect of one filter for one ear: theory (21) to (23).

    Parameters
    ----------
    sums
        A backend's N_SUMS numbers.
    learned
        The model's `typical` and `per_share`, [2, 31], from `learn_uncertainty`.
    has_coherence
        Whether the sums include the unexplained power of a coherence.
    uncertainty
        u_p and u_s, [2, 31], in place of a coherence.
    silent
        Bands that no mean counts, bool [31]; None: none.
    is_true
        Whether the paths are exact.
    resembles
        Whether the model's support has such paths; else `learned` does not apply.
    ends
        Uncertainty and interval that the ends of the responses show, from `unknown`, if nothing else is known.

    Returns
    -------
    Prediction | NonFiniteFilter
        The prediction; NonFiniteFilter if sums or band figures are not finite.
    """
    sums = np.asarray(sums, np.float64)
    disturbance, residual, control, in_phase, quadrature, unexplained, late = sums[:-3].reshape(len(POWERS), -1)
    is_measured = is_true or has_coherence or uncertainty is not None
    ends = None if is_measured else ends
    uncertainty = uncertainty if ends is None else ends[0]
    unknown, of_control = np.zeros_like(disturbance), np.zeros_like(control)
    if not is_true and (is_measured or resembles or ends is not None):
        unknown = _unknown(disturbance, unexplained, late, sums[-1], learned, has_coherence, uncertainty)
    if not is_true and uncertainty is not None:
        of_control = np.where(uncertainty[1] > MOST_UNCERTAIN, 0, uncertainty[1]) * control
    # For a model that knows no device, any uncertainty may be natural.
    typical = np.where(np.asarray(learned)[0] > 0, NATURAL_SPREAD * learned[0] * disturbance, np.inf)
    natural = unknown if uncertainty is not None else np.minimum(unknown, typical)

    cross = in_phase + 1j * quadrature
    before, after = _powers(disturbance, residual, control, cross, unknown, of_control, natural)
    reduction = _decibels(before, after)
    bands = reduction[0]
    means = _MEANS if silent is None else [_mean_over(item, silent) for item in (NR_BANDS, AMP_BANDS, WIDE_BANDS)]
    # A matrix product could give equal rows unequal means.
    mean, louder = (reduction * means[0]).sum(1).tolist(), np.maximum(-bands, 0)
    levels = np.stack((before[0], after[0])) @ _LEVELS
    low, high, overall, weighted = (_level_db(x, y) for x, y in zip(*levels.tolist(), strict=True))
    as_sent_db = _without_unknown(disturbance, residual, means[0])
    source = "uncertainty" if uncertainty is not None else "coherence" if has_coherence else None
    interval_db = 0.0 if is_true else _interval_db(mean[0], as_sent_db, source, ends, sums[-1], learned)

    found = Prediction(
        basis="coherence" if is_measured else "model" if ends is None else "response",
        band_reduction_db=bands.astype(np.float32),
        least_reduction_db=_decibels(before[0], _doubtful(after[0], unknown + of_control)).astype(np.float32),
        mean_noise_reduction_db=mean[0],
        interval_db=interval_db,
        amplification_db=float(louder @ means[1]),
        wide_amplification_db=float(louder @ means[2]),
        out_of_band_low_db=-low,
        out_of_band_high_db=-high,
        level_reduction_db=overall,
        a_weighted_level_reduction_db=weighted,
        gain_sensitivity_db=mean[0] - min(mean[1:3]),
        delay_sensitivity_db=mean[0] - min(mean[3:5]),
        uncertainty_cost_db=max(mean[5] - mean[0], 0.0),
        max_gain_db=_level_db(float(sums[-3]), 1.0),
        control_rms=float(np.sqrt(sums[-2])),
        nominal_noise_reduction_db=mean[0] if is_measured else as_sent_db,
    )
    return found if np.isfinite(sums).all() and np.isfinite(bands).all() else not_finite()


def _powers(
    disturbance: Real, residual: Real, control: Real, cross: Any, unknown: Real, of_control: Real, natural: Real
) -> Real:
    """Compute the powers without and with the filter in six cases, [2, 6, 31].

    As predicted; with each of the four errors of the secondary path; as after the best possible measurement, which
    leaves the ear's own (`natural`) uncertainty.
    """
    off = residual + 2 * (_MISSING * cross).real + _MISSING_POWER * control
    powers = np.empty((2, 6, len(WIDE_BANDS)))
    powers[0], powers[1] = disturbance + unknown, residual + (unknown + of_control)
    powers[1, 1:5] += np.maximum(off, 0) - residual
    powers[:, 5] = disturbance + natural, residual + natural
    powers += _floor(powers[0, 0])
    return powers


def _doubtful(after: Real, missing: Real) -> Real:
    """Compute the power with the filter, of which `missing` is unknown, with DOUBT times that."""
    of_amplitudes = np.sqrt(np.maximum(after - missing, 0) * missing) * _LEVELS[:, 0]
    return np.asarray(after + (DOUBT - 1) * np.maximum(missing, of_amplitudes))


def _unknown(
    disturbance: Real,
    unexplained: Real,
    late: Real,
    n_samples: float,
    learned: Real,
    has_coherence: bool,
    uncertainty: Real | None,
) -> Real:
    """Compute the power of the disturbance that is missing in the estimate, [31]."""
    if uncertainty is not None:
        return np.asarray(uncertainty[0] * disturbance)
    unknown = disturbance * expected_uncertainty(disturbance, late, n_samples, learned)
    if not has_coherence:
        return unknown
    # A model that knows no device expects nothing, and so bounds nothing.
    bound = np.where(np.asarray(learned)[0] > 0, MODEL_BOUND * unknown, np.inf)
    return np.minimum(COHERENCE_SHARE * unexplained, bound)


def _interval_db(
    mean_db: float,
    as_sent_db: float,
    source: str | None,
    ends: tuple[Real, float] | None,
    n_samples: float,
    learned: Real,
) -> float:
    """Compute the half-width of the interval of the mean; source is what the unknown is known from."""
    if ends is not None:  # what was sent may as well be exact, or any other estimate
        return max(as_sent_db - mean_db, mean_db - BELIEVED_DB, ends[1])
    if source is None:
        return _at_length(n_samples, MODEL_INTERVAL_DB)
    if np.any(learned[0]):
        return INTERVAL_DB[source]
    return max(INTERVAL_DB[source], min(COST_SHARE * (as_sent_db - mean_db), WIDEST_DB[source]))


def _without_unknown(disturbance: Real, residual: Real, weights: Real) -> float:
    """Compute the mean noise reduction on the paths as sent."""
    before, after = np.stack((disturbance, residual)) + _floor(disturbance)
    return float(weights @ _decibels(before, after))


def _decibels(before: Real, after: Real) -> Real:
    reduction: Real = 10 * np.log10(np.maximum(before / after, SMALLEST))
    return reduction


def _floor(before: Real) -> float:
    """Compute the power that is added to every band."""
    return max(POWER_FLOOR * float(before.max()), SMALLEST)


def expected_uncertainty(disturbance: Real, late: Real, n_samples: float, learned: Real) -> Real:
    """Compute the expected unknown over known power of an estimate, per band [31]: theory (22), U_m / D.

    Parameters
    ----------
    disturbance, late
        Powers, [31].
    n_samples
        Length of the primary response.
    learned
        As in `predict`.
    """
    typical, per_share = np.asarray(learned, np.float64)  # zeros stay above SMALLEST in float64
    exponent = 0.5 * min(max(math.log2(max(n_samples, 1) / LATE_FROM_SAMPLES), 0), 1)
    share = late / np.maximum(disturbance, SMALLEST)
    seen = per_share * share / np.maximum(typical, SMALLEST)
    seen = np.minimum(np.maximum(seen, 1 / PLAUSIBLE_RANGE), PLAUSIBLE_RANGE)
    raised = 10 ** (_at_length(n_samples, CUT_DB) / 10)
    expected: Real = raised * typical * seen**exponent
    return expected


def _at_length(n_samples: float, values: tuple[float, ...]) -> float:
    return float(np.interp(math.log2(max(n_samples, 1)), _LOG_LENGTHS, values))


def mean_prediction(found: Sequence[Prediction], shares: NDArray[np.float64], labels: Sequence[str]) -> Prediction:
    """Join the predictions of several conditions.

    Parameters
    ----------
    found
        One prediction per condition.
    shares
        Weights of the conditions, with sum one.
    labels
        Names of the conditions.

    Returns
    -------
    Prediction
        Weighted means, and the largest of LARGEST; `found` is in its `conditions`.
    """
    made: dict[str, Any] = {}
    for field in fields(Prediction):
        values = [getattr(one, field.name) for one in found]
        if field.name in LARGEST:
            made[field.name] = max(values)
        elif isinstance(values[0], float):
            made[field.name] = float(np.dot(shares, values))
        elif isinstance(values[0], np.ndarray):
            made[field.name] = np.tensordot(shares, np.stack(values), 1).astype(values[0].dtype)
    bases = {one.basis for one in found}
    if "response" in bases:
        made |= {"basis": "response", "interval_db": max(one.interval_db for one in found)}
    elif len(bases) > 1:  # the weaker basis
        made["basis"] = "model"
    return replace(found[0], **made, conditions=tuple(map(ConditionPrediction, labels, found)))


def not_finite() -> NonFiniteFilter:
    """Return the error in place of an unusable filter or prediction."""
    return NonFiniteFilter(
        "control filter: its taps or predicted figures are NaN or infinite in float32; look for values of paths "
        "and reference_psd that are far above the others, and measure again"
    )


def _level_db(power: float, reference: float) -> float:
    """Compute the level of one power over another; NaN stays NaN."""
    ratio = power / reference if reference else math.nan
    return 10 * math.log10(max(ratio, SMALLEST)) if math.isfinite(ratio) else math.nan


def band_sums(
    primary: Array,
    secondary: Array,
    taps: Array,
    reference_psd: Array,
    coherence: Array | None = None,
    *,
    is_true: bool = False,
) -> Array:
    """Sum powers over the bands.

    Parameters
    ----------
    primary, secondary
        P and S, complex [batch or 1, n_bins].
    taps
        [batch, n_taps].
    reference_psd
        One-sided, mean square per bin, [n_bins] or [batch, n_bins].
    coherence
        Coherence of the calibration, [batch, n_bins]; None: unknown.
    is_true
        Whether the paths are exact, so that sums for their uncertainty are zero.

    Returns
    -------
    Array
        [batch, N_SUMS] for `predict`.
    """
    xp = array_namespace(primary, secondary, taps, reference_psd)
    n_fft = 2 * (primary.shape[-1] - 1)
    membership = band_matrix(WIDE_BANDS, n_fft, reference_psd)
    control = xp.fft.rfft(taps, n=n_fft)
    played = secondary * control
    error = primary - played
    cross = reference_psd * xp.conj(error) * played
    power = reference_psd * squared_magnitude(primary)
    gain = squared_magnitude(control)
    powers = [
        power,
        reference_psd * squared_magnitude(error),
        reference_psd * squared_magnitude(played),
        cross.real,
        cross.imag,
    ]
    if is_true:
        powers += [xp.zeros_like(power)] * 2
        length = xp.zeros_like(gain[..., 0])
    else:
        response = xp.fft.irfft(primary, n=n_fft)
        powers.append(xp.zeros_like(power) if coherence is None else unexplained_power(power, coherence))
        powers.append(reference_psd * squared_magnitude(late_spectrum(response)))
        lag = xp.arange(1, n_fft + 1, dtype=power.dtype, device=power.device)
        magnitude = xp.abs(response)
        is_response = magnitude > END_OF_RESPONSE * xp.max(magnitude, axis=-1, keepdims=True)
        length = xp.max(lag * is_response, axis=-1)
    summed = xp.broadcast_arrays(*(item @ membership for item in powers))
    rest = xp.broadcast_arrays(xp.max(gain, axis=-1), xp.sum(reference_psd * gain, axis=-1), length)
    return xp.concat((*summed, xp.stack(rest, axis=-1)), axis=-1)

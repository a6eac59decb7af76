"""Predict a filter's effect from powers per band, in NumPy; the CPU backend has the same in C (`predict.h`).

A backend sums powers under the reference spectrum over the 31 one-third octaves from 20 Hz to 20 kHz, from which all
figures follow. With the paths P and S, the filter W, the sound of the loudspeaker Y = S W and the residual E = P - Y,
an error of the secondary path that turns Y into c Y leaves

    |P - c Y|^2 = |E|^2 + 2 Re((1 - c) E* Y) + |1 - c|^2 |Y|^2,

c = 10^(+-1/20) for a level error of 1 dB and exp(-+j omega) for one sample of delay.

Predictions from estimated paths alone are too high: the unknown part of P remains with and without the filter, and an
error of S appears with it. Both are added: u_p |P|^2 and u_s |Y|^2, with the uncertainties u_p and u_s that a
calibration states, or that `prime_anc.method.unknown` describes. `studies/predictions` compares with scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.arrays import (
    SMALLEST,
    Array,
    Complex,
    Real,
    array_namespace,
    squared_magnitude,
)
from prime_anc.method.bands import (
    AMP_BANDS,
    BAND_BINS,
    BINS_HZ,
    NR_BANDS,
    WIDE_BANDS,
    band_matrix,
    centre_hz,
    columns,
    sum_over_bands,
)
from prime_anc.method.conventions import SAMPLE_RATE_HZ
from prime_anc.method.errors import NonFiniteFilter
from prime_anc.method.types import ConditionPrediction, Known, Prediction

if TYPE_CHECKING:
    from prime_anc.method.posing import Posed

# Sums over the bins of a band of the reference spectrum times |P|^2, |E|^2, |Y|^2, Re E* Y and Im E* Y.
POWERS = ("disturbance", "residual", "control", "in_phase", "quadrature")

# Numbers from a backend: the powers in 31 bands; then the largest |W|^2 and the mean square of w * x.
N_SUMS = len(POWERS) * len(WIDE_BANDS) + 2

# Share of the strongest band's power that is added to every band: one without sound has a level then, and counts as
# 0 dB. (Bands that no mean counts are far louder: `unknown.SILENT`.)
POWER_FLOOR = 1e-12

LOW_BANDS = tuple(n for n in WIDE_BANDS if n < AMP_BANDS[0])
# Below 44.7 Hz and above 8.9 kHz, outside the bands of AMP.
HIGH_BANDS = tuple(n for n in WIDE_BANDS if n > AMP_BANDS[-1])

# Fields of which the largest over conditions is used instead of the mean.
LARGEST = ("max_gain_db", "control_rms")

# Half-widths that nine in ten predictions keep; they grow with what the unknown costs, up to WIDEST_DB: over ears,
# ducts, rooms, windows, headrests and headsets.
UNCERTAINTY_INTERVAL_DB, COHERENCE_INTERVAL_DB = 1.0, 3.5
WIDEST_UNCERTAINTY_DB, WIDEST_COHERENCE_DB = 4.5, 14.0
COST_SHARE = 1.5

# From bare responses alone, what is above this may be an error that the filter has fitted: estimates of measured ears
# promise 35 dB and more where the filter takes away 22.
BELIEVED_DB = 18.0

# Multiple of the support's typical uncertainty below which uncertainty is that of the ear, not the measurement.
NATURAL_SPREAD = 2.0

# Largest share of the disturbance that is taken for unknown, of a filter beside a controller, where it hardly changes a
# band.
MOST_UNKNOWN = 10.0

# A band may become louder if it does with DOUBT times the unknown, of which a part works against what is played: in
# LOW_BANDS, where an estimate hardly resolves phases, all of its amplitude, in others ALIGNED of it.
DOUBT, ALIGNED = 3.0, 0.5


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


def _membership(bands: tuple[int, ...]) -> Real:
    return np.isin(WIDE_BANDS, bands).astype(float)


def _mean_over(bands: tuple[int, ...], silent: NDArray[np.bool_] | None) -> Real:
    """Return the weights of the mean over those of the bands that are not silent, or over all if none is left, [31]."""
    chosen = _membership(bands)
    kept = chosen if silent is None or silent[chosen > 0].all() else chosen * ~silent
    weights: Real = kept / kept.sum()
    return weights


_MEANS = tuple(_mean_over(bands, None) for bands in (NR_BANDS, AMP_BANDS, WIDE_BANDS))
_NR = columns(NR_BANDS)
# Weights of the bands in four levels: below and above the scored bands, overall and A-weighted.
_LEVELS = np.stack((_membership(LOW_BANDS), _membership(HIGH_BANDS), np.ones(len(WIDE_BANDS)), _A_WEIGHT), axis=-1)

# Share of the unknown amplitude that works against what is played.
_ALIGNED = np.where(_LEVELS[:, 0] > 0, 1.0, ALIGNED)


@np.errstate(all="ignore")  # non-finite results are refused at the end
def predict(sums: Real, learned: Real, known: Known) -> Prediction | NonFiniteFilter:
    """Predict the effect of one filter for one ear: theory (21) to (23).

    Parameters
    ----------
    sums
        A backend's N_SUMS numbers.
    learned
        The model's typical uncertainty, [31], from `learn_uncertainty`.
    known
        What is known of the paths.

    Returns
    -------
    Prediction | NonFiniteFilter
        The prediction; NonFiniteFilter if sums or band figures are not finite.
    """
    sums = np.asarray(sums, np.float64)
    disturbance, residual, control, in_phase, quadrature = sums[:-2].reshape(len(POWERS), -1)
    unknown, of_control = known.uncertainty.astype(np.float64) * np.stack((disturbance, control))
    # For a model that knows no device, any uncertainty may be natural.
    typical = np.where(np.asarray(learned) > 0, NATURAL_SPREAD * learned * disturbance, np.inf)
    natural = unknown if known.basis == "calibration" else np.minimum(unknown, typical)

    cross = in_phase + 1j * quadrature
    before, after = _powers(disturbance, residual, control, cross, unknown, of_control, natural)
    reduction = _decibels(before, after)
    bands = reduction[0]
    counted = NR_BANDS, AMP_BANDS, WIDE_BANDS
    means = _MEANS if known.silent is None else [_mean_over(item, known.silent) for item in counted]
    # A matrix product could give equal rows unequal means.
    mean, louder = (reduction * means[0]).sum(1).tolist(), np.maximum(-bands, 0)
    levels = np.stack((before[0], after[0])) @ _LEVELS
    low, high, overall, weighted = (_level_db(x, y) for x, y in zip(*levels.tolist(), strict=True))
    as_sent_db = _without_unknown(disturbance, residual, means[0])
    aligned = _ALIGNED * np.sqrt(DOUBT * unknown * np.maximum(control, 0))
    doubted = before[0] + (DOUBT - 1) * unknown, after[0] + (DOUBT - 1) * (unknown + of_control) + aligned

    found = Prediction(
        basis=known.stated_basis,
        band_reduction_db=bands.astype(np.float32),
        least_reduction_db=_decibels(*doubted).astype(np.float32),
        mean_noise_reduction_db=mean[0],
        interval_db=_interval_db(mean[0], as_sent_db, known),
        amplification_db=float(louder @ means[1]),
        wide_amplification_db=float(louder @ means[2]),
        out_of_band_low_db=-low,
        out_of_band_high_db=-high,
        level_reduction_db=overall,
        a_weighted_level_reduction_db=weighted,
        gain_sensitivity_db=mean[0] - min(mean[1:3]),
        delay_sensitivity_db=mean[0] - min(mean[3:5]),
        uncertainty_cost_db=max(mean[5] - mean[0], 0.0),
        max_gain_db=_level_db(float(sums[-2]), 1.0),
        control_rms=float(np.sqrt(sums[-1])),
        nominal_noise_reduction_db=as_sent_db,
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


def _interval_db(mean_db: float, as_sent_db: float, known: Known) -> float:
    """Compute the half-width of the interval of the mean."""
    if known.basis == "response":  # what was sent may as well be exact, or any other estimate
        return max(as_sent_db - mean_db, mean_db - BELIEVED_DB, known.ends_interval_db)
    if known.basis in ("truth", "model"):
        return known.ends_interval_db
    least_db, widest_db = UNCERTAINTY_INTERVAL_DB, WIDEST_UNCERTAINTY_DB
    if known.basis == "coherence":
        least_db, widest_db = COHERENCE_INTERVAL_DB, WIDEST_COHERENCE_DB
    return max(least_db, min(COST_SHARE * (as_sent_db - mean_db), widest_db))


def _without_unknown(disturbance: Real, residual: Real, weights: Real) -> float:
    """Compute the mean noise reduction on the paths as sent."""
    before, after = np.stack((disturbance, residual)) + _floor(disturbance)
    return float(weights @ _decibels(before, after))


def _decibels(before: Real, after: Real) -> Real:
    reduction: Real = 10 * np.log10(np.maximum(before / np.maximum(after, SMALLEST), SMALLEST))
    return reduction


def _floor(before: Real) -> float:
    """Compute the power that is added to every band."""
    return max(POWER_FLOOR * float(before.max()), SMALLEST)


def predict_beside(
    alone: Prediction,
    posed: Posed,
    n: int,
    response: NDArray[np.complex128],
) -> Prediction:
    """Add the controller's effect to the prediction of a filter alone: theory (19), (21).

    What is unknown of P follows from that prediction, and has the spectrum of P within a band. Filter and controller
    are taken to be equally late where they drive the loudspeaker together.

    Parameters
    ----------
    alone
        Prediction of the filter in condition n.
    posed
        Problem with a controller.
    response
        Filter on the design grid, [16385].

    Returns
    -------
    Prediction
        Of both together, with the shares of both and what happens to music.
    """
    psd, inner, feedback = posed.reference_psd.astype(np.float64), posed.inner[n], posed.feedback[n]
    primary, played = posed.primary[n].astype(np.complex128), posed.secondary[n] * response
    opened = 1.0 if feedback is None else 1 + response * feedback
    closed, passed = opened + inner.gain, primary * opened
    left = squared_magnitude(np.asarray(opened) / closed)
    power, residual = psd * squared_magnitude(primary), psd * squared_magnitude(primary - played / opened)
    powers = power, residual, power * left, residual * left, 1 / squared_magnitude(closed)
    before, after, unfiltered, remaining, playback = sum_over_bands(np.stack(powers))
    before = before + _floor(before)
    unknown = np.zeros_like(before)
    ratio = 10 ** (alone.band_reduction_db.astype(np.float64) / 10)
    if posed.known[n].basis != "truth":
        changes = np.abs(ratio - 1) > 1e-3
        shown = (before - ratio * after) / np.where(changes, ratio - 1, 1.0)
        unknown = np.where(changes, np.clip(shown, 0, MOST_UNKNOWN * before), 0.0)
    of_unknown = unknown / before * unfiltered
    reduction = _decibels(before + unknown, remaining + of_unknown)
    doubted = remaining + DOUBT * of_unknown + _ALIGNED * np.sqrt(DOUBT * of_unknown * unfiltered)
    louder = np.maximum(-reduction, 0)
    low, high, overall, weighted = (
        _level_db(x, y) for x, y in zip(before @ _LEVELS, (before * 10 ** (-reduction / 10)) @ _LEVELS, strict=True)
    )
    off = _off_beside(psd, passed, played, closed, inner.gain) + of_unknown[_NR]
    mean, off_db = float(reduction[_NR].mean()), _decibels((before + unknown)[_NR], off).mean(-1)
    drive = psd @ (squared_magnitude(response + primary * inner.response) / squared_magnitude(closed))
    bands = reduction.astype(np.float32)
    return replace(
        alone,
        band_reduction_db=bands,
        least_reduction_db=_decibels(before + DOUBT * unknown, doubted).astype(np.float32),
        mean_noise_reduction_db=mean,
        amplification_db=float(louder @ _MEANS[1]),
        wide_amplification_db=float(louder @ _MEANS[2]),
        out_of_band_low_db=-low,
        out_of_band_high_db=-high,
        level_reduction_db=overall,
        a_weighted_level_reduction_db=weighted,
        gain_sensitivity_db=mean - float(off_db[:2].min()),
        delay_sensitivity_db=mean - float(off_db[2:].min()),
        control_rms=math.sqrt(drive),
        nominal_noise_reduction_db=float(_decibels(before, remaining)[_NR].mean()),
        feedforward_noise_reduction_db=alone.band_reduction_db,
        feedback_noise_reduction_db=bands - alone.band_reduction_db,
        playback_change_db=(10 * np.log10(playback / np.diff(BAND_BINS))).astype(np.float32),
    )


def _off_beside(psd: Real, passed: Complex, played: Complex, closed: Complex, loop_gain: Complex) -> Real:
    """Compute the scored bands' powers with each of the four errors of the secondary path in a controller's loop."""
    scored = slice(BAND_BINS[_NR.start], BAND_BINS[_NR.stop])
    errors = secondary_errors(BINS_HZ[scored])
    off = psd[scored] * squared_magnitude(passed[scored] - errors * played[scored])
    off /= squared_magnitude(closed[scored] + (errors - 1) * loop_gain[scored])
    return np.add.reduceat(off, BAND_BINS[_NR] - BAND_BINS[_NR.start], axis=-1)


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


def band_sums(primary: Array, secondary: Array, taps: Array, reference_psd: Array) -> Array:
    """Sum powers over the bands.

    Parameters
    ----------
    primary, secondary
        P and S, complex [batch or 1, n_bins].
    taps
        [batch, n_taps].
    reference_psd
        One-sided, mean square per bin, [n_bins] or [batch, n_bins].

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
    summed = xp.broadcast_arrays(*(item @ membership for item in powers))
    rest = xp.broadcast_arrays(xp.max(gain, axis=-1), xp.sum(reference_psd * gain, axis=-1))
    return xp.concat((*summed, xp.stack(rest, axis=-1)), axis=-1)

"""The loop of filter and feedback path: its stability, its margins, and filters that keep them.

The loudspeaker plays -w * m, which reaches the outer microphone: m = x - f * w * m, so that

    e = d - s * w_c * x,    W_c = W / (1 + L),    L = W F                                theory (19).

W and F are finite impulse responses, so 1 + L has no pole outside the unit circle, and by the Nyquist criterion the
loop is stable exactly if 1 + L does not encircle 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from prime_anc.method.arrays import SMALLEST
from prime_anc.method.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ
from prime_anc.method.errors import check_interruption
from prime_anc.method.gain_curve import TOLERANCE_DB
from prime_anc.method.methods import spectrum
from prime_anc.method.types import Complex64, Float32, Loop

# Points at which a loop is evaluated: 0.37 Hz apart.
N_FFT = 4 * DESIGN_N_FFT

LARGEST_MARGIN_DB = 120.0
FULL_CIRCLE_DEG = 180.0

# Trials of the limit on |L|, and by how much it may exceed the inverse of the gain margin: 0.3 dB apart at last.
N_BISECTIONS, LOUDEST_LOOP_DB = 6, 20.0
# Smallest |F| over its maximum.
QUIETEST_FEEDBACK = 1e-6
# Margin for rounding to float32.
PLAIN_GAIN_SPARE = 0.99

Float64 = NDArray[np.float64]
Complex128 = NDArray[np.complex128]


def loop_gain(taps: Float32 | Float64, feedback: Float32 | Complex64) -> Complex128:
    """Compute L = W F at N_FFT points, [65537]."""
    return _response(taps) * _fine(feedback)


def judge_loop(loop: Complex128, frequency_hz: Float64 | None = None) -> Loop:
    """Compute stability and margins of a loop from its one-sided spectrum, at even steps or at given frequencies."""
    if frequency_hz is None:
        frequency_hz = np.linspace(0, SAMPLE_RATE_HZ / 2, len(loop))
    squared = _squared(loop)
    peak, nearest = int(np.argmax(squared)), int(np.argmin(squared + 2 * loop.real))  # |1 + L|^2 - 1
    return Loop(
        stable=is_stable(loop),
        gain_margin_db=_gain_margin_db(loop),
        phase_margin_deg=_phase_margin_deg(loop, squared),
        peak_db=-margin_db(abs(loop[peak])),
        peak_hz=float(frequency_hz[peak]),
        max_sensitivity_db=margin_db(abs(1 + loop[nearest])),
        nearest_hz=float(frequency_hz[nearest]),
    )


def margin_db(gain: float) -> float:
    """Return by how much a gain is below one."""
    return -20 * math.log10(max(gain, 1e-30))


def is_stable(loop: Complex128) -> bool:
    """Return whether 1 + L winds 0 times around 0 from 0 Hz to Nyquist, half of the circle.

    A pair of unstable poles turns it by 2 pi, a real one, where 1 + L starts or ends below 0, by pi.
    """
    if not np.isfinite(loop.sum()) or (loop == -1).any():
        return False
    # The angle between both ends, and a full turn per crossing of the real axis below -1.
    gain, is_upward = _crossings(loop)
    passages = np.where(is_upward, -1, 1)[gain > 1].sum()
    ends = np.angle(1 + loop[[0, -1]])
    return abs(float(ends[1] - ends[0]) + 2 * np.pi * float(passages)) < np.pi / 2


def crosses_below(loop: Complex128) -> NDArray[np.bool_]:
    """Return whether loops [..., n], by rising frequency, cross the real axis below -1: [...].

    One that does not is stable for every gain from 0 to one.
    """
    return np.asarray(lines_cross_below(loop[..., :-1], loop[..., 1:]).any(-1))


def lines_cross_below(here: Complex128, there: Complex128) -> NDArray[np.bool_]:
    """Return whether straight lines between points cross the real axis below -1: of the points' shape."""
    crosses: NDArray[np.bool_] = (here.imag < 0) != (there.imag < 0)
    crosses &= (here.real < -1) | (there.real < -1)
    if crosses.any():
        # Where the line between both points meets the axis; products avoid a division by 0.
        at = here.real * there.imag - there.real * here.imag
        rise = there.imag - here.imag
        crosses &= at * np.sign(rise) < -np.abs(rise)
    return crosses


def worst_loop(loops: Sequence[Loop], loss_db: float = 0.0) -> Loop:
    """Return the worst of all figures."""
    loudest = max(loops, key=lambda loop: loop.peak_db)
    nearest = max(loops, key=lambda loop: loop.max_sensitivity_db)
    return Loop(
        stable=all(loop.stable for loop in loops),
        gain_margin_db=min(loop.gain_margin_db for loop in loops),
        phase_margin_deg=min(loop.phase_margin_deg for loop in loops),
        peak_db=loudest.peak_db,
        peak_hz=loudest.peak_hz,
        max_sensitivity_db=nearest.max_sensitivity_db,
        nearest_hz=nearest.nearest_hz,
        loss_db=loss_db,
    )


def with_margins(
    taps: Float32,
    feedbacks: Sequence[Float32 | Complex64],
    min_gain_margin_db: float,
    min_phase_margin_deg: float,
    below: Callable[[Float64], Float32],
) -> Float32:
    """Return a filter whose loops keep both margins.

    It is the best one with |W| below c / |F|, with the largest c that keeps both margins. With c the inverse of the
    gain margin, |L| is below one everywhere. Where no filter of its length follows such a ceiling, the given one is
    multiplied by the gain that does.

    Parameters
    ----------
    taps
        Control filter, float32 [2048].
    feedbacks
        Feedback paths of all conditions.
    min_gain_margin_db, min_phase_margin_deg
        Margins to keep in every loop.
    below
        Finds the best filter below a ceiling per bin of the design grid, dB [16385].

    Returns
    -------
    Float32
        The taps themselves if they keep the margins, or others, [2048].

    Raises
    ------
    Interrupted
        Between two trials, as `check_interruption`.
    """
    spectra = [_fine(feedback) for feedback in feedbacks]

    def holds(taps: Float32) -> bool:
        check_interruption()
        response = _response(taps)
        return all(_keeps_margins(response * item, min_gain_margin_db, min_phase_margin_deg) for item in spectra)

    if holds(taps):
        return taps
    loudest = np.max(np.abs(spectra), axis=0)
    largest = float((np.abs(_response(taps)) * loudest).max())
    on_grid = loudest[:: N_FFT // DESIGN_N_FFT]
    feedback_db = 20 * np.log10(np.maximum(on_grid, QUIETEST_FEEDBACK * loudest.max()))
    low_db = -min_gain_margin_db - TOLERANCE_DB
    high_db = min(20 * math.log10(largest), low_db + LOUDEST_LOOP_DB)
    best = below(low_db - feedback_db)
    if not holds(best):
        return taps * np.float32(PLAIN_GAIN_SPARE * 10 ** (-min_gain_margin_db / 20) / max(largest, 1.0))
    for _ in range(N_BISECTIONS):
        middle_db = (low_db + high_db) / 2
        tried = below(middle_db - feedback_db)
        if holds(tried):
            low_db, best = middle_db, tried
        else:
            high_db = middle_db
    return best


def _keeps_margins(loop: Complex128, min_gain_margin_db: float, min_phase_margin_deg: float) -> bool:
    """Return whether a loop is stable with both margins; cheap checks come first."""
    return (
        _gain_margin_db(loop) >= min_gain_margin_db
        and _phase_margin_deg(loop, _squared(loop)) >= min_phase_margin_deg
        and is_stable(loop)
    )


def _response(taps: Float32 | Float64) -> Complex128:
    return np.fft.rfft(taps.astype(np.float64), N_FFT)


def _squared(values: Complex128) -> Float64:
    found: Float64 = values.real**2 + values.imag**2
    return found


def _fine(feedback: Float32 | Complex64) -> Complex128:
    response = np.fft.irfft(spectrum(feedback)) if np.iscomplexobj(feedback) else feedback.astype(np.float64)
    return np.fft.rfft(response, N_FFT)


def _gain_margin_db(loop: Complex128) -> float:
    """Compute the gain margin from the largest |L| on the negative real axis."""
    gain, _ = _crossings(loop)
    on_axis = -loop.real[loop.imag == 0]
    return min(margin_db(max(gain.max(initial=0.0), on_axis.max(initial=0.0))), LARGEST_MARGIN_DB)


def _crossings(loop: Complex128) -> tuple[Float64, NDArray[np.bool_]]:
    """Return |L| where a loop crosses the negative real axis, and whether from below, per crossing.

    Between two points a loop turns and grows evenly: a chord would lie inside it, where its phase is steep.
    """
    is_below = loop.imag < 0
    first = np.flatnonzero(is_below[1:] != is_below[:-1])
    here, there = loop[first], loop[first + 1]
    angle, is_upward = _turn(here, there), is_below[first]
    crosses = ((angle > 0) != is_upward) & (here != 0) & (there != 0)
    here, there, angle, is_upward = here[crosses], there[crosses], angle[crosses], is_upward[crosses]
    share = -np.angle(-here) / angle
    return np.abs(here) ** (1 - share) * np.abs(there) ** share, is_upward


def _turn(here: Complex128, there: Complex128) -> Float64:
    """Return the angle between points, from -pi to pi."""
    return np.angle(there * here.conj())


def _phase_margin_deg(loop: Complex128, squared: Float64) -> float:
    """Compute the smallest angle between L and -1 where |L| crosses 1, as `_crossings` goes between points."""
    beyond = squared - 1
    first = np.flatnonzero(beyond[1:] * beyond[:-1] <= 0)
    if not first.size:
        return FULL_CIRCLE_DEG
    here, there = loop[first], loop[first + 1]
    rise = np.log(np.maximum(np.abs(there), SMALLEST) / np.maximum(np.abs(here), SMALLEST))
    share = np.divide(-np.log(np.maximum(np.abs(here), SMALLEST)), rise, out=np.zeros_like(rise), where=rise != 0)
    angle = np.angle(-here) + share * _turn(here, there)
    return float(np.abs(np.degrees(np.angle(np.exp(1j * angle)))).min())

"""Separate sound that arrives after a calibration's windows from the error microphone's noise.

The reference explains neither, but only the former remains when the filter runs. Where the reference repeats from the
silent to a driven state, the sound beyond the windows repeats with it, and the noise does not. With the residuals r = E
- H X of two states the power per |X|^2 is

    Re sum r_0* r_g / sum |X_0|^2.

A window of autocorrelation rho leaves (1 - rho(l)^2) h_0(l) h_g(l) of the responses of both states, p and p - g s,
unexplained. What exceeds that of the estimated lags comes from later ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from measurement.estimate import GainTake, ProbeState, onto_design_grid
from measurement.prior import lag_weight
from synthesis.arrays import SMALLEST, Real, squared_magnitude
from synthesis.bands import WIDE_BANDS, band_membership
from synthesis.conventions import DESIGN_N_FFT

# Least squared coherence of two states' references, median over frequency, for one to repeat the other.
REPEATS = 0.8

# More frames do not improve the estimate of a power.
MAX_FRAMES = 256

# Least weight of the lags that `missing_power` takes for the response: with their noise, later ones would count as it.
LEAST_WEIGHT = 0.25


class Tail(NamedTuple):
    """Power of the primary path beyond the windows, in the unit of |P|^2, per band from 20 Hz to 20 kHz."""

    # Noise makes it negative in some, [31].
    power: Real
    # Its standard error, [31].
    error: Real
    # Mean power by which the reference changes with the loudspeaker's sound, over its own.
    returned: float


def tail_power(
    takes: Sequence[GainTake], states: Sequence[ProbeState], *, window: int, first_samples: Sequence[int]
) -> Tail | None:
    """Compute the primary path's power beyond the windows.

    Parameters
    ----------
    takes
        Recordings, signals [n].
    states
        Result of `probe_states` for these takes, the silent one first.
    window
        Samples per window.
    first_samples
        First samples of the windows.

    Returns
    -------
    Tail | None
        None if the references do not repeat.
    """
    silent, driven = states[0], states[1]
    pairs = list(
        zip(
            (take for take in takes if take.gain == silent.gain),
            (take for take in takes if take.gain == driven.gain),
            strict=False,  # frames without a counterpart are dropped
        )
    )
    stride = max(1, -(-len(pairs) * len(first_samples) // MAX_FRAMES))
    hann = np.hanning(window + 1)[:-1]
    power_0, power_g, common, square = (np.zeros(window // 2 + 1) for _ in range(4))
    cross = np.zeros(window // 2 + 1, complex)
    # Without the states' regularisation, which would leave power unexplained.
    h_0, h_g = (item.cross / np.maximum(item.reference_power, SMALLEST) for item in (silent, driven))
    n_frames = 0
    for pair in pairs:
        for first in first_samples[::stride]:
            signals = [item[first : first + window] for take in pair for item in (take.reference, take.error)]
            x_0, e_0, x_g, e_g = np.fft.rfft(hann * np.stack(signals))
            power_0 += squared_magnitude(x_0)
            power_g += squared_magnitude(x_g)
            cross += x_0.conj() * x_g
            product = ((e_0 - h_0 * x_0).conj() * (e_g - h_g * x_g)).real
            common += product
            square += product**2
            n_frames += 1
    coherence = squared_magnitude(cross) / np.maximum(power_0 * power_g, SMALLEST)
    if n_frames < 2 or np.median(coherence) < REPEATS:
        return None
    # The transfers were fitted to the frames, which takes one degree of freedom.
    n_fitted = min(silent.n_frames, driven.n_frames)
    scale = n_fitted / max(n_fitted - 1, 1) / np.maximum(power_0, SMALLEST)
    membership = band_membership(WIDE_BANDS, DESIGN_N_FFT)
    power, variance = (onto_design_grid(item) @ membership for item in (scale * common, scale**2 * square))
    # A small change by g F adds Re g F to the log of the magnitude, and noise its scatter.
    heard = coherence > REPEATS
    level = np.log(np.abs(cross[heard]) / np.maximum(power_0[heard], SMALLEST))
    by_noise = np.mean(1 / coherence[heard] - 1) / (2 * n_frames)
    returned = max(2 * (float(np.var(level)) - float(by_noise)), 0.0)
    # The finer grid repeats each bin, and adjacent bins of a Hann window correlate.
    return Tail(power, np.sqrt(2 * DESIGN_N_FFT / window * variance), returned)


def late_power(primary: Real, driven: Real, tail: Real, window: int) -> Real:
    """Compute the power of lags that no window holds, per band from 20 Hz to 20 kHz [31].

    Parameters
    ----------
    primary, driven
        Responses of the silent and the driven state in the lags that windows hold, without their weight, [n].
    tail
        Power beyond the windows, [31].
    window
        Samples per window.
    """
    weight = np.pad(lag_weight(window), (0, max(len(primary) - window, 0)))[: len(primary)]
    silent, playing = np.fft.rfft(np.sqrt(1 - weight**2) * np.stack((primary, driven)), DESIGN_N_FFT)
    held = (silent.conj() * playing).real @ band_membership(WIDE_BANDS, DESIGN_N_FFT)
    late: Real = np.maximum(tail - held, 0)
    return late


def missing_power(primary: Real, driven: Real, tail: Real, window: int) -> Real:
    """Compute what an estimate with the weight of its windows lacks of the primary path, [31]; as `late_power`."""
    weight = lag_weight(window)[: len(primary)]
    n = int(np.argmax(weight < LEAST_WEIGHT))
    early = primary[:n] / weight[:n]
    lacked: Real = band_powers(early - primary[:n]) + late_power(early, driven[:n] / weight[:n], tail, window)
    return lacked


def band_powers(response: Real) -> Real:
    """Compute the power of an impulse response per band, above 0, [31]."""
    power = squared_magnitude(np.fft.rfft(response, DESIGN_N_FFT)) @ band_membership(WIDE_BANDS, DESIGN_N_FFT)
    return np.maximum(power, SMALLEST)

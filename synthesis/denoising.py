"""A secondary path's estimate freed from measurement noise, by what its own window says about that noise.

A secondary path is short, and the shorter the higher the frequency, but an estimate's noise is spread evenly over
all of its lags. So the estimate is split into bands that add up to it, and each lag of each band is multiplied by

    g_b[n] = max(0, 1 - OVERESTIMATE s_b / v_b[n]),

v_b[n] the band's mean square about that lag and s_b that of the noise, from lags where no ear rings any more.
Where there is no noise the gain is one. A gain over lags alone would cost what it should save: late lags hold
little in all, yet at low frequencies far more than the noise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from synthesis.conventions import SAMPLE_RATE_HZ

Real = NDArray[np.floating]

N_BANDS = 5
LOWEST_CENTRE_HZ = 62.5
BAND_OCTAVES = 2.0
"""Narrower bands recover no more, and from half octaves on less: their filters smear over the lags."""
OVERESTIMATE = 4.0
"""A mean over a few lags of noise exceeds the noise's mean by up to this. Six recover no more, two 0.15 dB less."""
SMOOTHING = 0.2
MIN_SMOOTHING_SAMPLES = 16


def denoised(response: Real, noise: Real) -> Real:
    """Responses real [..., n_taps] with every lag of every band reduced according to the noise.

    noise: what the same estimate holds at lags without a response, real [..., n] (`noise_lags`).
    """
    bands = split_into_bands(response)
    noise_power = (split_into_bands(noise) ** 2).sum(-1, keepdims=True) / noise.shape[-1]
    power = smoothed(bands**2, SMOOTHING)
    gain = np.maximum(1 - OVERESTIMATE * noise_power / np.maximum(power, np.finfo(power.dtype).tiny), 0)
    cleaned: Real = (gain * bands).sum(-2)[..., : response.shape[-1]]
    return cleaned


def noise_lags(whole: Real) -> Real:
    """The lags of a whole window's response, real [..., window], that hold only noise: from half of the window to
    seven eighths, later than an ear rings and earlier than what precedes sample 0."""
    window = whole.shape[-1]
    return whole[..., window // 2 : window * 7 // 8]


def split_into_bands(responses: Real) -> Real:
    """Zero-phase bands of real [..., n_taps], two octaves wide, that add up to them: [..., 5, 4 * n_taps].

    Raised cosines over log frequency; the lowest reaches down to 0 Hz, the highest up to Nyquist. Lags are
    circular, because a band's filter has no delay and reaches before its input.
    """
    n_fft = 4 * responses.shape[-1]
    octaves = np.log2(np.maximum(np.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE_HZ), 1.0) / LOWEST_CENTRE_HZ)
    place = (octaves / BAND_OCTAVES).clip(0, N_BANDS - 1)
    masks = np.cos((place - np.arange(N_BANDS)[:, None]).clip(-1, 1) * np.pi / 2) ** 2
    bands: Real = np.fft.irfft(np.fft.rfft(responses, n=n_fft)[..., None, :] * masks, n=n_fft)
    return bands


def smoothed(power: Real, share: float) -> Real:
    """Circular [..., 2 * m] averaged over the lags within `share` of a lag's distance from 0, and at least 16."""
    half = power.shape[-1] // 2
    after, before = _smoothed(power[..., :half], share), _smoothed(power[..., : half - 1 : -1], share)
    return np.concatenate([after, before[..., ::-1]], axis=-1)


def _smoothed(power: Real, share: float) -> Real:
    n_lags = power.shape[-1]
    lags = np.arange(n_lags)
    half = np.maximum((share * lags).astype(np.intp), MIN_SMOOTHING_SAMPLES)
    first, last = np.maximum(lags - half, 0), np.minimum(lags + half + 1, n_lags)
    sums = np.zeros((*power.shape[:-1], n_lags + 1))
    np.cumsum(power, axis=-1, out=sums[..., 1:])
    mean: Real = np.maximum(sums[..., last] - sums[..., first], 0) / (last - first)
    return mean

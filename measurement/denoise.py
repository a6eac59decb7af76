"""A secondary path's estimate freed from measurement noise, by what its own window says about that noise.

A secondary path is short, and the shorter the higher the frequency, but an estimate's noise is spread evenly over
all of its lags. So the estimate is split into bands that add up to it, and each lag of each band is multiplied by

    g_b[n] = max(0, 1 - OVERESTIMATE s_b / v_b[n]),

v_b[n] the band's mean square about that lag and s_b that of the noise, from lags where no ear rings any more.
Where there is no noise the gain is one, and always in the lowest band, where ears ring as long as the window. A
gain over lags alone would cost what it should save: late lags hold little in all, yet at low frequencies far more
than the noise.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ

Real = NDArray[np.floating]

N_BANDS = 5
LOWEST_CENTRE_HZ = 62.5
# Narrower bands recover no more, and from half octaves on less: their filters smear over the lags.
BAND_OCTAVES = 2.0
# A mean over a few lags of noise exceeds the noise's mean by up to this. Six recover no more, two 0.15 dB less.
OVERESTIMATE = 4.0
# Noise in the first quarter of the lags over that in `noise_lags`, of Hann windows: as the autocorrelation of the
# squared window.
EARLY_NOISE = 2.17
SMOOTHING = 0.2
MIN_SMOOTHING_SAMPLES = 16
_TINY = float(np.finfo(np.float64).tiny)


class Denoised(NamedTuple):
    """response: real [..., n_taps], every lag of every band reduced according to the noise. kept_share: error of
    the response over that before, per bin of the design grid, [..., 16385]: the noise that is left, and what was
    taken from the response with it."""

    response: Real
    kept_share: Real


def denoise(response: Real, noise: Real) -> Denoised:
    """Of responses real [..., n_taps].

    noise: what the same estimate holds at lags without a response, real [..., n] (`noise_lags`).
    """
    n_taps = response.shape[-1]
    bands = split_into_bands(response)
    noise_power = (split_into_bands(noise) ** 2).sum(-1, keepdims=True) / noise.shape[-1]
    power = smoothed(bands**2, SMOOTHING)
    gain = np.maximum(1 - OVERESTIMATE * noise_power / np.maximum(power, _TINY), 0)
    gain[..., 0, :] = 1
    early_noise = EARLY_NOISE * noise_power
    left = gain**2 * early_noise + (1 - gain) ** 2 * np.maximum(power - early_noise, 0)
    kept = left[..., :n_taps].mean(-1) / np.maximum(early_noise[..., 0], _TINY)
    kept[..., 0] = 1
    return Denoised((gain * bands).sum(-2)[..., :n_taps], kept @ _masks(DESIGN_N_FFT))


def denoised(response: Real, noise: Real) -> Real:
    """The responses alone of `denoise`."""
    return denoise(response, noise).response


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
    bands: Real = np.fft.irfft(np.fft.rfft(responses, n=n_fft)[..., None, :] * _masks(n_fft), n=n_fft)
    return bands


@cache
def _masks(n_fft: int) -> Real:
    """Gains of the bands, which add up to one: [5, n_fft // 2 + 1]."""
    octaves = np.log2(np.maximum(np.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE_HZ), 1.0) / LOWEST_CENTRE_HZ)
    place = (octaves / BAND_OCTAVES).clip(0, N_BANDS - 1)
    masks: Real = np.cos((place - np.arange(N_BANDS)[:, None]).clip(-1, 1) * np.pi / 2) ** 2
    return masks


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

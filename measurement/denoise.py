"""Remove measurement noise from an estimated secondary path, using the noise level in its window.

A secondary path is short, the shorter the higher the frequency, while an estimate's noise is spread evenly over all
lags. So the estimate is split into bands that add up to it, and lag n of band b is multiplied by

    g_b[n] = max(0, 1 - OVERESTIMATE s_b / v_b[n]),

where v_b[n] is the band's mean square about that lag and s_b that of the noise, from lags where no ear rings any more.
Without noise the gain is one; it is always one in the lowest band, where ears ring as long as the window. A gain over
lags alone would remove late low-frequency sound that is far above the noise.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from measurement.prior import lag_weight
from synthesis.arrays import SMALLEST, Complex, Real, squared_magnitude
from synthesis.conventions import DESIGN_N_FFT, SAMPLE_RATE_HZ

N_BANDS = 5
LOWEST_CENTRE_HZ = 62.5
# Narrower bands recover no more, and from half octaves on less: their filters smear over the lags.
BAND_OCTAVES = 2.0
# Ratio by which a mean over a few lags of noise may exceed the noise's mean. Six recovers no more, two 0.15 dB less.
OVERESTIMATE = 4.0
# Noise in the first quarter of the lags over that in `noise_lags`, for Hann windows: the squared window's
# autocorrelation.
EARLY_NOISE = 2.17
SMOOTHING = 0.2
# For `restore`, chosen on simulated ducts, rooms, windows, headrests and headsets: wider means hide the gaps between
# echoes. With 2.5 ears and these lose 0.1 dB.
HALVES_OVERESTIMATE, HALVES_SMOOTHING = 1.5, 0.1
# Bins of the design grid over which a spectrum of noise is averaged: 110 Hz.
SPECTRUM_BINS = 75
# Later lags are mostly noise.
LEAST_WEIGHT = 0.12
MIN_SMOOTHING_SAMPLES = 16
_MOST = 1e6


class Denoised(NamedTuple):
    """Denoised responses."""

    # Real [..., n_taps].
    response: Real
    # Error of the response over that before denoising, per bin of the design grid, [..., 16385].
    kept_share: Real


def denoise(response: Real, noise: Real) -> Denoised:
    """Denoise responses, real [..., n_taps].

    Parameters
    ----------
    noise
        The estimate's values at lags without a response, real [..., n] (`noise_lags`).
    """
    n_taps = response.shape[-1]
    bands = split_into_bands(response)
    noise_power = (split_into_bands(noise) ** 2).sum(-1, keepdims=True) / noise.shape[-1]
    power = smoothed(bands**2, SMOOTHING)
    gain = np.maximum(1 - OVERESTIMATE * noise_power / np.maximum(power, SMALLEST), 0)
    gain[..., 0, :] = 1
    early_noise = EARLY_NOISE * noise_power
    left = gain**2 * early_noise + (1 - gain) ** 2 * np.maximum(power - early_noise, 0)
    kept = left[..., :n_taps].mean(-1) / np.maximum(early_noise[..., 0], SMALLEST)
    kept[..., 0] = 1
    return Denoised((gain * bands).sum(-2)[..., :n_taps], kept @ _masks(DESIGN_N_FFT))


class Restored(NamedTuple):
    """A response from windows, without their noise and weight."""

    # Real [n_taps].
    response: Real
    # Expected |error|^2 by noise per bin of the design grid, [16385].
    noise: Real
    # The same by what is missing, lags from n_taps on, too.
    missing: Real


def restore(transfer: Complex, half_difference: Complex, n_taps: int, n_cancelled: int) -> Restored:
    """Estimate a response from windows whose noise is known from two halves of the recordings.

    Hann windows weight lag n by their autocorrelation rho[n], and their estimate has noise. With v_b and s_b the mean
    squares about lag n of a band of the estimate and of half its difference between the halves, the lag is multiplied
    by

        g_b[n] / rho[n],    g_b[n] = max(0, 1 - HALVES_OVERESTIMATE s_b[n] / v_b[n]),

    and by zero where rho is below LEAST_WEIGHT. Such an estimate's error is uncorrelated with it, so that both add as
    powers. Of lags from n_cancelled on only the power counts: it stays with sqrt(g_b) for g_b.

    Parameters
    ----------
    transfer, half_difference
        Of a `ProbeState` or of a secondary path, complex [window // 2 + 1].
    n_taps
        Length of the response.
    n_cancelled
        Number of lags that a filter can cancel, or that add to what it plays.
    """
    window = 2 * (len(transfer) - 1)
    bands, noise = (split_into_bands(np.fft.irfft(item)) for item in (transfer, half_difference))
    weight = np.pad(lag_weight(window), (0, bands.shape[-1] - window), constant_values=1.0)
    power, noise_power = smoothed(bands**2, HALVES_SMOOTHING), smoothed(noise**2, HALVES_SMOOTHING)
    gain = np.maximum(1 - HALVES_OVERESTIMATE * noise_power / np.maximum(power, SMALLEST), 0) * (
        weight > LEAST_WEIGHT
    )
    gain[:, n_cancelled:] **= 0.5
    weight = np.maximum(weight, LEAST_WEIGHT)
    signal = np.where(gain > 0, power - noise_power, 0) / weight**2
    found = gain / weight * bands

    def share(part: Real, whole: Real) -> Real:
        """Interpolate a quotient of the bands' energies over frequency."""
        quotient: Real = np.minimum(part.sum(-1) / np.maximum(whole.sum(-1), SMALLEST), _MOST) @ _masks(
            DESIGN_N_FFT
        )
        return quotient

    kept, whole = found[:, :n_taps], found.sum(0)[:window]
    response = np.zeros(n_taps)
    response[:window] = whole[:n_taps]
    late = np.concatenate((np.zeros_like(whole[:n_taps]), whole[n_taps:]))
    lost = share(((1 - gain) ** 2 * signal)[:, : min(window, n_cancelled)], kept**2)
    noise_left = share(((gain / weight) ** 2 * noise_power)[:, :n_cancelled], noise**2)
    return Restored(
        response,
        noise_left * _smooth_spectrum(np.fft.irfft(half_difference)),
        lost * squared_magnitude(np.fft.rfft(response, DESIGN_N_FFT)) + _smooth_spectrum(late),
    )


def _smooth_spectrum(response: Real) -> Real:
    """Compute the power of a response on the design grid, averaged as one period of noise scatters."""
    power = np.pad(squared_magnitude(np.fft.rfft(response, DESIGN_N_FFT)), SPECTRUM_BINS // 2, mode="reflect")
    smooth: Real = np.convolve(power, np.full(SPECTRUM_BINS, 1 / SPECTRUM_BINS), mode="valid")
    return smooth


def split_into_bands(responses: Real) -> Real:
    """Split real [..., n_taps] into zero-phase bands of two octaves that add up to it: [..., 5, 4 * n_taps].

    Raised cosines over log frequency; the lowest band reaches down to 0 Hz, the highest up to Nyquist. Lags are
    circular, because a band's filter has no delay and reaches before its input.
    """
    n_fft = 4 * responses.shape[-1]
    bands: Real = np.fft.irfft(np.fft.rfft(responses, n=n_fft)[..., None, :] * _masks(n_fft), n=n_fft)
    return bands


@cache
def _masks(n_fft: int) -> Real:
    """Return the gains of the bands, which add up to one: [5, n_fft // 2 + 1]."""
    octaves = np.log2(np.maximum(np.fft.rfftfreq(n_fft, 1 / SAMPLE_RATE_HZ), 1.0) / LOWEST_CENTRE_HZ)
    place = (octaves / BAND_OCTAVES).clip(0, N_BANDS - 1)
    masks: Real = np.cos((place - np.arange(N_BANDS)[:, None]).clip(-1, 1) * np.pi / 2) ** 2
    return masks


def smoothed(power: Real, share: float) -> Real:
    """Average circular [..., 2 * m] over lags within `share` of a lag's distance from 0, at least 16 of them."""
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

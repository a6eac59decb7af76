"""Twin of `measurement.denoise`: NumPy, band by band and lag by lag, the lowest band left as it is."""

import numpy as np

CENTRES_HZ = (62.5, 250.0, 1000.0, 4000.0, 16_000.0)


def bands(response: np.ndarray) -> np.ndarray:
    """Five zero-phase bands on four times the lags: [5, 4 n]."""
    n = 4 * len(response)
    spectrum, frequency = np.fft.fft(response, n), np.abs(np.fft.fftfreq(n, 1 / 48_000))
    found = []
    for number, centre in enumerate(CENTRES_HZ):
        distance = np.log2(np.maximum(frequency, 1.0) / centre) / 2
        mask = np.where(np.abs(distance) < 1, np.cos(np.pi / 2 * distance) ** 2, 0.0)
        if number == 0:
            mask[frequency <= centre] = 1
        if number == len(CENTRES_HZ) - 1:
            mask[frequency >= centre] = 1
        found.append(np.fft.ifft(mask * spectrum).real)
    return np.array(found)


def denoised(response: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """One response [n_taps], and its estimate's noise at other lags [n]."""
    out = np.zeros(len(response))
    whole = bands(response)
    out += whole[0, : len(response)]
    for band, of_noise in zip(whole[1:], bands(noise)[1:], strict=True):
        power, half = band**2, len(band) // 2
        level = (of_noise**2).sum() / len(noise)
        for lag in range(len(response)):
            reach = max(16, int(0.2 * lag))
            around = power[max(0, lag - reach) : min(half, lag + reach + 1)].mean()
            out[lag] += max(0.0, 1 - 4 * level / around) * band[lag]
    return out

"""Twin of the figures by which a calibration is judged: plain NumPy from frames cut out of the recordings."""

from dataclasses import dataclass

import numpy as np

from tests.oracles import path_estimation
from tests.oracles.octave_bands import AMP_BANDS, band_sums

N_FFT = 32_768
N_PRIMARY, N_SECONDARY = 8192, 2048


@dataclass(frozen=True)
class Figures:
    """Per band [23]: coherence, ceiling_db, snr_db; and the secondary's tail against itself."""

    coherence: np.ndarray
    ceiling_db: np.ndarray
    snr_db: np.ndarray
    tail_db: float


def figures(x_0: np.ndarray, e_0: np.ndarray, x_g: np.ndarray, e_g: np.ndarray, gain: float) -> Figures:
    """Compute the figures from the frames [n, window] of the states W = 0 and W = gain."""
    h_0, h_g = path_estimation.transfer(x_0, e_0), path_estimation.transfer(x_g, e_g)
    whole = np.fft.irfft((h_0 - h_g) / gain)
    secondary, n = path_estimation.impulse_response((h_0 - h_g) / gain, N_SECONDARY), len(whole)
    noise = whole[n // 2 : 7 * n // 8]
    density = band_sums(AMP_BANDS, np.abs(np.fft.rfft(noise, N_FFT)) ** 2) / len(noise)
    snr = band_sums(AMP_BANDS, np.abs(np.fft.rfft(secondary, N_FFT)) ** 2) / (density * N_SECONDARY)

    c = path_estimation.coherence(x_0, e_0, N_FFT // 2 + 1)
    autospectrum = (np.abs(np.fft.rfft(x_0 * np.hanning(x_0.shape[-1] + 1)[:-1], axis=-1)) ** 2).sum(0)
    on_grid = np.interp(np.linspace(0, 1, len(c)), np.linspace(0, 1, len(autospectrum)), autospectrum)
    primary = np.fft.rfft(path_estimation.impulse_response(h_0, N_PRIMARY), N_FFT)
    explained = np.abs(primary) ** 2 * on_grid
    band_coherence = 1 / (1 + band_sums(AMP_BANDS, (1 - c) / c * explained) / band_sums(AMP_BANDS, explained))

    window = np.hanning(n + 1)[:-1]
    lags = np.arange(N_SECONDARY - 128, 7 * n // 16)
    rise = np.hanning(256)
    taper = np.r_[rise[:128], np.ones(len(lags) - 256), rise[128:]]
    taper = taper * np.sum(window**2) / [window[lag:] @ window[: n - lag] for lag in lags]
    quiet = np.hanning(len(noise))
    tail, floor, power = (
        band_sums(AMP_BANDS, np.abs(np.fft.rfft(item, N_FFT)) ** 2)
        for item in (taper * whole[lags], quiet * noise, secondary)
    )
    share = (tail - 4 * floor * np.sum(taper**2) / np.sum(quiet**2)) / power
    return Figures(
        coherence=band_coherence,
        ceiling_db=-10 * np.log10(1 - band_coherence),
        snr_db=10 * np.log10(snr),
        tail_db=float(np.median(10 * np.log10(np.maximum(share[26 - AMP_BANDS[0] :], 1e-12)))),
    )

"""The time-domain score against a plain SciPy evaluation, and its properties."""

import numpy as np
import pytest
import torch
from scipy.signal import fftconvolve

from prime_anc.method.bands import AMP_BANDS, NR_BANDS, edges_hz
from training.datasets.noise import simulated_noise
from training.datasets.simulated import simulate_listeners
from training.scoring import SCORED_BANDS, TimeDomainScore


@pytest.fixture(scope="module")
def noise():
    return simulated_noise(0)


@pytest.fixture(scope="module")
def pair():
    return simulate_listeners(1, 0).pairs[0]


@pytest.fixture(scope="module")
def taps():
    generator = torch.Generator().manual_seed(1)
    return (
        0.4 * torch.randn(1, 2048, generator=generator, dtype=torch.float64) * torch.exp(-torch.arange(2048) / 40)
    )


def plain_score(noise, p, s, w):
    """Mean reduction per band [noise, block, band], from whole convolutions of 6.5 to 10 s."""
    frequency = np.fft.rfftfreq(8192, 1 / 48_000)
    window = np.hanning(8193)[:-1]
    reductions = np.zeros((len(noise.signals), 6, len(SCORED_BANDS)))
    for row, signal in enumerate(noise.signals):
        x = signal[312_000:480_000]
        d = fftconvolve(x, p)[: x.size]
        e = d - fftconvolve(fftconvolve(x, w)[: x.size], s)[: x.size]
        for block in range(6):
            start = 24_000 * (block + 1)
            frames = [slice(start + offset, start + offset + 8192) for offset in range(0, 24_000 - 8192 + 1, 2048)]
            spectra = [sum(np.abs(np.fft.rfft(window * y[f])) ** 2 for f in frames) for y in (d, e)]
            for column, n in enumerate(SCORED_BANDS):
                low, high = edges_hz(n)
                cells = (frequency >= low) & (frequency < high)
                reductions[row, block, column] = 10 * np.log10(spectra[0][cells].sum() / spectra[1][cells].sum())
    return reductions


def test_scores_equal_plain_evaluation(noise, pair, taps):
    """Float64 to 1e-6 dB (the energy floor), float32 to the 1e-3 dB that its docstring promises."""
    plain = plain_score(noise, pair.primary, pair.secondary, taps[0].numpy())
    first, n_nr, n_amp = SCORED_BANDS.index(NR_BANDS[0]), len(NR_BANDS), len(AMP_BANDS)
    expected_nr = plain[..., first : first + n_nr].mean()
    expected_amp = np.maximum(-plain[..., first : first + n_amp], 0).mean()
    for dtype, tolerance in ((torch.float64, 1e-6), (torch.float32, 1e-3)):
        (score,) = TimeDomainScore(noise, dtype=dtype)(pair, taps)
        assert score.band_db == pytest.approx(plain.mean((0, 1)).tolist(), abs=tolerance)
        assert score.noise_reduction_db == pytest.approx(expected_nr, abs=tolerance)
        assert score.amplification_db == pytest.approx(expected_amp, abs=tolerance)

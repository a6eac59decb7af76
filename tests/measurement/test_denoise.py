"""Denoised secondary estimates equal the twin's, lose noise and keep the path."""

import numpy as np
import pytest

from measurement.denoise import EARLY_NOISE, N_BANDS, denoise, restore, split_into_bands
from measurement.prior import lag_weight
from synthesis.conventions import DESIGN_N_FFT
from tests.oracles import denoising as oracle

N_TAPS = 1024


def decay(seed: int) -> np.ndarray:
    """A path that decays faster at higher frequencies: 100 Hz in 200 samples, 5 kHz in 20."""
    lag, levels = np.arange(N_TAPS), 10 ** (np.random.default_rng(seed).normal(0, 0.1, 2))
    low = 0.2 * np.cos(2 * np.pi * 100 * lag / 48_000) * np.exp(-lag / 200)
    return levels[0] * low + levels[1] * np.cos(2 * np.pi * 5000 * lag / 48_000) * np.exp(-lag / 20)


def white(level: float, seed: int, n: int = N_TAPS) -> np.ndarray:
    return level * np.random.default_rng(seed).standard_normal(n)


def error_db(found: np.ndarray, truth: np.ndarray) -> float:
    return float(10 * np.log10(np.sum((np.asarray(found) - truth) ** 2) / np.sum(truth**2)))


def test_bands_add_up_and_separate() -> None:
    responses = np.stack([white(1.0, seed) for seed in range(3)])
    bands = split_into_bands(responses)
    assert bands.shape == (3, N_BANDS, 4 * N_TAPS)
    whole = np.pad(responses, ((0, 0), (0, 3 * N_TAPS)))
    np.testing.assert_allclose(bands.sum(1), whole, rtol=0, atol=1e-13)  # rounding of float64 transforms
    np.testing.assert_allclose(bands[1], oracle.bands(responses[1]), atol=1e-13)
    tone = np.cos(2 * np.pi * 1000 * np.arange(N_TAPS) / 48_000)
    power = (split_into_bands(tone) ** 2).sum(-1)
    assert int(power.argmax()) == 2  # the centres are 62.5, 250, 1000, 4000, 16000 Hz
    assert float(power[2] / power.sum()) > 0.99


def test_twin_agrees_on_batch_and_noise_falls() -> None:
    truths = [decay(1), decay(2)]
    noisy = [
        truth + white(level, seed) for seed, (truth, level) in enumerate(zip(truths, (0.003, 0.03), strict=True))
    ]
    noises = [white(0.003, 5, 1500), white(0.03, 6, 1500)]
    found = denoise(np.stack(noisy), np.stack(noises)).response
    for item, before, noise, truth in zip(found, noisy, noises, truths, strict=True):
        expected = oracle.denoised(before, noise)
        np.testing.assert_allclose(item, expected, atol=1e-12)  # rounding, over a gain of at most one
        assert error_db(item, truth) < error_db(before, truth) - 6


def test_remaining_error_is_predicted() -> None:
    """Noise is as Hann windows leave it, EARLY_NOISE times as much in early lags. Scatter of the power about a lag
    counts as response lost, so the prediction errs upwards.
    """
    truth, level = decay(4), 0.01
    noisy = [truth + white(np.sqrt(EARLY_NOISE) * level, seed) for seed in range(12)]
    found = [denoise(item, white(level, seed + 100, 1500)) for seed, item in enumerate(noisy)]
    errors = ([item.response - truth for item in found], [item - truth for item in noisy])
    after, before = (np.mean(np.abs(np.fft.rfft(error, DESIGN_N_FFT)) ** 2, 0) for error in errors)
    said = np.mean([item.kept_share for item in found], 0)
    for low_hz, high_hz in ((20, 60), (500, 2000), (3000, 8000), (12_000, 20_000)):
        part = slice(*(round(hz * DESIGN_N_FFT / 48_000) for hz in (low_hz, high_hz)))
        share = after[part].sum() / before[part].sum()
        assert 0.8 * share < said[part].mean() < 4 * share + 0.1


def test_restored_response_has_stated_error() -> None:
    """The window's weight is removed, noise falls, and the variance is that of the error, later lags included."""
    window, n_taps, level = 8192, 2048, 0.003
    lags = np.arange(window)
    truth = np.exp(-lags / 500) * white(1.0, 8, window)
    errors, raw, variances = [], [], []
    for seed in range(6):
        halves = [np.fft.rfft(lag_weight(window) * truth + white(level, 2 * seed + n, window)) for n in range(2)]
        whole = (halves[0] + halves[1]) / 2
        found = restore(whole, (halves[0] - halves[1]) / 2, n_taps, 2048)
        errors.append(np.pad(found.response, (0, window - n_taps)) - truth)
        raw.append(np.fft.irfft(whole)[:n_taps] - truth[:n_taps])
        variances.append(found.noise + found.missing)
    assert np.sum(np.square(errors)[:, :n_taps]) < np.sum(np.square(raw)) / 4
    error, said = np.mean(np.abs(np.fft.rfft(errors, DESIGN_N_FFT)) ** 2, 0), np.mean(variances, 0)
    for low_hz, high_hz in ((100, 500), (500, 2000), (3000, 8000), (12_000, 20_000)):
        part = slice(*(round(hz * DESIGN_N_FFT / 48_000) for hz in (low_hz, high_hz)))
        assert 0.5 < said[part].sum() / error[part].sum() < 2


def test_restored_late_sound_keeps_its_power() -> None:
    """Lags that no filter cancels are as loud as they are, also where they are hardly above the noise."""
    window, level = 8192, 0.05
    lags = np.arange(window)
    truth = np.exp(-lags / 1000) * white(1.0, 8, window)
    part = slice(2048, 4000)
    powers = []
    for seed in range(6):
        halves = [np.fft.rfft(lag_weight(window) * truth + white(level, 2 * seed + n, window)) for n in range(2)]
        found = restore((halves[0] + halves[1]) / 2, (halves[0] - halves[1]) / 2, window, 2048).response
        powers.append(np.sum(found[part] ** 2))
    assert np.mean(powers) == pytest.approx(np.sum(truth[part] ** 2), rel=0.15)
